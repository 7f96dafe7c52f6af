"""Limits and tests at sizes where the answer is a closed form or a few lines of enumeration."""

import math
from fractions import Fraction

import pytest
from scipy import optimize, stats

from tests.measured import assert_measured, known
from validate.errors import InputError
from validate.schema import Levels
from validate.stats import (
    bernstein_limits,
    betting_limits,
    binomial_quantile,
    drop_limits,
    drop_n_needed,
    equivalence_mean,
    equivalence_proportion,
    least_drop,
    mde_drop,
    noninferiority_mean,
    noninferiority_proportion,
    paired_proportion_limits,
)
from validate.stats.noninferior import tango_z

LEVELS = Levels(low=0.99, high=0.95)
SPENT, LEFT = 0.001, 0.009
"""Of a risk of 0.01: a tenth for the share of discordant pairs, the rest for the binomial tail."""
Z_95 = stats.norm.ppf(0.95)


class TestLeastDropNotRejected:
    def test_without_a_lost_item_only_the_share_of_discordant_ones_bounds_it(self) -> None:
        """None discordant of 20: (1 - share)^20 = 0.001; three gained: beta quantile; all: -1."""
        assert_measured(
            [
                known(drop_limits(lost, gained, n, levels=LEVELS).low)
                for lost, gained, n in ((0, 0, 20), (0, 3, 20), (0, 1, 2))
            ],
            [SPENT ** (1 / 20) - 1, -stats.beta.ppf(1 - SPENT, 4, 17), -math.sqrt(1 - SPENT)],
            atol=1e-12,
            rtol=0,
        )
        assert drop_limits(0, 1, 1, levels=LEVELS).low == -1.0

    @pytest.mark.parametrize(("lost", "n"), [(1, 1), (1, 20), (3, 9), (5, 5)])
    def test_few_lost_items_leave_room_for_a_gain(self, lost: int, n: int) -> None:
        """None gained: the tail is ((1 + drop / rate) / 2)^lost, at the greatest rate below 0."""
        rate = stats.beta.ppf(1 - SPENT, lost + 1, n - lost) if lost < n else 1.0
        low = drop_limits(lost, 0, n, levels=LEVELS).low

        assert_measured(low, rate * (2 * LEFT ** (1 / lost) - 1), atol=1e-12, rtol=0)

    @pytest.mark.parametrize(("lost", "n"), [(7, 7), (10, 40), (20, 20)])
    def test_many_lost_items_prove_a_drop(self, lost: int, n: int) -> None:
        """The same tail at the least rate above 0."""
        rate = stats.beta.ppf(SPENT, lost, n - lost + 1)
        low = drop_limits(lost, 0, n, levels=LEVELS).low

        assert_measured(low, rate * (2 * LEFT ** (1 / lost) - 1), atol=1e-12, rtol=0)

    @pytest.mark.parametrize(("lost", "gained", "n"), [(2, 5, 12), (1, 1, 2), (4, 2, 6)])
    def test_both_kinds_of_items(self, lost: int, gained: int, n: int) -> None:
        """The share at which the binomial tail is 0.009, by SciPy's root of SciPy's law."""
        both = lost + gained
        share = optimize.brentq(
            lambda p: stats.binom.sf(lost - 1, both, p) - LEFT, 1e-9, 1 - 1e-9, xtol=1e-15
        )
        rate = stats.beta.ppf(1 - SPENT, both + 1, n - both) if both < n else 1.0

        assert_measured(
            drop_limits(lost, gained, n, levels=LEVELS).low,
            rate * (2 * share - 1),
            atol=1e-11,
            rtol=0,
        )

    def test_at_a_low_level_the_limit_stops_at_what_was_seen(self) -> None:
        """P(B(10, 1/2) >= 5) = 0.623 is below 0.72: no drop is refused, and the limit is 0."""
        low = drop_limits(5, 5, 20, levels=Levels(low=0.2, high=0.95)).low

        assert_measured(low, 0.0, atol=1e-12, rtol=0)


