"""Clustered, bootstrapped and bounded limits, and the tests against a margin."""

import math
import time

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from tests.measured import assert_measured
from validate.errors import InputError
from validate.schema import Levels
from validate.stats import (
    bernstein_limits,
    betting_limits,
    bootstrap_limits,
    cluster_mean_limits,
    cluster_ratio_limits,
    equivalence_mean,
    equivalence_proportion,
    mean_limits,
    noninferiority_mean,
    noninferiority_proportion,
    paired_proportion_limits,
    resamples_needed,
)
from validate.stats.noninferior import tango_z

LEVELS = Levels(low=0.99, high=0.95)


class TestCluster:
    def test_equal_clusters_are_a_t_interval_of_their_means(self):
        rng = np.random.default_rng(1)
        table = rng.normal(size=(12, 1)) + rng.normal(size=(12, 5))
        found = cluster_mean_limits(
            table.ravel(), clusters=[i for i in range(12) for _ in range(5)], levels=LEVELS
        )
        expected = mean_limits(table.mean(axis=1), levels=LEVELS)

        assert_measured([found.low, found.high], [expected.low, expected.high], atol=1e-12, rtol=0)

    def test_unequal_clusters_by_hand(self):
        """Sums 2, 9 over sizes 1, 3: mean 11/4, residuals -3/4, 3/4, error sqrt(2 * 9/8) / 4."""
        found = cluster_mean_limits(
            [2.0, 2.0, 3.0, 4.0], clusters=["a", "b", "b", "b"], levels=Levels(low=0.9, high=0.9)
        )
        half = scipy.stats.t(1).ppf(0.9) * math.sqrt(2 * 9 / 8) / 4

        assert_measured([found.low, found.high], [2.75 - half, 2.75 + half], atol=1e-12, rtol=0)

    def test_ratio_of_sums_by_the_same_formula(self):
        by_ratio = cluster_ratio_limits([2.0, 9.0], [1.0, 3.0], levels=LEVELS)
        by_mean = cluster_mean_limits([2.0, 2.0, 3.0, 4.0], clusters=[0, 1, 1, 1], levels=LEVELS)

        assert by_ratio.high == by_mean.high

    def test_one_cluster_and_no_spread_have_no_limits(self):
        one = cluster_mean_limits([1.0, 2.0], clusters=["a", "a"], levels=LEVELS)
        flat = cluster_mean_limits([1.1] * 6, clusters=[0, 0, 0, 1, 1, 2], levels=LEVELS)
        none = cluster_mean_limits([], clusters=[], levels=LEVELS)

        assert (one.low, one.high, flat.low, flat.high, none.high) == (None,) * 5
        assert one.method == "clustered t (undefined: 1 of 2 clusters)"
        assert flat.method == "clustered t (undefined: no spread)"

    def test_bad_input(self):
        with pytest.raises(InputError, match="`values` holds 2 units and `clusters` 1"):
            cluster_mean_limits([1.0, 2.0], clusters=["a"], levels=LEVELS)
        with pytest.raises(InputError, match=r"`denominators` must be positive, got 0.0 at 1"):
            cluster_ratio_limits([1.0, 2.0], [1.0, 0.0], levels=LEVELS)
        with pytest.raises(InputError, match="not finite"):
            cluster_mean_limits([math.nan], clusters=["a"], levels=LEVELS)
        with pytest.raises(InputError, match=r"`levels.low`"):
            cluster_mean_limits([1.0, 2.0], clusters=[0, 1], levels=Levels(low=1.0))

    def test_ten_thousand_prompts_at_a_small_alpha(self):
        values = np.random.default_rng(2).normal(size=160_000)
        clusters = np.repeat(np.arange(10_000), 16).tolist()
        start = time.perf_counter()
        found = cluster_mean_limits(values, clusters=clusters, levels=Levels(low=1 - 2.5e-4))

        assert time.perf_counter() - start < 2.0
        assert found.high is not None


