"""Row errors of logits, less their free shift."""

import math

import numpy as np
import pytest

from tests.measured import assert_measured
from validate.errors import InputError
from validate.numerics import centred_rms


def test_by_hand():
    """Differences (1, 3): mean 2, centred (-1, 1), RMS 1; and (5, 5): nothing but a shift."""
    found = centred_rms(np.zeros((2, 2)), np.array([[1.0, 3.0], [5.0, 5.0]]))

    assert found.tolist() == [1.0, 0.0]


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
