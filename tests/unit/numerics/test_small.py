"""Non-finite counts, exact sums, log-softmax."""

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
import scipy.special

from tests.measured import assert_measured
from validate.errors import InputError
from validate.numerics import (
    count_nonfinite,
    exact_mean,
    exact_sum,
    log_softmax,
    logsumexp,
    unlike_nonfinite,
)


def test_count_by_kind_and_place():
    array = np.array([[1.0, -np.inf], [np.nan, np.inf]], dtype=ml_dtypes.bfloat16)

    found = count_nonfinite(array)

    assert (found.nan, found.positive, found.negative, found.total) == (1, 1, 1, 3)
    assert (found.size, found.first) == (4, (0, 1))


def test_counts_of_the_two_infinities_are_not_mixed_up():
    found = count_nonfinite(np.array([np.inf, -np.inf, -np.inf, np.nan, np.nan, np.nan]))

    assert (found.positive, found.negative, found.nan) == (1, 2, 3)


def test_all_finite_has_no_place():
    found = count_nonfinite(np.zeros(3, dtype=np.float32))

    assert (found.total, found.first, found.size) == (0, None, 3)


def test_the_sign_of_infinities_counts_and_nan_never_agrees():
    ref = np.array([np.inf, np.inf, -np.inf, np.nan, 1.0, 2.0])
    cand = np.array([np.inf, -np.inf, -np.inf, np.nan, np.inf, 3.0])

    assert unlike_nonfinite(ref, cand).tolist() == [False, True, False, True, True, False]


def test_sum_does_not_depend_on_order():
    terms = [1e16, 1.0, -1e16, 1e-3]

    sums = {exact_sum(order) for order in itertools.permutations(terms)}

    assert sums == {1.001}


def test_sum_lets_nan_and_infinity_through():
    assert math.isnan(exact_sum([1.0, math.nan]))
    assert math.isnan(exact_sum([math.inf, -math.inf]))
    assert exact_sum([1.0, math.inf]) == math.inf


def test_mean_of_nothing_is_none():
    assert exact_mean([]) is None
    assert exact_mean([1.0, 2.0, 6.0]) == 3.0


def test_log_softmax_against_scipy():
    rng = np.random.default_rng(3)
    logits = rng.normal(scale=20, size=(4, 50))
    logits[1, 7] = -np.inf
    logits[2] += 1e4

    mine = log_softmax(logits)

    theirs = scipy.special.log_softmax(logits, axis=-1)
    finite = np.isfinite(theirs)
    assert np.array_equal(mine == -np.inf, ~finite)
    assert_measured(mine[finite], theirs[finite], atol=1e-11, rtol=1e-14)


def test_logsumexp_by_hand():
    # ln(e^0 + e^0) = ln 2, and a shift of 1000 must not overflow.
    assert_measured(
        logsumexp(np.array([[0.0, 0.0], [1000.0, 1000.0]])),
        [math.log(2), 1000 + math.log(2)],
        atol=0,
        rtol=1e-15,
    )


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)])
def test_logsumexp_goes_over_the_last_axis(shape):
    """Of four equal logits: ln 4 more than each; each vector has logits of its own."""
    level = np.arange(math.prod(shape[:-1]), dtype=np.float64).reshape(shape[:-1])

    found = logsumexp(np.zeros(shape) + level[..., None])

    assert_measured(found, level + math.log(4), atol=0, rtol=1e-15)


@pytest.mark.parametrize("bad", [[np.nan, 1.0], [np.inf, 1.0], [-np.inf, -np.inf]])
def test_log_softmax_refuses_rows_without_a_law(bad):
    with pytest.raises(InputError, match="1 of 2 rows hold NaN or \\+inf, or are -inf throughout"):
        log_softmax(np.array([[0.0, 0.0], bad]))


def test_log_softmax_refuses_an_empty_vocabulary():
    with pytest.raises(InputError, match="empty vocabulary"):
        log_softmax(np.zeros((2, 0)))
    with pytest.raises(InputError, match=r"empty vocabulary: shape \(2, 3, 0\)"):
        logsumexp(np.zeros((2, 3, 0)))
