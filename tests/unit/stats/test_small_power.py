"""Power, needed units and lossless tests at sizes where every outcome can be written down."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from tests.measured import assert_measured, known
from validate.errors import InputError
from validate.schema import Interval
from validate.stats import (
    combined_p,
    cvm_power,
    cvm_shift_needed,
    cvm_test,
    group_dispersion,
    lag_products,
    lossless,
    mde_abs_mean,
    mde_mean_t,
    mde_proportion,
    mde_ratio_t,
    n_needed_equivalence_mean,
    n_needed_mean_t,
    n_needed_proportion,
    power_abs_mean_fail,
    power_binomial,
    power_equivalence_mean,
    power_mcnemar,
    power_mean_t,
    power_paired_proportion,
    power_proportion,
    skewed_z,
    units_for_mean,
    units_for_rate,
    units_for_share,
    units_needed,
    z_power,
)


class TestMeans:
    def test_two_units_decide_and_one_does_not(self) -> None:
        """SciPy's noncentral t of one degree."""
        edge = stats.t.ppf(0.95, 1)
        expected = stats.nct.sf(edge, 1, 3.0 * math.sqrt(2))

        assert_measured(power_mean_t(3.0, sd=1.0, n=2, alpha=0.05), expected, atol=1e-9, rtol=0)
        assert power_mean_t(3.0, sd=1.0, n=1, alpha=0.05) == 0.0
        assert power_equivalence_mean(0.0, margin=9.0, sd=1.0, n=1, alpha=0.05) == 0.0

    @pytest.mark.parametrize(("n", "margin", "mean"), [(2, 9.0, 0.5), (3, 2.0, 0.3), (8, 1.0, 0.1)])
    def test_equivalence_by_quadrature(self, n: int, margin: float, mean: float) -> None:
        """Phillips (1990): P(|mean + Z / sqrt(n)| < margin - t S / sqrt(n)) over the law of S."""
        edge, error = stats.t.ppf(0.95, n - 1), 1 / math.sqrt(n)

        def inside(s: float) -> float:
            room = margin - edge * s * error
            above, below = (stats.norm.cdf((end - mean) / error) for end in (room, -room))
            return float((above - below) * stats.chi.pdf(s * root, n - 1) * root)

        root = math.sqrt(n - 1)
        expected = integrate.quad(inside, 0, margin / (edge * error), epsabs=1e-6)[0]

        found = power_equivalence_mean(mean, margin=margin, sd=1.0, n=n, alpha=0.05)
        assert_measured(found, expected, atol=1e-4, rtol=0)

    def test_both_directions_of_an_absolute_mean(self) -> None:
        """At a limit of 0 and no difference each side is refused at half of alpha."""
        found = power_abs_mean_fail(0.0, limit=0.0, sd=1.0, n=7, alpha=0.1)

        assert_measured(found, 0.1, atol=1e-9, rtol=0)

    def test_effects_scale_with_the_deviation(self) -> None:
        """Half a power and two units: the effect in deviations is the same at 1 and 10,000."""
        one = known(mde_mean_t(sd=1.0, n=2, alpha=0.001, power=0.5))
        wide = known(mde_mean_t(sd=1e4, n=2, alpha=0.001, power=0.5))
        absolute = known(mde_abs_mean(limit=0.0, sd=1e4, n=2, alpha=0.001, power=0.5))
        half = known(mde_mean_t(sd=1e4, n=2, alpha=0.0005, power=0.5))

        assert one > 100
        assert_measured([wide / 1e4, absolute / half], [one, 1.0], atol=0, rtol=1e-5)
        below, wide_below = (
            known(mde_mean_t(sd=sd, n=9, alpha=0.05, power=0.01)) for sd in (1.0, 1e4)
        )
        assert below < 0
        assert_measured(wide_below / 1e4, below, atol=0, rtol=1e-5)
        small = known(mde_abs_mean(limit=0.0, sd=1e-3, n=2, alpha=0.001, power=0.5))
        assert_measured(small * 1e7, absolute, atol=0, rtol=1e-5)
        assert mde_ratio_t(log_sd=1.0, n=2, alpha=0.001, power=0.5) is None
        assert mde_ratio_t(log_sd=1.0, n=1, alpha=0.05, power=0.5) is None

    def test_no_number_of_units_shows_what_is_not_so(self) -> None:
        """Even where a power below alpha is asked for."""
        for effect in (0.0, -1e-3):
            assert n_needed_mean_t(effect, sd=1.0, alpha=0.05, power=0.01) is None
        for mean in (1.0, -1.0):
            found = n_needed_equivalence_mean(mean, margin=1.0, sd=0.1, alpha=0.05, power=0.01)
            assert found is None


