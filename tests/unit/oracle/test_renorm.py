"""Top-k, top-p and min-p in float64, by hand."""

import math

import numpy as np
import pytest

from tests.measured import assert_measured
from validate.errors import InputError
from validate.oracle import (
    min_p,
    min_p_kept,
    top_k_kept,
    top_k_renorm_prob,
    top_p_kept,
    top_p_renorm_prob,
)

ROW = np.array([[0.35, 0.25, 0.20, 0.15, 0.05]])
TIED = np.array([[0.1, 0.3, 0.3, 0.3]])


def close(actual, expected):
    assert_measured(actual, np.asarray(expected, np.float64), atol=1e-15, rtol=1e-15)


def ids(kept):
    return [np.flatnonzero(row).tolist() for row in kept]


def test_top_k_keeps_the_largest_and_divides():
    close(top_k_renorm_prob(ROW, 2), [[0.35 / 0.6, 0.25 / 0.6, 0, 0, 0]])  # by hand


def test_top_k_keeps_all_that_tie_with_the_last():
    close(top_k_renorm_prob(TIED, 2, ties="all"), [[0, 1 / 3, 1 / 3, 1 / 3]])
    close(top_k_renorm_prob(TIED, 1, ties="all"), [[0, 1 / 3, 1 / 3, 1 / 3]])


def test_exactly_k_takes_the_lowest_index_of_a_tie():
    close(top_k_renorm_prob(TIED, 2, ties="exactly_k"), [[0, 0.5, 0.5, 0]])
    assert ids(top_k_kept(TIED, 1, ties="exactly_k")) == [[1]]


@pytest.mark.parametrize("k", [5, 6, 2**30])
def test_k_of_the_vocabulary_or_more_keeps_all(k):
    close(top_k_renorm_prob(2 * ROW, k), ROW)


@pytest.mark.parametrize("k", [0, -1])
def test_k_below_one_is_one_or_off(k):
    assert ids(top_k_kept(ROW, k)) == [[0]]
    assert ids(top_k_kept(ROW, k, low_k="off")) == [[0, 1, 2, 3, 4]]


def test_each_row_has_its_own_k_and_p():
    rows = np.repeat(ROW, 3, axis=0)
    assert ids(top_k_kept(rows, [3, 1, 2])) == [[0, 1, 2], [0], [0, 1]]
    assert ids(top_p_kept(rows, [0.7, 0.3, 0.99])) == [[0, 1, 2], [0], [0, 1, 2, 3, 4]]


def test_top_p_keeps_the_token_that_crosses_the_mass():
    assert ids(top_p_kept(ROW, 0.6)) == [[0, 1]]  # 0.35 + 0.25 reaches 0.6
    assert ids(top_p_kept(ROW, 0.61)) == [[0, 1, 2]]
    close(top_p_renorm_prob(ROW, 0.61), [[0.35 / 0.8, 0.25 / 0.8, 0.2 / 0.8, 0, 0]])


def test_top_p_ties_by_rule():
    assert ids(top_p_kept(TIED, 0.5, ties="all")) == [[1, 2, 3]]
    assert ids(top_p_kept(TIED, 0.5, ties="exactly_k")) == [[1, 2]]


def test_mass_of_a_row_that_does_not_sum_to_one():
    double = 2 * ROW
    assert ids(top_p_kept(double, 0.7, mass="relative")) == [[0, 1, 2]]  # 1.4 of 2
    assert ids(top_p_kept(double, 0.7, mass="absolute")) == [[0]]  # 0.7 of 0.7
    assert ids(top_p_kept(double, 0.7, mass="discarded")) == [[0, 1, 2, 3]]  # 2 - 0.3 = 1.7
    assert ids(top_p_kept(0.5 * ROW, 0.7, mass="absolute")) == [[0, 1, 2, 3, 4]]  # never reached


def test_discarded_mass_differs_from_kept_mass_at_the_boundary():
    row = np.array([[0.5, 0.25, 0.25]])
    assert ids(top_p_kept(row, 0.5)) == [[0]]
    assert ids(top_p_kept(row, 0.5, mass="discarded")) == [[0, 1, 2]]  # more than 0.5, ties kept


def test_both_filters_in_order_differ_from_the_mirrored_rule():
    """sglang#36173: p = .82 on .35, .25, .20, .05 of sum .85 after k = 4."""
    row = np.array([[0.35, 0.25, 0.20, 0.05, 0.05, 0.05, 0.05]])
    row[0, 3:] = [0.051, 0.05, 0.05, 0.049]
    kept = top_p_kept(top_k_renorm_prob(row, 4), 0.82)
    assert ids(kept) == [[0, 1, 2]]  # 0.8 / 0.851 = 0.94
    assert ids(top_p_kept(row, 0.82)) == [[0, 1, 2, 3]]


