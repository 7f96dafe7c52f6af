"""Interval estimators against closed forms, tables and scipy.stats."""

import math

import numpy as np
import pytest
import scipy.stats

from tests.measured import assert_measured
from validate.errors import InputError
from validate.schema import Levels
from validate.stats import (
    abs_mean_limits,
    floor_limits,
    geometric_ratio,
    mean_limits,
    proportion_limits,
    quantile,
    quantile_limits,
    quantile_n_min,
    ratio_limits,
)

LEVELS = Levels(low=0.99, high=0.95)
SKEWED = np.exp(np.random.default_rng(8).normal(size=48))


class TestQuantile:
    @pytest.mark.parametrize(("q", "expected"), [(0.9, 29), (0.95, 59), (0.99, 299), (0.5, 5)])
    def test_n_min(self, q, expected):
        """``ceil(ln 0.05 / ln q)``; 1 - 0.9^28 = 0.948 and 1 - 0.9^29 = 0.953."""
        assert quantile_n_min(q, 0.95) == expected

    def test_one_unit_below_n_min_there_is_no_upper_limit(self):
        values = list(range(28))

        assert quantile_limits(values, q=0.9, levels=LEVELS).high is None
        assert quantile_limits([*values, 28], q=0.9, levels=LEVELS).high == 28.0

    def test_a_hundred_units_by_the_binomial(self):
        """The upper 95 % limit of p90 is x(96), the lower one x(85).

        P(B(100, 0.9) <= 94) = 0.942 < 0.95 <= P(B <= 95) = 0.976 and
        P(B >= 85) = 0.960 >= 0.95 > P(B >= 86) = 0.927.
        """
        found = quantile_limits(np.arange(1.0, 101.0), q=0.9, levels=Levels(low=0.95, high=0.95))

        assert (found.low, found.high) == (85.0, 96.0)

    @pytest.mark.parametrize("n", [29, 30, 48, 77, 200])
    @pytest.mark.parametrize("q", [0.5, 0.9])
    def test_ranks_follow_the_binomial_of_scipy(self, n, q):
        law = scipy.stats.binom(n, q)
        found = quantile_limits(np.arange(1.0, n + 1.0), q=q, levels=LEVELS)

        assert found.high is not None
        assert found.low is not None
        assert law.cdf(found.high - 1) >= 0.95 > law.cdf(found.high - 2)
        assert law.sf(found.low - 1) >= 0.99 > law.sf(found.low)

    def test_the_value_lies_between_its_limits(self):
        found = quantile_limits(SKEWED, q=0.9, levels=LEVELS)
        value = quantile(SKEWED, q=0.9)

        assert found.low is not None
        assert found.high is not None
        assert value is not None
        assert found.low <= value <= found.high
        assert found.method == "order statistic"
        assert (found.low_level, found.high_level) == (0.99, 0.95)

    def test_value_is_an_order_statistic(self):
        # Rank ceil(10 * 0.9) = 9 of ten values, in any order.
        assert quantile([5, 1, 9, 3, 7, 2, 8, 4, 10, 6], q=0.9) == 9.0
        assert quantile([], q=0.9) is None

    def test_nothing_has_no_limits(self):
        found = quantile_limits([], q=0.9, levels=LEVELS)

        assert (found.low, found.high) == (None, None)

    def test_refusals(self):
        with pytest.raises(InputError, match=r"`values` holds 1 of 2 .* the first at 1: nan"):
            quantile_limits([0.0, math.nan], q=0.9, levels=LEVELS)
        with pytest.raises(InputError, match=r"`q` must lie strictly between 0 and 1, got 1.0"):
            quantile([1.0], q=1.0)
        with pytest.raises(InputError, match=r"`levels.high` must lie strictly .* got nan"):
            quantile_limits([1.0], q=0.5, levels=Levels(low=0.9, high=math.nan))