class TestNeeded:
    @pytest.mark.parametrize("n", [1, 3, 10])
    @pytest.mark.parametrize("limit", [0.05, 0.013])
    def test_without_discordant_items(self, n: int, limit: float) -> None:
        """z^2 / (N + z^2) <= L from N = z^2 (1 - L) / L on."""
        assert drop_n_needed(0, 0, n, limit=limit, levels=LEVELS) == math.ceil(
            Z_95**2 * (1 - limit) / limit
        )

    def test_a_drop_below_the_limit_can_be_shown(self) -> None:
        assert 100 < known(drop_n_needed(2, 1, 100, limit=0.02, levels=LEVELS)) < 10_000

    def test_a_drop_at_the_limit_is_not_below_it(self) -> None:
        """Not even at a level at which the upper limit lies below what was seen."""
        low = Levels(low=0.99, high=0.4)

        assert drop_n_needed(1, 0, 100, limit=0.01, levels=low) is None
        assert known(drop_n_needed(1, 0, 100, limit=0.0101, levels=low)) > 0

    def test_more_than_ten_million_is_no_plan(self) -> None:
        assert drop_n_needed(0, 0, 10, limit=1e-7, levels=LEVELS) is None

    def test_nothing_to_go_by(self) -> None:
        assert drop_n_needed(0, 0, 0, limit=0.05, levels=LEVELS) is None
        assert mde_drop(0.5, n=0, alpha=0.05, power=0.8) is None

    def test_smallest_effects_of_few_items(self) -> None:
        """One item: the two normal quantiles. As many items as must be lost: share^5 = 0.8."""
        reach = stats.norm.ppf(0.7) + stats.norm.ppf(0.6)

        assert_measured(mde_drop(1.0, n=1, alpha=0.3, power=0.6), reach, atol=1e-12, rtol=0)
        assert_measured(least_drop(n=5, alpha=0.05, power=0.8), 0.8 ** (1 / 5), atol=1e-12, rtol=0)


class TestTango:
    @pytest.mark.parametrize("n", [1, 2, 20])
    def test_without_discordant_pairs(self, n: int) -> None:
        """z = sqrt(n m / (1 - m)); limits +-z^2 / (n + z^2), by hand from Tango (1998)."""
        found = noninferiority_proportion(0, 0, n, margin=0.1)
        both = equivalence_proportion(0, 0, n, margin=0.1)
        z = math.sqrt(n / 9)

        assert (found.n, found.n_of, found.estimate) == (n, "pairs", 0.0)
        assert_measured(
            [known(found.statistic), known(found.p_value), known(both.p_value)],
            [z, stats.norm.sf(z), stats.norm.sf(z)],
            atol=1e-12,
            rtol=0,
        )
        for level, sign in ((0.95, 1), (0.3, -1)):
            limits = paired_proportion_limits(0, 0, n, levels=Levels(low=level, high=level))
            square = stats.norm.ppf(level) ** 2
            end = sign * square / (n + square)
            assert_measured(
                [known(limits.low), known(limits.high)], [-end, end], atol=1e-12, rtol=0
            )

    @pytest.mark.parametrize(("lost", "gained", "n"), [(1, 0, 3), (2, 1, 8), (0, 4, 9)])
    def test_variance_is_that_of_the_likeliest_law_with_the_difference(
        self, lost: int, gained: int, n: int
    ) -> None:
        """The restricted likelihood is made greatest by SciPy instead of Tango's closed form."""
        d = -0.2

        def unlikely(q: float) -> float:
            same = 1 - 2 * q - d
            terms = ((lost, q), (gained, q + d), (n - lost - gained, same))
            return -sum(k * math.log(p) for k, p in terms if k)

        best = optimize.minimize_scalar(
            unlikely, bounds=(0.2 + 1e-12, 0.6 - 1e-12), method="bounded", options={"xatol": 1e-12}
        ).x
        expected = (gained - lost - n * d) / math.sqrt(n * (2 * best + d - d * d))
        found = noninferiority_proportion(lost, gained, n, margin=0.2)

        assert_measured(known(found.statistic), expected, atol=1e-5, rtol=0)
        assert found.estimate == (gained - lost) / n

    def test_no_pairs_and_no_variance(self) -> None:
        found = noninferiority_proportion(0, 0, 0, margin=0.1)

        assert (found.n, found.p_value, found.why_undefined) == (0, None, "no pairs")
        assert tango_z(0, 0, 5, difference=0.0) == 0.0