def tail(count: int, n: int, p: Fraction) -> Fraction:
    """P(B(n, p) >= count), in fractions."""
    return sum(
        (math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(count, n + 1)), Fraction(0)
    )


def rejected(n: int, p: Fraction, alpha: Fraction) -> int:
    """The smallest count with a tail below alpha."""
    return next(k for k in range(n + 2) if tail(k, n, p) < alpha)


class TestCounts:
    @pytest.mark.parametrize("n", [1, 2, 5, 9])
    @pytest.mark.parametrize("alpha", [Fraction(1, 4), Fraction(1, 20), Fraction(3, 5)])
    def test_binomial_power_in_fractions(self, n: int, alpha: Fraction) -> None:
        share = Fraction(7, 10)
        for p in (Fraction(1, 2), Fraction(1, 100)):
            assert_measured(
                power_binomial(float(share), n=n, p=float(p), alpha=float(alpha)),
                float(tail(rejected(n, p, alpha), n, share)),
                atol=1e-14,
                rtol=0,
            )

    @pytest.mark.parametrize(
        ("lost", "gained", "n"),
        [(Fraction(1, 2), Fraction(1, 4), 6), (Fraction(1, 10), Fraction(1, 20), 9)],
    )
    def test_mcnemar_power_over_every_table(self, lost: Fraction, gained: Fraction, n: int) -> None:
        """Each pair is lost, gained or alike: all tables of n pairs, in fractions."""
        alpha, half, total = Fraction(1, 5), Fraction(1, 2), Fraction(0)
        for a in range(n + 1):
            for b in range(n + 1 - a):
                ways = math.comb(n, a) * math.comb(n - a, b)
                if a >= rejected(a + b, half, alpha):
                    total += ways * lost**a * gained**b * (1 - lost - gained) ** (n - a - b)

        found = power_mcnemar(float(lost), float(gained), n=n, alpha=0.2)
        assert_measured(found, float(total), atol=1e-14, rtol=0)

    def test_mcnemar_power_where_all_is_lost(self) -> None:
        """0.5^5 = 0.031: five of five are rejected, four of four are not."""
        assert [power_mcnemar(1.0, 0.0, n=n, alpha=0.05) for n in (0, 4, 5)] == [0.0, 0.0, 1.0]

    def test_mcnemar_power_of_many_pairs(self) -> None:
        """The sum over every number of discordant pairs, by ``scipy.stats``."""
        n, lost, gained = 600, 0.04, 0.02
        counts = np.arange(n + 1)
        edge = stats.binom.isf(0.05, counts, 0.5) + 1
        power = stats.binom.sf(edge - 1, counts, lost / (lost + gained))
        expected = (stats.binom.pmf(counts, n, lost + gained) * power).sum()

        found = power_mcnemar(lost, gained, n=n, alpha=0.05)
        assert_measured(found, expected, atol=1e-12, rtol=0)

    def test_no_units_decide_nothing(self) -> None:
        assert power_proportion(0.5, n=0, limit=0.1, alpha=0.05) == 0.0
        assert power_proportion(0.5, n=0, limit=0.1, alpha=0.05, decision="PASS") == 0.0
        assert power_binomial(0.5, n=0, p=0.1, alpha=0.05) == 0.0
        none = power_paired_proportion(0.0, discordant=0.1, margin=0.01, n=0, alpha=0.05)
        assert_measured(none, 0.05, atol=1e-14, rtol=0)

    def test_paired_power_at_a_drop(self) -> None:
        """Variance 0.5 - 0.25^2 = 0.4375; (0.3 - 0.25) sqrt(28 / 0.4375) = 0.4, by hand."""
        found = power_paired_proportion(0.25, discordant=0.5, margin=0.3, n=28, alpha=0.05)

        expected = stats.norm.cdf(0.4 - stats.norm.ppf(0.95))
        assert_measured(found, expected, atol=1e-14, rtol=0)

    def test_greatest_share_that_passes(self) -> None:
        """59 units and none allowed: (1 - share)^59 = 0.9."""
        found = mde_proportion(n=59, limit=0.05, alpha=0.05, power=0.9, decision="PASS")

        assert_measured(known(found), 1 - 0.9 ** (1 / 59), atol=1e-12, rtol=0)

    def test_one_unit_may_do(self) -> None:
        """P(B(1, 1/2) >= 1) = 1/2 < 0.6; at the limit itself no number of units is named."""
        assert n_needed_proportion(1.0, limit=0.5, alpha=0.6, power=0.9) == 1
        assert n_needed_proportion(0.5, limit=0.5, alpha=0.6, power=0.1) is None
        assert n_needed_proportion(0.5, limit=0.5, alpha=0.6, power=0.1, decision="PASS") is None


