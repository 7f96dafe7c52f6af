"""Power against R, published tables, closed forms and the decisions themselves."""

import math

import numpy as np
import pytest
import scipy.stats

from tests.measured import assert_measured
from validate.errors import InputError
from validate.schema import Levels
from validate.stats import (
    abs_mean_limits,
    equivalence_mean,
    mde_abs_mean,
    mde_mean_t,
    mde_proportion,
    mde_quantile,
    mde_ratio_t,
    mean_limits,
    n_needed_equivalence_mean,
    n_needed_mean_t,
    n_needed_proportion,
    n_needed_quantile,
    n_needed_ratio_t,
    power_abs_mean_fail,
    power_binomial,
    power_equivalence_mean,
    power_mcnemar,
    power_mean_t,
    power_paired_proportion,
    power_proportion,
    power_quantile,
    power_ratio_t,
    proportion_limits,
    quantile_limits,
)


class TestMeanT:
    @pytest.mark.parametrize(
        ("effect", "n", "alpha"), [(0.5, 27, 0.05), (1.0, 9, 2.5e-4), (0.0, 40, 0.01)]
    )
    def test_noncentral_t_of_scipy(self, effect, n, alpha):
        expected = scipy.stats.nct(n - 1, effect * math.sqrt(n)).sf(
            scipy.stats.t(n - 1).ppf(1 - alpha)
        )

        assert_measured(power_mean_t(effect, sd=1.0, n=n, alpha=alpha), expected, atol=1e-8, rtol=0)

    def test_at_the_limit_power_is_alpha(self):
        assert_measured(power_mean_t(0.0, sd=2.0, n=30, alpha=0.01), 0.01, atol=1e-9, rtol=0)

    @pytest.mark.parametrize(("effect", "expected"), [(0.2, 156), (0.5, 27), (0.8, 12)])
    def test_n_needed_by_cohen(self, effect, expected):
        """G*Power, one-sample t, one-sided 5 %, power 0.8: 156, 27, 12 for d = 0.2, 0.5, 0.8."""
        assert n_needed_mean_t(effect, sd=1.0, alpha=0.05, power=0.8) == expected

    def test_smallest_effect_is_the_inverse(self):
        effect = mde_mean_t(sd=3.0, n=48, alpha=2.5e-4, power=0.95)

        assert effect is not None
        assert_measured(power_mean_t(effect, sd=3.0, n=48, alpha=2.5e-4), 0.95, atol=1e-9, rtol=0)

    def test_no_units_no_power(self):
        assert power_mean_t(9.0, sd=1.0, n=1, alpha=0.05) == 0.0
        assert mde_mean_t(sd=1.0, n=1, alpha=0.05, power=0.8) is None
        assert n_needed_mean_t(0.0, sd=1.0, alpha=0.05, power=0.8) is None
        assert n_needed_mean_t(1e-9, sd=1.0, alpha=0.05, power=0.8) is None

    def test_only_effect_over_deviation_counts(self):
        assert power_mean_t(1.0, sd=2.0, n=20, alpha=0.05) == power_mean_t(
            0.5, sd=1.0, n=20, alpha=0.05
        )

    def test_far_effects_are_certain(self):
        assert power_mean_t(1e5, sd=1.0, n=10, alpha=0.05) == 1.0
        assert power_mean_t(-1e5, sd=1.0, n=10, alpha=0.05) == 0.0

    def test_ratio_is_a_mean_of_logs(self):
        assert power_ratio_t(2.0, log_sd=0.5, n=12, alpha=0.01) == power_mean_t(
            math.log(2), sd=0.5, n=12, alpha=0.01
        )
        ratio = mde_ratio_t(log_sd=0.5, n=12, alpha=0.01, power=0.8)
        assert ratio is not None
        needed = n_needed_ratio_t(ratio * 1.0000001, log_sd=0.5, alpha=0.01, power=0.8)
        assert needed == 12

    def test_absolute_mean_inverts(self):
        mean = mde_abs_mean(limit=0.3, sd=1.0, n=40, alpha=0.001, power=0.8)

        assert mean is not None
        found = power_abs_mean_fail(mean, limit=0.3, sd=1.0, n=40, alpha=0.001)
        assert_measured(found, 0.8, atol=1e-9, rtol=0)
        # Far above the limit one direction is left: the one-sided effect at alpha / 2.
        alone = mde_mean_t(sd=1.0, n=40, alpha=0.0005, power=0.8)
        assert alone is not None
        assert_measured(mean, 0.3 + alone, atol=1e-4, rtol=0)

    def test_equivalence_needs(self):
        """Normal approximation at mean 0: ((1.645 + 1.282) / 0.5)^2 = 34.3, and t needs a little more."""
        needed = n_needed_equivalence_mean(0.0, margin=0.5, sd=1.0, alpha=0.05, power=0.8)

        assert needed == 36
        assert n_needed_equivalence_mean(0.5, margin=0.5, sd=1.0, alpha=0.05, power=0.8) is None

    def test_bad_input(self):
        for sd in (0.0, -1.0, math.nan):
            with pytest.raises(InputError, match="`sd` must be positive and finite"):
                power_mean_t(1.0, sd=sd, n=5, alpha=0.05)
        for alpha in (0.0, 1.0, math.nan):
            with pytest.raises(InputError, match="`alpha` must lie strictly"):
                power_mean_t(1.0, sd=1.0, n=5, alpha=alpha)
        with pytest.raises(InputError, match="`power` must lie strictly"):
            n_needed_mean_t(1.0, sd=1.0, alpha=0.05, power=1.0)


