"""Tests of lossless sampling and their power, against tables, SciPy and sums by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from tests.measured import assert_measured
from validate.errors import InputError
from validate.stats import (
    combined_p,
    cvm_power,
    cvm_shift_needed,
    cvm_test,
    group_dispersion,
    lag_products,
    skewed_z,
    z_power,
    z_shift_needed,
)


class TestCvm:
    @pytest.mark.parametrize("shape", [1.0, 0.97, 0.93])
    def test_agrees_with_scipy(self, shape):
        values = np.random.default_rng(4).random(2000) ** shape

        found = cvm_test(values)

        expected = stats.cramervonmises(values, "uniform")
        assert_measured(found.statistic, expected.statistic, atol=1e-12, rtol=1e-12)
        assert_measured(found.p_value, expected.pvalue, atol=1e-9, rtol=0.03)

    @pytest.mark.parametrize(
        ("statistic", "p_value"),
        [(0.34730, 0.1), (0.46136, 0.05), (0.74346, 0.01), (1.16786, 0.001)],
    )
    def test_percentage_points(self, statistic, p_value):
        """Anderson and Darling, Ann. Math. Statist. 23 (1952), table 1."""
        from validate.stats.lossless import _beyond

        assert_measured(_beyond(statistic, 0.0), p_value, atol=0, rtol=0.02)

    def test_too_few_or_equal_values_are_undefined(self):
        assert cvm_test(np.full(19, 0.5)).why_undefined == "19 of 20 values"
        assert cvm_test(np.full(20, 0.5)).why_undefined == "all values equal"

    @pytest.mark.parametrize("value", [-0.1, 1.1])
    def test_outside_the_unit_interval_is_refused(self, value):
        with pytest.raises(InputError, match=r"`values` must lie in \[0, 1\]"):
            cvm_test(np.array([value] + [0.5] * 30))

    def test_power_at_no_shift_is_the_level(self):
        assert_measured(cvm_power(0.0, alpha=1e-4), 1e-4, atol=0, rtol=1e-6)

    def test_shift_needed_inverts_power(self):
        shift = cvm_shift_needed(alpha=3e-4, power=0.95)

        assert_measured(cvm_power(shift, alpha=3e-4), 0.95, atol=1e-9, rtol=0)


class TestZ:
    def test_power_by_hand(self):
        """Phi(2.802 - 1.960) = 0.80; the other tail holds nothing."""
        assert_measured(z_power(2.8016, alpha=0.05), 0.8, atol=1e-4, rtol=0)
        assert_measured(z_shift_needed(alpha=0.05, power=0.8), 2.8016, atol=1e-4, rtol=0)

    @pytest.mark.parametrize("function", [cvm_shift_needed, z_shift_needed])
    def test_power_must_exceed_the_level(self, function):
        with pytest.raises(InputError, match="`power` must exceed `alpha`"):
            function(alpha=0.05, power=0.04)

    def test_without_skewness_it_is_the_plain_z(self):
        found = skewed_z([3.0, 1.0], [2.0, 2.0], 0.0)

        assert found.statistic == 2.0
        assert_measured(found.p_value, 0.0455, atol=1e-4, rtol=0)

    def test_correction_by_hand(self):
        """z = 2, skewness 0.4: 2 - 0.4 (4 - 1) / 6 = 1.8; z = -2: -2.2."""
        low = skewed_z([-4.0], [4.0], 3.2)
        high = skewed_z([4.0], [4.0], 3.2)

        assert_measured(high.p_value, 2 * stats.norm.sf(1.8), atol=1e-12, rtol=0)
        assert_measured(low.p_value, 2 * stats.norm.sf(2.2), atol=1e-12, rtol=0)

    def test_poisson_tails_are_kept(self):
        """200 centred Poisson(0.25) counts: skewness 0.14; an upper tail of 1e-3 stays within a half."""
        n, rate = 200, 0.25
        total = int(stats.poisson.isf(1e-3, n * rate))
        exact = stats.poisson.sf(total - 1, n * rate)

        found = skewed_z([total - n * rate - 0.5], [n * rate], n * rate)
        plain = stats.norm.sf((total - n * rate - 0.5) / math.sqrt(n * rate))

        assert found.p_value is not None
        assert abs(math.log(found.p_value / 2 / exact)) < 0.25
        assert abs(math.log(plain / exact)) > 0.4

    @pytest.mark.parametrize(("third", "defined"), [(4.0, True), (4.1, False), (-4.1, False)])
    def test_no_normal_law_in_sight(self, third, defined):
        """Skewness is third / 4^1.5 = third / 8; 0.5 is the most."""
        assert (skewed_z([1.0], [4.0], third).p_value is not None) == defined

    def test_no_variance(self):
        assert skewed_z([0.0], [0.0], 0.0).why_undefined == "no step has any variance"


class TestPairsAndGroups:
    def test_correlation_by_hand(self):
        """20 pairs at (1, 1): each product is 1/4, 144/12/12 = 3 in units of 1/12; z = 3 sqrt(20)."""
        found = lag_products(np.ones(20), np.ones(20), what="pairs")

        assert_measured(found.statistic, 3 * math.sqrt(20), atol=1e-12, rtol=0)
        assert_measured(found.estimate, 3.0, atol=1e-12, rtol=0)

    def test_too_few_pairs(self):
        assert lag_products(np.ones(19), np.ones(19), what="x").why_undefined == "19 of 20 pairs"

    def test_dispersion_by_hand(self):
        """Five groups of two at 1: each sum is 1, over 2/12: chi-square 6 each, 30 on 5 degrees."""
        found = group_dispersion(np.ones(10), np.repeat(np.arange(5), 2), what="by five")

        assert_measured(found.statistic, 30.0, atol=1e-12, rtol=0)
        assert_measured(found.p_value, stats.chi2.sf(30.0, 5), atol=0, rtol=1e-9)

    def test_groups_of_one_say_nothing(self):
        found = group_dispersion(
            np.ones(12), np.array([*np.repeat(range(4), 2), 5, 6, 7, 8]), what="x"
        )

        assert found.why_undefined == "4 of 5 groups of two or more"


class TestCombined:
    def test_by_hand(self):
        assert combined_p([0.02, 0.03], [0.25, 0.75]) == pytest.approx(0.04)
        assert combined_p([0.9], [0.5]) == 1.0

    @pytest.mark.parametrize(
        ("p_values", "weights"), [([0.1, 0.1], [0.6, 0.5]), ([0.1], [0.0]), ([], [])]
    )
    def test_weights_are_checked(self, p_values, weights):
        with pytest.raises(InputError, match="weights must be positive"):
            combined_p(p_values, weights)
