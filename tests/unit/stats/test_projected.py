"""How many units would do, against the limits themselves at that n and one below."""

import math

import numpy as np
import pytest
from scipy import stats as reference

from tests.measured import assert_measured
from validate.errors import InputError
from validate.schema import Interval, Levels
from validate.stats import (
    abs_median,
    abs_median_limits,
    poisson_rate_limits,
    proportion_limits,
    quantile_limits,
    units_for_mean,
    units_for_rate,
    units_for_share,
    units_needed,
)

LEVELS = Levels(low=0.99, high=0.95)


class TestShare:
    @pytest.mark.parametrize(
        ("share", "limit"), [(0.0, 0.05), (0.0, 0.25), (0.02, 0.1), (0.2, 0.25), (1 / 3, 0.5)]
    )
    def test_the_limit_is_inside_at_that_n_and_at_no_smaller_one(self, share, limit):
        n = units_for_share(share, limit=limit, level=0.95)

        assert n is not None
        for units in range(1, n + 1):
            count = math.ceil(share * units - 1e-9)
            high = proportion_limits(count, units, levels=LEVELS).high
            assert (high is not None and high <= limit) is (units == n)

    def test_a_share_at_the_limit_never_gets_inside(self):
        assert units_for_share(0.1, limit=0.1, level=0.95) is None
        assert units_for_share(0.2, limit=0.1, level=0.95) is None

    def test_a_need_beyond_a_million_is_no_plan(self):
        assert units_for_share(0.0, limit=1e-8, level=0.95) is None
        assert units_for_share(0.0, limit=1e-5, level=0.95) == 299572  # ln 0.05 / ln(1 - 1e-5)

    @pytest.mark.parametrize("bad", [0.0, 1.0, math.nan, -1.0])
    def test_limits_and_levels_out_of_range(self, bad):
        with pytest.raises(InputError, match="limit"):
            units_for_share(0.0, limit=bad, level=0.95)
        with pytest.raises(InputError, match="level"):
            units_for_share(0.0, limit=0.5, level=bad)


class TestRate:
    @pytest.mark.parametrize("events", [0, 1, 7, 40])
    def test_events_are_told_from_the_limit_and_its_own_rate(self, events):
        """Ten prompts and half a unit each; at the n named the limit is inside, one below not."""
        high = poisson_rate_limits(events, exposure=5.0, levels=LEVELS).high
        assert high is not None
        rate = events / 5.0
        limit = rate + 0.4 * (high - rate)
        n = units_for_rate(rate, high=high, n=10, limit=limit, level=0.95)

        assert n is not None
        counts = [math.ceil(rate * units / 2 - 1e-9) for units in (n - 1, n)]
        below, at = (
            poisson_rate_limits(count, exposure=units / 2, levels=LEVELS).high
            for count, units in zip(counts, (n - 1, n), strict=True)
        )
        assert at <= limit
        assert below > limit or counts[0] < counts[1]

    def test_the_same_limit_needs_the_same_units(self):
        high = poisson_rate_limits(7, exposure=0.5, levels=LEVELS).high
        assert high is not None

        assert units_for_rate(14.0, high=high, n=20, limit=high, level=0.95) == 20

    def test_a_rate_at_the_limit(self):
        assert units_for_rate(2.0, high=3.0, n=10, limit=2.0, level=0.95) is None

    def test_limits_out_of_range(self):
        with pytest.raises(InputError, match="high"):
            units_for_rate(0.0, high=math.inf, n=10, limit=2.0, level=0.95)


class TestMean:
    def test_students_limit_is_inside_at_that_n_alone(self):
        """Spread 1, mean 0: t(n - 1) / sqrt n <= 0.5."""
        high = reference.t.ppf(0.95, 7) / math.sqrt(8)
        n = units_for_mean(0.0, high=high, n=8, limit=0.5, level=0.95)

        assert n is not None
        assert reference.t.ppf(0.95, n - 1) / math.sqrt(n) <= 0.5
        assert reference.t.ppf(0.95, n - 2) / math.sqrt(n - 1) > 0.5

    def test_one_unit_or_a_mean_at_the_limit_tell_nothing(self):
        assert units_for_mean(0.0, high=1.0, n=1, limit=0.5, level=0.95) is None
        assert units_for_mean(0.5, high=1.0, n=8, limit=0.5, level=0.95) is None
        assert units_for_mean(0.0, high=1e9, n=8, limit=0.5, level=0.95) is None


