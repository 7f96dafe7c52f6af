"""Row errors of logits, less their free shift."""

import math
import tracemalloc

import numpy as np
import pytest

from tests.measured import assert_measured
from validate.errors import InputError
from validate.numerics import centred_rms


def test_by_hand():
    """Differences (1, 3): mean 2, centred (-1, 1), RMS 1; and (5, 5): nothing but a shift."""
    found = centred_rms(np.zeros((2, 2)), np.array([[1.0, 3.0], [5.0, 5.0]]))

    assert found.tolist() == [1.0, 0.0]


def test_the_difference_counts():
    """(7, 9) against (10, 8): differences (3, -1), mean 1, centred (2, -2), RMS 2."""
    found = centred_rms(np.array([[7.0, 9.0]]), np.array([[10.0, 8.0]]))

    assert found.tolist() == [2.0]


def test_one_id_left_has_no_error():
    """Its difference of 5 is a shift; nor has an empty vocabulary any error."""
    ref, cand = np.array([[1.0, -math.inf]]), np.array([[6.0, -math.inf]])

    assert centred_rms(ref, cand).tolist() == [0.0]
    assert centred_rms(np.zeros((2, 0)), np.zeros((2, 0))).tolist() == [0.0, 0.0]


def test_masked_ids_are_left_out():
    """Differences (0, 3, 6) of the three ids left: centred (-3, 0, 3), RMS sqrt 6."""
    ref = np.array([[0.0, -math.inf, 0.0, 0.0]])
    cand = np.array([[0.0, -math.inf, 3.0, 6.0]])

    assert_measured(centred_rms(ref, cand), [math.sqrt(6)], atol=0, rtol=1e-15)


def test_all_masked_is_no_error_and_no_rows_are_no_errors():
    masked = np.full((1, 3), -math.inf)

    assert centred_rms(masked, masked).tolist() == [0.0]
    assert centred_rms(np.zeros((0, 3)), np.zeros((0, 3))).shape == (0,)


def test_rows_beyond_one_block():
    ref = np.zeros((3, 200_000), dtype=np.float32)
    cand = ref.copy()
    cand[2, ::2] = 2.0

    assert_measured(centred_rms(ref, cand), [0.0, 0.0, 1.0], atol=0, rtol=1e-12)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_refuses_what_is_not_finite_and_names_the_place(value):
    cand = np.zeros((2, 3))
    cand[1, 2] = value

    with pytest.raises(InputError, match=f"row 1 id 2 is 0.0 in ref and {value} in cand"):
        centred_rms(np.zeros((2, 3)), cand)


def test_the_first_place_is_named():
    cand = np.zeros((3, 4))
    cand[1, 3] = cand[2, 0] = math.nan

    with pytest.raises(InputError, match=r"row 1 id 3 is 0\.0 in ref and nan in cand"):
        centred_rms(np.zeros((3, 4)), cand)


@pytest.mark.parametrize(("rows", "vocab"), [(8, 65_536), (3, 262_145)])
def test_memory_is_that_of_one_block(rows, vocab):
    """A block is 262,144 values, or one row if it is longer: 2.1 MB a float64 array, five at once."""
    ref = np.zeros((rows, vocab), dtype=np.float32)
    cand = ref.copy()
    cand[:, 0] = 1.0
    tracemalloc.start()

    found = centred_rms(ref, cand)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # One difference of 1 among V: the variance is 1/V - 1/V^2.
    assert_measured(found, [math.sqrt(vocab - 1) / vocab] * rows, atol=0, rtol=1e-12)
    assert peak < 13e6