class TestProjected:
    @pytest.mark.parametrize("value", [0.2, -0.2, 0.0])
    @pytest.mark.parametrize("n", [2, 3, 9])
    @pytest.mark.parametrize("room", [0.02, 0.1, 0.5, 4.0])
    def test_mean_by_trying_every_n(self, value: float, n: int, room: float) -> None:
        """SciPy's t quantile at every n in turn."""
        high = value + 0.3
        spread = 0.3 / stats.t.ppf(0.95, n - 1) * math.sqrt(n)
        tried = np.arange(2, 5000)
        inside = stats.t.ppf(0.95, tried - 1) * spread / np.sqrt(tried) <= room

        found = units_for_mean(value, high=high, n=n, limit=value + room, level=0.95)
        assert found == tried[np.argmax(inside)]

    def test_means_up_to_a_million(self) -> None:
        """The width falls as 1 / sqrt(n), 1 at 10,000: 800,000 units are named, 1,500,000 are not."""
        spread = 100 / stats.t.ppf(0.95, 9999)
        tried = np.arange(799_000, 801_000)
        limit = 100 / math.sqrt(800_000)
        inside = stats.t.ppf(0.95, tried - 1) * spread / np.sqrt(tried) <= limit

        assert (
            units_for_mean(0.0, high=1.0, n=10_000, limit=limit, level=0.95)
            == (tried[np.argmax(inside)])
        )
        far = 100 / math.sqrt(1_500_000)
        assert units_for_mean(0.0, high=1.0, n=10_000, limit=far, level=0.95) is None

    def test_shares_up_to_a_million(self) -> None:
        """ln 0.05 / ln(1 - L): 748,932 and 1,497,865."""
        assert units_for_share(0.0, limit=4e-6, level=0.95) == math.ceil(
            math.log(0.05) / math.log1p(-4e-6)
        )
        assert units_for_share(0.0, limit=2e-6, level=0.95) is None

    def test_a_rate_that_is_no_count_rests_on_one_event(self) -> None:
        """0.01 of a limit of 1 is less than one event of 4.74 gives: 1 event of an exposure of 100."""
        tried = np.arange(1, 3000)
        counts = np.ceil(0.01 * tried - 1e-9)
        inside = stats.chi2.ppf(0.95, 2 * counts + 2) / (2 * tried) <= 0.03

        found = units_for_rate(0.01, high=1.0, n=100, limit=0.03, level=0.95)
        assert found == tried[np.argmax(inside)]

    @pytest.mark.parametrize("off", [0.0, 1e-4, -1e-4])
    @pytest.mark.parametrize("events", [1, 2, 3, 4, 5, 6, 9, 16, 17])
    def test_rate_by_trying_every_n(self, events: int, off: float) -> None:
        """Garwood's limit as half a chi-square quantile, rounded: one prompt gave all of the events."""
        high = stats.chi2.ppf(0.95, 2 * events + 2) / 2
        for limit in (0.9 * high + 0.1 * events, 0.5 * (high + events)):
            tried = np.arange(1, 1000)
            ends = stats.chi2.ppf(0.95, 2 * events * tried + 2) / (2 * tried)
            expected = tried[np.argmax(ends <= limit)]
            rounded = high * (1 + off)
            found = units_for_rate(float(events), high=rounded, n=1, limit=limit, level=0.95)
            assert found == expected

    def test_one_unit_may_do(self) -> None:
        """P(B(1, 0.96) = 0) = 0.04; P(B(1, 1/2) = 0) = 1/2 is just enough at level 1/2."""
        assert units_for_share(0.0, limit=0.96, level=0.95) == 1
        assert units_for_share(0.0, limit=0.5, level=0.5) == 1

    @pytest.mark.parametrize("share", [0.0, 0.05, 0.09])
    def test_share_by_trying_every_n(self, share: float) -> None:
        tried = np.arange(1, 30_000)
        counts = np.ceil(share * tried - 1e-9)
        expected = tried[np.argmax(stats.binom.cdf(counts, tried, 0.1) <= 0.05)]

        assert units_for_share(share, limit=0.1, level=0.95) == expected

    def test_a_unit_at_the_limit_is_not_beyond_it(self) -> None:
        """One of four is beyond 2, at 2 is another: as a share of 1/4 below 1/2."""
        found = Interval(
            low=None, low_level=0.95, high=3.0, high_level=0.95, method="order statistic",
            q=0.5, above=(2.0, 3.0),
        )  # fmt: skip

        assert units_needed(found, value=1.0, n=4, limit=2.0) == units_for_share(
            0.25, limit=0.5, level=0.95
        )
        single = Interval(
            low=None, low_level=0.95, high=None, high_level=0.95, method="order statistic",
            q=0.3, above=(3.0,),
        )  # fmt: skip
        assert units_needed(single, value=1.0, n=1, limit=2.0) is None  # all of one unit is beyond

    def test_without_a_limit_the_fewest_that_show_spread(self) -> None:
        """A tail-checked t is calibrated for heavy tails from 32 on."""
        for high, n, expected in (
            (None, 1, 32),
            (None, 2, None),
            (math.inf, 1, 32),
            (1.0, 1, None),
        ):
            found = Interval(
                low=None, low_level=0.95, high=high, high_level=0.95, method="t, tail-checked"
            )
            assert units_needed(found, value=0.0, n=n, limit=0.5) == expected

    def test_a_share_has_no_limit_beyond_one(self) -> None:
        found = Interval(
            low=0.0, low_level=0.95, high=0.5, high_level=0.95, method="Clopper-Pearson"
        )

        assert units_needed(found, value=0.0, n=4, limit=1.0) is None
        assert units_needed(found, value=0.0, n=4, limit=0.1) == 29  # 0.9^29 = 0.047