class TestBootstrap:
    def test_resamples(self):
        assert resamples_needed(Levels(low=0.95, high=0.95)) == 2000
        assert resamples_needed(Levels(low=0.99, high=0.95)) == 10_000

    def test_two_values_by_enumeration(self):
        """Resamples of (0, 1): means 0, 1/2, 1 with 1/4, 1/2, 1/4; percentile limits 0 and 1."""
        found = bootstrap_limits(
            [0.0, 1.0], levels=LEVELS, rng=np.random.default_rng(0), method="percentile"
        )

        assert (found.low, found.high) == (0.0, 1.0)

    def test_resamples_without_spread_give_no_studentised_limit(self):
        """Half of the resamples of two units are constant: their pivot is infinite."""
        found = bootstrap_limits([0.0, 1.0], levels=LEVELS, rng=np.random.default_rng(0))

        assert (found.low, found.high) == (None, None)

    def test_close_to_t_for_normal_numbers(self):
        values = np.random.default_rng(3).normal(size=200)
        found = bootstrap_limits(values, levels=LEVELS, rng=np.random.default_rng(4))
        expected = mean_limits(values, levels=LEVELS)

        assert_measured([found.low, found.high], [expected.low, expected.high], atol=0.02, rtol=0)
        assert found.method == "studentised bootstrap, 10000 resamples"

    def test_upper_limit_of_a_right_tail_is_further_than_t(self):
        values = np.exp(np.random.default_rng(5).normal(size=60))
        found = bootstrap_limits(values, levels=LEVELS, rng=np.random.default_rng(4))
        plain = mean_limits(values, levels=LEVELS)

        assert found.high is not None
        assert plain.high is not None
        assert found.high > plain.high

    def test_same_seed_same_limits(self):
        one, two = (
            bootstrap_limits([1.0, 2.0, 4.0, 9.0], levels=LEVELS, rng=np.random.default_rng(7))
            for _ in range(2)
        )

        assert one == two

    def test_nothing_to_resample(self):
        rng = np.random.default_rng(0)
        for values, why in (
            ([], "0 of 2 units"),
            ([1.0], "1 of 2 units"),
            ([2.0] * 9, "all values equal"),
        ):
            found = bootstrap_limits(values, levels=LEVELS, rng=rng)
            assert (found.low, found.high) == (None, None)
            assert why in found.method

    def test_too_many_draws_are_refused_with_a_way_out(self):
        with pytest.raises(InputError, match="take `mean_limits` or `cluster_mean_limits`"):
            bootstrap_limits(
                np.arange(10_000.0), levels=Levels(low=1 - 2.5e-4), rng=np.random.default_rng(0)
            )


class TestBounded:
    def test_bernstein_by_hand(self):
        """0 and 1 in equal parts, n = 100: mean 1/2, V = 25/99, L = ln 40 at 95 %."""
        found = bernstein_limits([0.0, 1.0] * 50, levels=Levels(low=0.95))
        need = math.log(40)
        width = math.sqrt(2 * 25 / 99 * need / 100) + 7 * need / (3 * 99)

        assert_measured([found.low, found.high], [0.5 - width, 0.5 + width], atol=1e-12, rtol=0)

    def test_one_bet_by_hand(self):
        """One unit, X = 1, alpha = 1/2: capital 1 + 3/4 (1/m - 1) is 2 at m = 3/7.

        There the stake sqrt(2 ln 2 / (1/4)) = 2.355 is cut to 0.75 / m = 1.75.
        """
        found = betting_limits([1.0], levels=Levels(low=0.5, high=0.5))

        assert_measured(found.low, 3 / 7, atol=1e-12, rtol=0)
        assert found.high == 1.0

    def test_sides_mirror(self):
        values = np.random.default_rng(1).beta(2, 5, size=40)
        one = betting_limits(values, levels=Levels(low=0.9, high=0.99))
        two = betting_limits(1 - values, levels=Levels(low=0.99, high=0.9))

        assert one.low is not None
        assert one.high is not None
        assert_measured([two.high, two.low], [1 - one.low, 1 - one.high], atol=1e-12, rtol=0)

    def test_betting_beats_bernstein_on_small_values(self):
        values = np.random.default_rng(1).beta(1, 40, size=128)
        bet, bern = (f(values, levels=LEVELS) for f in (betting_limits, bernstein_limits))

        assert bet.high is not None
        assert bern.high is not None
        assert values.mean() < bet.high < bern.high < 0.2

    @pytest.mark.parametrize("limits", [betting_limits, bernstein_limits])
    def test_bad_input(self, limits):
        assert limits([], levels=LEVELS).high is None
        for bad in (-0.1, 1.1):
            with pytest.raises(InputError, match=r"`values` must lie in \[0, 1\], got .* at 1"):
                limits([0.5, bad], levels=LEVELS)
        with pytest.raises(InputError, match="not finite"):
            limits([math.nan, 0.5], levels=LEVELS)
        with pytest.raises(InputError, match=r"`levels.high`"):
            limits([0.5, 0.5], levels=Levels(low=0.5, high=math.nan))

    def test_all_equal_keeps_a_width(self):
        for limits in (betting_limits, bernstein_limits):
            found = limits([0.0] * 50, levels=LEVELS)
            assert found.low == 0.0
            assert found.high is not None
            # No bound that holds can beat the exact one, 1 - 0.05^(1/50) = 0.058.
            assert found.high > 0.058