class TestMeanOfTwo:
    def test_students_t_of_one_degree_is_cauchys(self) -> None:
        """Mean 0.2, error 0.1, margin 0.1: t = 3, P(T > 3) = 1/2 - atan(3) / pi."""
        found = noninferiority_mean([0.1, 0.3], margin=0.1)

        assert_measured(
            [known(found.statistic), known(found.p_value), known(found.estimate)],
            [3.0, 0.5 - math.atan(3) / math.pi, 0.2],
            atol=1e-12,
            rtol=0,
        )

    def test_both_sides_alike_show_the_first(self) -> None:
        """-0.25 and 0.25: mean 0, error 0.25, t = 0.5 / 0.25 = 2 either way."""
        found = equivalence_mean([-0.25, 0.25], margin=0.5)

        assert (known(found.statistic), found.alternative) == (2.0, "greater")

    def test_one_unit_and_no_spread(self) -> None:
        assert noninferiority_mean([0.1], margin=0.1).why_undefined == "1 of 2 units"
        found = noninferiority_mean([0.1, 0.1], margin=0.1)
        assert (found.p_value, found.why_undefined) == (None, "all differences equal")


class TestBounded:
    def test_bernstein_of_few_units(self) -> None:
        """One unit says nothing; two of 1/2 give all of [0, 1]; 401 of 1/2: 7 ln(2/a) / 1200."""
        one, two = (bernstein_limits([0.5] * n, levels=LEVELS) for n in (1, 2))
        many = bernstein_limits([0.5] * 401, levels=LEVELS)

        assert (one.low, one.high) == (None, None)
        assert one.method == "empirical Bernstein (undefined: 1 of 2 units)"
        assert (two.low, two.high) == (0.0, 1.0)
        assert_measured(
            [known(many.low), known(many.high)],
            [0.5 - 7 * math.log(200) / 1200, 0.5 + 7 * math.log(40) / 1200],
            atol=1e-12,
            rtol=0,
        )

    def test_one_bet_at_its_cap(self) -> None:
        """Risk 1/2, one unit of 1: 1 + 0.75 (1 - m) / m = 2 at m = 3/7."""
        found = betting_limits([1.0], levels=Levels(low=0.5, high=0.5))

        assert_measured([known(found.low), known(found.high)], [3 / 7, 1.0], atol=1e-12, rtol=0)

    @pytest.mark.parametrize("alpha", [0.05, 0.3])
    @pytest.mark.parametrize(
        "values", [[0.9, 0.4, 0.8, 1.0, 0.7], [1.0] * 8, [0.2, 0.1, 0.9, 0.6, 0.95, 0.9, 1.0]]
    )
    def test_capital_at_the_limit(self, values: list[float], alpha: float) -> None:
        """Waudby-Smith and Ramdas, eq. 26, bet by bet: the best capital is 1 / alpha there."""
        low = known(betting_limits(values, levels=Levels(low=1 - alpha, high=0.95)).low)
        assert 0 < low < 1
        seen, spread, variance, capital, best = 0.5, 0.25, 0.25, 1.0, 0.0
        for t, x in enumerate(values, start=1):
            bet = math.sqrt(2 * math.log(1 / alpha) / (len(values) * variance))
            capital *= 1 + min(bet, 0.75 / low) * (x - low)
            best = max(best, capital)
            seen += x
            spread += (x - seen / (t + 1)) ** 2
            variance = spread / (t + 1)

        assert_measured(best, 1 / alpha, atol=0, rtol=1e-9)


class TestBinomialQuantile:
    @pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13, 30])
    def test_at_and_beside_every_step_of_a_fair_coin(self, n: int) -> None:
        """The distribution function in fractions: at a step its own count, just above the next."""
        below = Fraction(0)
        for count in range(n):
            below += Fraction(math.comb(n, count), 2**n)
            q = float(below)
            found = [binomial_quantile(q * f, n=n, p=0.5) for f in (1 - 1e-9, 1.0)]
            assert found == [count, count]
            if q * (1 + 1e-9) < 1.0:
                assert binomial_quantile(q * (1 + 1e-9), n=n, p=0.5) == count + 1

    @pytest.mark.parametrize(
        ("q", "n", "p"), [(1.0, 2, 0.5), (1.5, 2, 0.5), (0.5, 2, -0.1), (0.5, 2, 1.1)]
    )
    def test_ends_are_refused(self, q: float, n: int, p: float) -> None:
        with pytest.raises(InputError, match="must lie in"):
            binomial_quantile(q, n=n, p=p)

    def test_a_sure_or_impossible_draw(self) -> None:
        assert [binomial_quantile(0.3, n=4, p=p) for p in (0.0, 1.0)] == [0, 4]
        assert binomial_quantile(0.3, n=0, p=0.5) == 0