class TestCounts:
    @pytest.mark.parametrize("n", [1, 40, 59, 200])
    @pytest.mark.parametrize("share", [0.0, 0.03, 0.2, 1.0])
    def test_proportion_by_every_count(self, n, share):
        """Sum of binomial masses over the counts that the limits themselves decide."""
        levels = Levels(low=0.99, high=0.95)
        mass = scipy.stats.binom(n, share).pmf(np.arange(n + 1))
        found = [proportion_limits(k, n, levels=levels) for k in range(n + 1)]
        fails = [f.low is not None and f.low > 0.05 for f in found]
        passes = [f.high is not None and f.high <= 0.05 for f in found]

        assert_measured(
            [
                power_proportion(share, n=n, limit=0.05, alpha=0.01),
                power_proportion(share, n=n, limit=0.05, alpha=0.05, decision="PASS"),
            ],
            [mass[fails].sum(), mass[passes].sum()],
            atol=1e-9,
            rtol=0,
        )

    @pytest.mark.parametrize("n", [28, 29, 77])
    def test_quantile_by_every_count(self, n):
        """With k of n values beyond the limit 0 (values are -1 or 1), the limits decide."""
        levels = Levels(low=0.99, high=0.95)
        mass = scipy.stats.binom(n, 0.15).pmf(np.arange(n + 1))
        found = [
            quantile_limits([1.0] * k + [-1.0] * (n - k), q=0.9, levels=levels)
            for k in range(n + 1)
        ]
        fails = [f.low is not None and f.low > 0 for f in found]
        passes = [f.high is not None and f.high <= 0 for f in found]

        assert_measured(
            [
                power_quantile(0.15, n=n, q=0.9, alpha=0.01),
                power_quantile(0.15, n=n, q=0.9, alpha=0.05, decision="PASS"),
            ],
            [mass[fails].sum(), mass[passes].sum()],
            atol=1e-9,
            rtol=0,
        )

    def test_n_needed_of_a_clean_quantile(self):
        """29, 59, 299 for p90, p95, p99 where no prompt is beyond."""
        found = [
            n_needed_quantile(0.0, q=q, alpha=0.05, power=0.95, decision="PASS")
            for q in (0.9, 0.95, 0.99)
        ]

        assert found == [29, 59, 299]

    def test_inverse_of_share(self):
        share = mde_proportion(n=48, limit=0.1, alpha=0.001, power=0.8)

        assert share is not None
        assert_measured(
            power_proportion(share, n=48, limit=0.1, alpha=0.001), 0.8, atol=1e-9, rtol=0
        )
        assert share == mde_quantile(n=48, q=0.9, alpha=0.001, power=0.8)
        assert mde_proportion(n=10, limit=0.05, alpha=0.05, power=0.8, decision="PASS") is None

    def test_n_needed_reaches_the_power(self):
        needed = n_needed_proportion(0.3, limit=0.1, alpha=0.001, power=0.8)

        assert needed is not None
        assert power_proportion(0.3, n=needed, limit=0.1, alpha=0.001) >= 0.8
        assert n_needed_proportion(0.1, limit=0.1, alpha=0.001, power=0.8) is None

    def test_binomial_by_hand(self):
        """n = 5, p = 1/2: only 5 of 5 rejects at 5 % (1/32); at share 0.9 that is 0.9^5."""
        assert_measured(power_binomial(0.9, n=5, p=0.5, alpha=0.05), 0.9**5, atol=1e-12, rtol=0)
        assert power_binomial(0.9, n=0, p=0.5, alpha=0.05) == 0.0

    def test_mcnemar_by_enumeration(self):
        n, lost, gained = 30, 0.25, 0.05
        total = 0.0
        for a in range(n + 1):
            for b in range(n + 1 - a):
                if a + b and scipy.stats.binomtest(a, a + b, alternative="greater").pvalue < 0.05:
                    total += scipy.stats.multinomial.pmf(
                        [a, b, n - a - b], n, [lost, gained, 1 - lost - gained]
                    )

        assert_measured(power_mcnemar(lost, gained, n=n, alpha=0.05), total, atol=1e-9, rtol=0)
        assert power_mcnemar(0.0, 0.0, n=n, alpha=0.05) == 0.0

    def test_gsm8k(self):
        """1,319 items, 2 % discordant: 80 % power for a margin of (1.645 + 0.842) sqrt(.02/1319)."""
        margin = (1.6448536 + 0.8416212) * math.sqrt(0.02 / 1319)
        found = power_paired_proportion(0.0, discordant=0.02, margin=margin, n=1319, alpha=0.05)

        assert round(margin, 3) == 0.010
        assert_measured(found, 0.8, atol=1e-6, rtol=0)

    def test_bad_input(self):
        with pytest.raises(InputError, match="`share` must lie strictly"):
            power_proportion(1.2, n=5, limit=0.1, alpha=0.05)
        with pytest.raises(InputError, match=r"`lost \+ gained` must lie strictly"):
            power_mcnemar(0.7, 0.7, n=5, alpha=0.05)
        with pytest.raises(InputError, match="`n` must"):
            power_quantile(0.1, n=-1, q=0.9, alpha=0.05)