class TestProportion:
    @pytest.mark.parametrize(("count", "n"), [(0, 40), (1, 40), (7, 40), (39, 40), (40, 40)])
    def test_against_scipy(self, count, n):
        found = proportion_limits(count, n, levels=LEVELS)

        upper = scipy.stats.binomtest(count, n, alternative="less").proportion_ci(0.95, "exact")
        lower = scipy.stats.binomtest(count, n, alternative="greater").proportion_ci(0.99, "exact")
        assert_measured(found.high, upper.high, atol=0, rtol=1e-9)
        assert_measured(found.low, lower.low, atol=1e-300, rtol=1e-9)

    def test_no_events_closed_form(self):
        # (1 - p)^n = 0.05 at the upper limit.
        found = proportion_limits(0, 59, levels=LEVELS)

        assert_measured(found.high, 1 - 0.05 ** (1 / 59), atol=0, rtol=1e-12)
        assert found.low == 0.0

    def test_no_units_no_limits(self):
        found = proportion_limits(0, 0, levels=LEVELS)

        assert (found.low, found.high) == (None, None)

    @pytest.mark.parametrize(("count", "n"), [(3, 2), (-1, 2)])
    def test_refuses_impossible_counts(self, count, n):
        with pytest.raises(InputError, match=f"got count={count} and n={n}"):
            proportion_limits(count, n, levels=LEVELS)


class TestMean:
    def test_against_scipy(self):
        values = [1.0, 2.5, -0.5, 3.0]
        found = mean_limits(values, levels=LEVELS)

        lower = scipy.stats.ttest_1samp(values, 0, alternative="greater").confidence_interval(0.99)
        upper = scipy.stats.ttest_1samp(values, 0, alternative="less").confidence_interval(0.95)
        assert_measured([found.low, found.high], [lower.low, upper.high], atol=0, rtol=1e-12)
        assert found.method == "t"

    def test_by_table(self):
        """Student's table: t(0.95; 3) = 2.3534; values with mean 1.5 and s^2 = 5/3."""
        found = mean_limits([0.0, 1.0, 2.0, 3.0], levels=LEVELS)

        assert_measured(found.high, 1.5 + 2.3534 * math.sqrt(5 / 12), atol=2e-4, rtol=0)

    @pytest.mark.parametrize("values", [[], [1.0]])
    def test_undefined_below_two(self, values):
        found = mean_limits(values, levels=LEVELS)

        assert (found.low, found.high) == (None, None)
        assert found.method == f"t (undefined: {len(values)} of 2 units)"

    def test_no_spread(self):
        found = mean_limits([0.1, 0.1, 0.1], levels=LEVELS)

        assert (found.low, found.high) == (0.1, 0.1)
        assert found.method == "t (all values equal)"

    def test_refuses_infinity(self):
        with pytest.raises(InputError, match="`values` holds 1 of 2"):
            mean_limits([math.inf, 1.0], levels=LEVELS)


class TestAbsMean:
    def test_upper_is_the_greater_of_two_one_sided_limits(self):
        values = np.array([-1.0, -2.0, -1.5, 0.5])
        found = abs_mean_limits(values, levels=LEVELS)

        lower = scipy.stats.ttest_1samp(values, 0, alternative="greater").confidence_interval(0.95)
        assert_measured(found.high, -lower.low, atol=0, rtol=1e-12)

    def test_lower_splits_its_error_between_the_directions(self):
        values = np.array([5.0, 5.5, 6.0, 5.2])
        found = abs_mean_limits(values, levels=LEVELS)

        lower = scipy.stats.ttest_1samp(values, 0, alternative="greater").confidence_interval(0.995)
        assert_measured(found.low, lower.low, atol=0, rtol=1e-12)

    def test_sign_does_not_matter_and_lower_stops_at_zero(self):
        values = np.array([1.0, -1.0, 0.5, 0.1])
        up, down = (abs_mean_limits(s * values, levels=LEVELS) for s in (1.0, -1.0))

        assert up == down
        assert up.low == 0.0

    def test_edges(self):
        assert abs_mean_limits([3.0], levels=LEVELS).high is None
        assert abs_mean_limits([-3.0, -3.0], levels=LEVELS).high == 3.0
        assert abs_mean_limits([0.0, 0.0], levels=LEVELS).low == 0.0
        with pytest.raises(InputError, match="`differences` holds"):
            abs_mean_limits([math.nan, 1.0], levels=LEVELS)


