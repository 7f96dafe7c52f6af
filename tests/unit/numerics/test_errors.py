"""Relative L2, scale fits and the worst place, against hand-made numbers and least squares."""

import ml_dtypes
import numpy as np
import pytest

from tests.measured import assert_measured
from validate.errors import InputError
from validate.numerics import max_abs_err, mismatch_share, nmse, rel_l2, scale_fit, worst_index


def test_rel_l2_by_hand():
    # ||(0, 1)|| / ||(3, 4)|| = 1/5; second row: ||(6, 8)|| / ||(6, 8)|| = 1.
    ref = np.array([[3.0, 4.0], [6.0, 8.0]])
    cand = np.array([[3.0, 5.0], [0.0, 0.0]])

    assert_measured(rel_l2(ref, cand, 1), [0.2, 1.0], atol=0, rtol=1e-15)
    # All: sqrt(1 + 100) / sqrt(25 + 100).
    assert_measured(rel_l2(ref, cand), np.sqrt(101 / 125), atol=0, rtol=1e-15)
    assert_measured(nmse(ref, cand), 101 / 125, atol=0, rtol=1e-15)


def test_rel_l2_is_relative_to_ref_not_cand():
    assert float(rel_l2(np.array([1.0]), np.array([3.0]))) == 2.0
    assert_measured(rel_l2(np.array([3.0]), np.array([1.0])), 2 / 3, atol=0, rtol=1e-15)


def test_rel_l2_of_zeros():
    zero, one = np.zeros(2), np.ones(2)

    assert float(rel_l2(zero, zero)) == 0.0
    assert float(rel_l2(zero, one)) == np.inf


def test_rel_l2_neither_overflows_nor_vanishes():
    assert_measured(rel_l2(np.full(4, 1e200), np.full(4, 1.5e200)), 0.5, atol=0, rtol=1e-15)
    assert_measured(rel_l2(np.full(4, 1e-200), np.full(4, 1.5e-200)), 0.5, atol=0, rtol=1e-15)


def test_rel_l2_reads_bfloat16_exactly():
    ref = np.array([1.0], dtype=ml_dtypes.bfloat16)
    cand = np.array([1.0078125], dtype=ml_dtypes.bfloat16)

    assert float(rel_l2(ref, cand)) == 2.0**-7


def test_max_abs_err_by_hand():
    ref = np.array([[1.0, 2.0], [3.0, 4.0]])
    cand = np.array([[1.0, 0.0], [3.5, 4.0]])

    assert max_abs_err(ref, cand, 1).tolist() == [2.0, 0.5]


def test_mismatch_share_adds_both_tolerances():
    ref = np.array([100.0, 100.0, 0.0, 0.0])
    # Limits 0.1 + 0.01 * |ref| = 1.1, 1.1, 0.1, 0.1: the second and the fourth are outside.
    cand = np.array([101.0, 101.2, 0.1, 0.2])

    assert mismatch_share(ref, cand, atol=0.1, rtol=0.01) == 0.5


def test_mismatch_share_counts_what_is_outside():
    """Of four values one is off by 1."""
    assert mismatch_share(np.zeros(4), np.array([0.0, 0.0, 1.0, 0.0]), atol=0.5, rtol=0.0) == 0.25


def test_scale_fit_against_least_squares():
    rng = np.random.default_rng(7)
    ref = rng.normal(size=(5, 3))
    cand = 1.25 * ref + 0.5 + 0.01 * rng.normal(size=(5, 3))

    fit = scale_fit(ref, cand, 0)

    for head in range(3):
        column = ref[:, head]
        alone = np.linalg.lstsq(column[:, None], cand[:, head], rcond=None)[0]
        line = np.linalg.lstsq(np.stack([column, np.ones(5)], 1), cand[:, head], rcond=None)[0]
        assert_measured(fit.scale[head], alone[0], atol=0, rtol=1e-12)
        assert_measured(fit.slope[head], line[0], atol=0, rtol=1e-12)
        assert_measured(fit.offset[head], line[1], atol=1e-14, rtol=1e-12)


def test_scale_fit_of_equal_sides_is_one():
    ref = np.array([1.0, 2.0, 4.0])

    fit = scale_fit(ref, ref)

    assert (float(fit.scale), float(fit.slope), float(fit.offset)) == (1.0, 1.0, 0.0)


def test_scale_fit_is_undefined_without_signal():
    assert np.isnan(scale_fit(np.zeros(3), np.ones(3)).scale)
    assert np.isnan(scale_fit(np.ones(3), np.ones(3)).slope)


def test_scale_fit_regresses_cand_on_ref():
    # <ref, cand> / <ref, ref> = (1*2 + 1*0) / 2 = 1; the other way round it would be 2/4.
    assert float(scale_fit(np.array([1.0, 1.0]), np.array([2.0, 0.0])).scale) == 1.0


def test_worst_index_takes_the_first_of_equals():
    assert worst_index(np.array([[1.0, 3.0], [3.0, 2.0]])) == (0, 1)


def test_worst_index_accepts_infinity_and_refuses_nan_and_nothing():
    assert worst_index(np.array([1.0, np.inf])) == (1,)
    with pytest.raises(InputError, match="1 of 2 values are NaN"):
        worst_index(np.array([1.0, np.nan]))
    with pytest.raises(InputError, match="is empty"):
        worst_index(np.zeros((0, 3)))


@pytest.mark.parametrize("measure", [rel_l2, nmse, max_abs_err, scale_fit])
def test_refusals_name_the_side(measure):
    ref = np.ones((2, 2))
    bad = np.array([[1.0, 1.0], [np.nan, 1.0]])

    with pytest.raises(InputError, match=r"cand holds 1 of 4 .* the first at \(1, 0\)"):
        measure(ref, bad)
    with pytest.raises(InputError, match="ref holds 1 of 4"):
        measure(bad, ref)
    with pytest.raises(InputError, match=r"ref has shape \(2, 2\), cand has shape \(1, 2\)"):
        measure(ref, ref[:1])
    with pytest.raises(InputError, match="nothing to compare"):
        measure(np.zeros((0, 2)), np.zeros((0, 2)))