@pytest.mark.parametrize("p", [0.0, -1.0])
def test_p_of_zero_keeps_the_maximum(p):
    for mass in ("relative", "absolute", "discarded"):
        assert ids(top_p_kept(ROW, p, mass=mass)) == [[0]]
    assert ids(top_p_kept(TIED, p)) == [[1, 2, 3]]


@pytest.mark.parametrize("p", [1.0, 7.0])
def test_p_of_one_keeps_all(p):
    close(top_p_renorm_prob(2 * ROW, p), ROW)
    assert ids(top_p_kept(0.9 * ROW, p, mass="absolute")) == [[0, 1, 2, 3, 4]]


def test_zero_rows_give_zeros():
    zero = np.zeros((1, 4))
    for out in (top_k_renorm_prob(zero, 2), top_p_renorm_prob(zero, 0.5), min_p(zero, 0.1)):
        close(out, np.zeros((1, 4)))


def test_least_divisor():
    tiny = np.array([[3e-9, 1e-9]])
    close(top_k_renorm_prob(tiny, 1, floor=1e-8), [[0.3, 0.0]])  # flashinfer: 3e-9 / 1e-8
    close(top_k_renorm_prob(tiny, 1), [[1.0, 0.0]])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.25])
def test_a_damaged_row_is_told_and_spoils_no_other(bad):
    rows = np.vstack([ROW, ROW])
    rows[0, 3] = bad
    for filtered in (top_k_renorm_prob, top_p_renorm_prob, min_p):
        out = filtered(rows, 1)
        assert np.isnan(out[0]).all()
        assert np.isfinite(out[1]).all()
        zeros = filtered(rows, 1, damaged="zeros")
        close(zeros[0], np.zeros(5))
    assert ids(top_k_kept(rows, 2)) == [[], [0, 1]]


def test_min_p_is_a_share_of_the_largest():
    assert ids(min_p_kept(ROW, 0.5)) == [[0, 1, 2]]  # threshold 0.175
    close(min_p(ROW, 0.5), [[0.35 / 0.8, 0.25 / 0.8, 0.2 / 0.8, 0, 0]])
    assert ids(min_p_kept(ROW, 0.0)) == [[0, 1, 2, 3, 4]]
    assert ids(min_p_kept(TIED, 1.0)) == [[1, 2, 3]]


def test_inputs_are_not_written():
    row, k, p = ROW.copy(), np.array([2]), np.array([0.5])
    top_k_renorm_prob(row, k)
    top_p_renorm_prob(row, p)
    min_p(row, p)
    close(row, ROW)
    assert (k.tolist(), p.tolist()) == ([2], [0.5])


def test_wrong_arguments_are_refused():
    with pytest.raises(InputError, match=r"top_k has shape \(3,\) for 1 rows"):
        top_k_renorm_prob(ROW, [1, 2, 3])
    with pytest.raises(InputError, match=r"top_k holds 1\.5: k must be a whole number"):
        top_k_renorm_prob(ROW, 1.5)
    with pytest.raises(InputError, match="top_p holds NaN"):
        top_p_renorm_prob(ROW, math.nan)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.25])
def test_a_damaged_row_keeps_nothing_and_the_next_all_that_is_its_own(bad):
    rows = np.vstack([ROW, ROW, TIED.repeat(2)[1:6]])
    rows[0, 3] = bad
    rows[2] /= rows[2].sum()

    assert ids(top_p_kept(rows, 0.6)) == [[], [0, 1], [1, 2, 3, 4]]
    assert ids(min_p_kept(rows, 0.5)) == [[], [0, 1, 2], [1, 2, 3, 4]]
    out = top_p_renorm_prob(rows, 0.6, damaged="zeros")
    close(out[:2], [[0.0] * 5, [0.35 / 0.6, 0.25 / 0.6, 0, 0, 0]])
    close(out[2], [0.0, 0.25, 0.25, 0.25, 0.25])


def test_a_share_above_one_keeps_the_maximum():
    assert ids(min_p_kept(TIED, 1.5)) == [[1, 2, 3]]
    assert ids(min_p_kept(ROW, 7.0)) == [[0]]


def test_rows_of_one_id_and_of_none():
    one, none = np.array([[0.25]]), np.empty((2, 0))
    for filtered, share in ((top_k_renorm_prob, 1), (top_p_renorm_prob, 0.5), (min_p, 0.5)):
        close(filtered(one, share), [[1.0]])
    for kept in (top_k_kept(none, 1), top_p_kept(none, 0.5), min_p_kept(none, 0.5)):
        assert kept.shape == (2, 0)