class TestLossless:
    def test_rest_of_the_limit_law(self) -> None:
        """Sum over j >= 2 of 1 / (j pi)^2, and of 2 / (j pi)^4, term by term."""
        j = np.arange(2.0, 200_000.0)

        assert_measured(lossless.REST_MEAN, (1 / (j * math.pi) ** 2).sum(), atol=1e-6, rtol=0)
        assert_measured(lossless.REST_VARIANCE, (2 / (j * math.pi) ** 4).sum(), atol=1e-15, rtol=0)

    def test_ends_and_ties_belong_to_the_sample(self) -> None:
        """0 twice, 1 twice, all others 1/2: the statistic in fractions."""
        values = [0.0, 0.0, *[0.5] * 16, 1.0, 1.0]
        expected = Fraction(1, 240) + sum(
            (Fraction(x) - Fraction(2 * i + 1, 40)) ** 2 for i, x in enumerate(values)
        )
        found = cvm_test(values)

        assert_measured(known(found.statistic), float(expected), atol=1e-14, rtol=0)
        assert 0.0 < known(found.p_value) < 1.0
        assert found.n == 20

    def test_one_value_apart_is_spread_enough(self) -> None:
        for values in ([0.0, *[0.5] * 19], [*[0.5] * 19, 1.0]):
            assert cvm_test(values).p_value is not None
        assert cvm_test([0.5] * 20).why_undefined == "all values equal"

    @pytest.mark.parametrize("shift", [0.5, 1.5, -3.0])
    def test_power_on_a_finer_grid(self, shift: float) -> None:
        """(Z + shift)^2 / pi^2 plus a gamma variable of the rest's mean and variance, by SciPy."""
        scale = lossless.REST_VARIANCE / lossless.REST_MEAN
        rest = stats.gamma(lossless.REST_MEAN / scale, scale=scale).ppf(
            (np.arange(2000) + 0.5) / 2000
        )

        def beyond(critical: float, move: float) -> float:
            edge = math.pi * np.sqrt(np.maximum(critical - rest, 0.0))
            chances = stats.norm.sf(edge, loc=move) + stats.norm.cdf(-edge, loc=move)
            return float(np.mean(chances))

        critical = optimize.brentq(lambda c: beyond(c, 0.0) - 0.1, 0.05, 3.0, xtol=1e-5)

        found = cvm_power(shift, alpha=0.1)
        assert_measured(found, beyond(critical, shift), atol=1e-3, rtol=0)

    def test_z_is_refused_on_either_side(self) -> None:
        """Both tails, by ``scipy.stats.norm``."""
        edge = stats.norm.isf(0.1)

        expected = stats.norm.sf(edge - 0.5) + stats.norm.cdf(-edge - 0.5)
        assert_measured(z_power(0.5, alpha=0.2), expected, atol=1e-14, rtol=0)

    def test_a_power_of_alpha_needs_no_shift_and_is_refused(self) -> None:
        with pytest.raises(InputError, match="must exceed"):
            cvm_shift_needed(alpha=0.1, power=0.1)

    @pytest.mark.parametrize(
        ("sum_", "third", "corrected"),
        [(1.0, 0.0, 1.0), (2.0, 0.25, 1.875), (10.0, 0.5, 10 - 0.5 * 35 / 6), (-3.0, -0.5, -7 / 3)],
    )
    def test_skewness_of_the_sum(self, sum_: float, third: float, corrected: float) -> None:
        """Variances add up to 1, so z is the sum; z - g (z^2 - 1) / 6, cut at |z| = 3 / g."""
        found = skewed_z([sum_ - 0.5, 0.5], [0.5, 0.5], third)

        assert (found.statistic, found.n, found.estimate) == (sum_, 2, sum_ / 2)
        assert_measured(
            known(found.p_value), 2 * stats.norm.sf(abs(corrected)), atol=1e-15, rtol=1e-9
        )

    def test_products_of_pairs(self) -> None:
        """Twenty of (1/2 * 1/4): sum 2.5, deviation sqrt(20) / 12, correlation 2.5 * 12 / 20."""
        for sign in (1, -1):
            found = lag_products([1.0] * 20, [0.5 + 0.25 * sign] * 20, what="x")
            z = 30 / math.sqrt(20)
            assert_measured(
                [known(found.statistic), known(found.estimate), known(found.p_value)],
                [sign * z, sign * 1.5, 2 * stats.norm.sf(z)],
                atol=1e-14,
                rtol=1e-12,
            )

    def test_sums_of_groups(self) -> None:
        """Five pairs of sums 0.8, 0, 0.2, -0.4, 0.8 about 1; the single 0.9 is left out.

        1.48 / (2 / 12) = 8.88 of five degrees, by ``scipy.stats.chi2``.
        """
        values = [0.9, 0.9, 0.1, 0.9, 0.7, 0.5, 0.2, 0.4, 0.9, 0.9, 0.9]
        found = group_dispersion(values, np.array([4, 4, 1, 1, 7, 7, 0, 0, 9, 9, 3]), what="x")

        assert found.n == 5
        assert_measured(
            [known(found.statistic), known(found.estimate), known(found.p_value)],
            [8.88, 1.776, stats.chi2.sf(8.88, 5)],
            atol=1e-12,
            rtol=0,
        )

    def test_probabilities_stay_in_range(self) -> None:
        """No excess of rounding gets out."""
        assert [lossless._clip(p) for p in (-1e-17, 0.0, 0.5, 1.0, 1.0 + 1e-15)] == [
            *(0.0, 0.0, 0.5, 1.0, 1.0)
        ]
        assert combined_p([0.9, 0.8], [0.5, 0.5]) == 1.0