class TestRatio:
    ABOVE = (2.0, 3.0, 5.0, 1.0)
    BELOW = (1.0, 2.0, 2.0, 1.5)

    def test_against_scipy_on_the_log(self):
        found = ratio_limits(self.ABOVE, self.BELOW, levels=LEVELS)

        logs = np.log(self.ABOVE), np.log(self.BELOW)
        lower = scipy.stats.ttest_rel(*logs, alternative="greater").confidence_interval(0.99)
        upper = scipy.stats.ttest_rel(*logs, alternative="less").confidence_interval(0.95)
        expected = [math.exp(lower.low), math.exp(upper.high)]
        assert_measured([found.low, found.high], expected, atol=0, rtol=1e-12)
        assert found.method == "paired t on the log"

    def test_geometric_mean(self):
        # 2 * 1.5 * 2.5 * 2/3 = 5, to the power of a quarter.
        assert_measured(geometric_ratio(self.ABOVE, self.BELOW), 5**0.25, atol=0, rtol=1e-14)
        assert geometric_ratio([], []) is None

    def test_equal_errors_give_exactly_one(self):
        found = ratio_limits(self.ABOVE, self.ABOVE, levels=LEVELS)

        assert (found.low, found.high) == (1.0, 1.0)
        assert "all values equal" in found.method

    def test_one_pair_is_undefined(self):
        assert ratio_limits([1.0], [2.0], levels=LEVELS).high is None

    def test_refusals(self):
        with pytest.raises(InputError, match=r"`denominators` must be positive .* got 0.0 at 1"):
            ratio_limits([1.0, 1.0], [1.0, 0.0], levels=LEVELS)
        with pytest.raises(InputError, match="`numerators` has 1 values, `denominators` 2"):
            ratio_limits([1.0], [1.0, 2.0], levels=LEVELS)
        with pytest.raises(InputError, match="`numerators` holds 1 of 1"):
            geometric_ratio([math.nan], [1.0])


class TestFloor:
    def test_t_on_the_log(self):
        found = floor_limits([1e-4, 2e-4, 4e-4], levels=LEVELS)

        # Logs are ln 2 apart: s = ln 2, se = ln 2 / sqrt 3, t(0.95; 2) = 2.91999.
        expected = 2e-4 * math.exp(2.919985580 * math.log(2) / math.sqrt(3))
        assert_measured(found.high, expected, atol=0, rtol=1e-8)
        assert found.method == "t on the log"

    def test_two_repeats_are_not_enough(self):
        found = floor_limits([1e-4, 1e-4], levels=LEVELS)

        assert (found.low, found.high) == (None, None)
        assert "undefined: 2 of 3 repeats" in found.method

    def test_all_zero(self):
        found = floor_limits([0.0, 0.0, 0.0], levels=LEVELS)

        assert found.high == 0.0
        assert found.method == "every repeat measured exactly 0"

    def test_some_zero_falls_back_to_the_maximum_at_its_own_level(self):
        found = floor_limits([0.0, 3e-4, 1e-4], levels=LEVELS)

        assert found.high == 3e-4
        assert found.high_level == 0.875
        assert "maximum over repeats" in found.method

    def test_equal_repeats(self):
        found = floor_limits([2e-4] * 4, levels=LEVELS)

        assert_measured(found.high, 2e-4, atol=0, rtol=1e-14)

    def test_refusals(self):
        with pytest.raises(InputError, match="must not be negative"):
            floor_limits([1.0, 1.0, -1.0], levels=LEVELS)
        with pytest.raises(InputError, match="`values` holds 1 of 3"):
            floor_limits([1.0, 1.0, math.nan], levels=LEVELS)


def test_matrices_are_refused():
    with pytest.raises(InputError, match=r"one-dimensional, got shape \(2, 2\)"):
        mean_limits(np.ones((2, 2)), levels=LEVELS)