class TestNeeded:
    def test_a_quantile_by_what_lies_beyond(self):
        """60 prompts of which 4 lie beyond 0.5: as many of 100 allow 6 (SciPy), so 100 do not do."""
        values = [0.1] * 56 + [0.9] * 4
        found = quantile_limits(values, q=0.9, levels=LEVELS)
        n = units_needed(found, value=0.1, n=60, limit=0.5)

        assert found.high == 0.9
        assert n is not None
        beyond = math.ceil(4 / 60 * n - 1e-9)
        assert reference.binom.cdf(beyond, n, 0.1) <= 0.05
        again = [0.1] * (n - beyond) + [0.9] * beyond
        assert quantile_limits(again, q=0.9, levels=LEVELS).high == 0.1

    def test_too_few_units_for_any_limit(self):
        found = quantile_limits([0.1] * 5, q=0.9, levels=LEVELS)

        assert units_needed(found, value=0.1, n=5, limit=0.5) == 29

    def test_no_units_at_all(self):
        found = quantile_limits([], q=0.9, levels=LEVELS)

        assert units_needed(found, value=0.1, n=0, limit=0.5) == 29

    def test_the_median_of_differences_either_way(self):
        """Two of twelve far up, three far down: the three count."""
        values = [0.0] * 7 + [9.0] * 2 + [-9.0] * 3
        found = abs_median_limits(values, levels=LEVELS)

        assert found.above == (9.0, 9.0, 9.0)
        assert units_needed(found, value=0.0, n=12, limit=1.0) == units_for_share(
            0.25, limit=0.5, level=0.95
        )

    def test_a_share_of_everything_is_no_limit(self):
        share = Interval(
            low=0.0, low_level=0.99, high=1.0, high_level=0.95, method="Clopper-Pearson"
        )

        assert units_needed(share, value=0.5, n=3, limit=1.5) is None

    def test_methods_that_are_never_right(self):
        mean = Interval(low=0.0, low_level=0.99, high=1.0, high_level=0.95, method="t")

        assert units_needed(mean, value=0.1, n=8, limit=0.5) is None


class TestAbsMedian:
    def test_by_hand(self):
        """Five units: P(B(5, 1/2) = 5) = 1/32, so the extremes are 96.9 % limits."""
        found = abs_median_limits([-3.0, -2.0, -1.0, 0.5, 1.0], levels=LEVELS)

        assert abs_median([-3.0, -2.0, -1.0, 0.5, 1.0]) == 1.0
        assert (found.low, found.high) == (None, 3.0)
        assert abs_median_limits([1.0] * 4, levels=LEVELS).high is None

    def test_equal_values_are_exact(self):
        found = abs_median_limits([0.0] * 9, levels=LEVELS)

        assert (found.low, found.high, found.above) == (0.0, 0.0, ())

    def test_the_sign_does_not_matter(self):
        x = np.random.default_rng(3).exponential(size=41) - 0.4
        one, other = abs_median_limits(x, levels=LEVELS), abs_median_limits(-x, levels=LEVELS)

        assert one == other
        assert abs_median(x) == abs_median(-x)

    def test_a_median_on_either_side_of_zero_is_bounded_from_below(self):
        """Twelve at 1 to 12: rank 2 for half of 1 %, rank 10 for 95 %."""
        found = abs_median_limits([-float(i) for i in range(1, 13)], levels=LEVELS)

        assert (found.low, found.high) == (2.0, 10.0)

    def test_no_units(self):
        assert abs_median([]) is None
        assert abs_median_limits([], levels=LEVELS).high is None

    def test_bad_input(self):
        with pytest.raises(InputError, match="not finite"):
            abs_median_limits([1.0, math.nan], levels=LEVELS)
        with pytest.raises(InputError, match=r"levels\.low"):
            abs_median_limits([1.0, 2.0], levels=Levels(low=1.0))

    def test_a_skewed_law_misses_no_oftener_than_stated(self):
        """Lognormal sigma 2 with its median at 1: 2,000 draws of 31, four standard errors."""
        rng = np.random.default_rng(11)
        levels = Levels(low=0.975, high=0.95)
        drawn = rng.lognormal(sigma=2.0, size=(2000, 31))
        found = [abs_median_limits(x, levels=levels) for x in drawn]
        ends = [(f.low, f.high) for f in found if f.low is not None and f.high is not None]
        misses = [
            np.mean([high < 1.0 for _, high in ends]),
            np.mean([low > 1.0 for low, _ in ends]),
        ]

        assert len(ends) == len(found)
        assert_measured(misses, [0.0, 0.0], atol=0.05 + 4 * math.sqrt(0.05 * 0.95 / 2000), rtol=0)
        assert misses[1] <= 0.025 + 4 * math.sqrt(0.025 * 0.975 / 2000)