class TestNonInferiority:
    def test_mean_as_scipy(self):
        x = np.random.default_rng(1).normal(-0.1, 1, size=30)
        found = noninferiority_mean(x, margin=0.5)
        expected = scipy.stats.ttest_1samp(x, -0.5, alternative="greater")

        assert_measured(
            [found.statistic, found.p_value],
            [expected.statistic, expected.pvalue],
            atol=0,
            rtol=1e-9,
        )

    def test_tost_takes_the_harder_side(self):
        x = np.random.default_rng(2).normal(0.2, 1, size=30)
        found = equivalence_mean(x, margin=0.5)
        below = scipy.stats.ttest_1samp(x, -0.5, alternative="greater").pvalue
        above = scipy.stats.ttest_1samp(x, 0.5, alternative="less").pvalue

        assert above > below
        assert_measured(found.p_value, above, atol=0, rtol=1e-9)

    @pytest.mark.parametrize("values", [[], [1.0], [0.5] * 8])
    def test_nothing_to_judge_by(self, values):
        for test in (noninferiority_mean, equivalence_mean):
            found = test(values, margin=0.1)
            assert found.p_value is None
            assert found.why_undefined

    @pytest.mark.parametrize("margin", [0.0, -1.0, math.nan, math.inf])
    def test_bad_margin(self, margin):
        with pytest.raises(InputError, match="`margin` must be positive and finite"):
            noninferiority_mean([1.0, 2.0], margin=margin)

    def test_score_at_no_difference_is_mcnemar(self):
        """(gained - lost) / sqrt(gained + lost): 8 and 3 give 5 / sqrt 11."""
        assert_measured(tango_z(3, 8, 50, difference=0.0), 5 / math.sqrt(11), atol=1e-12, rtol=0)

    @pytest.mark.parametrize(("lost", "gained", "n", "gap"), [(7, 3, 60, -0.1), (0, 4, 30, 0.05)])
    def test_score_by_numerical_likelihood(self, lost, gained, n, gap):
        """The nuisance rate maximises the multinomial likelihood; found here by scipy."""

        def loss(rate):
            cells = [(gained, rate + gap), (lost, rate), (n - lost - gained, 1 - 2 * rate - gap)]
            return -sum(k * math.log(p) for k, p in cells if k)

        low, high = max(0.0, -gap) + 1e-12, (1 - gap) / 2 - 1e-12
        rate = scipy.optimize.minimize_scalar(
            loss, bounds=(low, high), method="bounded", options={"xatol": 1e-12}
        ).x
        variance = n * (2 * rate + gap - gap * gap)
        expected = (gained - lost - n * gap) / math.sqrt(variance)

        assert_measured(tango_z(lost, gained, n, difference=gap), expected, atol=1e-4, rtol=0)

    def test_no_discordance_in_closed_form(self):
        """z = sqrt(n m / (1 - m)): the nuisance rate is m itself."""
        found = noninferiority_proportion(0, 0, 990, margin=0.01)

        assert_measured(found.statistic, math.sqrt(990 * 0.01 / 0.99), atol=1e-9, rtol=0)

    def test_limits_invert_the_test(self):
        found = paired_proportion_limits(12, 5, 200, levels=LEVELS)

        assert found.low is not None
        assert found.high is not None
        assert_measured(
            noninferiority_proportion(12, 5, 200, margin=-found.low).p_value,
            0.01,
            atol=1e-9,
            rtol=0,
        )
        assert_measured(tango_z(12, 5, 200, difference=found.high), -1.6448536, atol=1e-6, rtol=0)

    def test_equivalence_is_symmetric(self):
        one = equivalence_proportion(9, 4, 300, margin=0.05)
        two = equivalence_proportion(4, 9, 300, margin=0.05)

        assert one.p_value is not None
        assert_measured(two.p_value, one.p_value, atol=1e-12, rtol=0)

    def test_level_by_enumeration(self):
        """At the margin, 100 pairs, 2 % gained and 7 % lost: within a point of 5 %."""
        n, gained_rate, lost_rate = 100, 0.02, 0.07
        total = 0.0
        for lost in range(31):
            for gained in range(16):
                p = noninferiority_proportion(lost, gained, n, margin=0.05).p_value
                if p is not None and p <= 0.05:
                    cells = [lost, gained, n - lost - gained]
                    total += scipy.stats.multinomial.pmf(
                        cells, n, [lost_rate, gained_rate, 1 - lost_rate - gained_rate]
                    )

        assert 0.03 <= total <= 0.06

    def test_bad_counts(self):
        assert noninferiority_proportion(0, 0, 0, margin=0.1).p_value is None
        assert paired_proportion_limits(0, 0, 0, levels=LEVELS).low is None
        with pytest.raises(InputError, match="add up to 12, more than n=10"):
            noninferiority_proportion(6, 6, 10, margin=0.1)
        with pytest.raises(InputError, match="`margin` must lie strictly between 0 and 1"):
            equivalence_proportion(1, 1, 10, margin=1.0)