@pytest.mark.statistical
class TestBySimulation:
    """Seeded; 4,000 draws, bands of 3.3 standard errors: at most 0.026."""

    DRAWS = 4000
    BAND = 3.3 * 0.5 / math.sqrt(4000)

    @pytest.mark.parametrize("mean", [0.1, 0.4, 0.7])
    def test_mean_fails(self, mean):
        rng = np.random.default_rng(21)
        seen = 0
        for _ in range(self.DRAWS):
            low = mean_limits(rng.normal(mean, size=24), levels=Levels(low=0.99)).low
            seen += low is not None and low > 0.1

        expected = power_mean_t(mean - 0.1, sd=1.0, n=24, alpha=0.01)
        assert_measured(seen / self.DRAWS, expected, atol=self.BAND, rtol=0)

    @pytest.mark.parametrize("mean", [0.0, 0.2, 0.9])
    def test_absolute_mean_fails_and_passes(self, mean):
        rng = np.random.default_rng(22)
        fails = passes = shown = 0
        for _ in range(self.DRAWS):
            draw = rng.normal(mean, size=24)
            found = abs_mean_limits(draw, levels=Levels(low=0.99, high=0.95))
            fails += found.low is not None and found.low > 0.3
            passes += found.high is not None and found.high <= 0.5
            shown += (equivalence_mean(draw, margin=0.5).p_value or 1.0) <= 0.05

        expected = [
            power_abs_mean_fail(mean, limit=0.3, sd=1.0, n=24, alpha=0.01),
            power_equivalence_mean(mean, margin=0.5, sd=1.0, n=24, alpha=0.05),
        ]
        rates = [fails / self.DRAWS, passes / self.DRAWS]
        assert_measured(rates, expected, atol=self.BAND, rtol=0)
        assert shown == passes
