"""Exact tests against tables, closed forms and scipy.stats."""

import math

import numpy as np
import pytest
import scipy.stats

from tests.measured import assert_measured
from validate.errors import InputError
from validate.schema import Levels
from validate.stats import (
    SignificanceTest,
    binomial_test,
    exceedance_limits,
    exceedance_n_needed,
    holm,
    mcnemar_counts,
    mcnemar_test,
    most_allowed,
    weighted_bonferroni,
)


class TestRecord:
    def test_a_nan_p_value_cannot_be_built(self):
        with pytest.raises(ValueError, match=r"a p-value lies in \[0, 1\], got nan"):
            SignificanceTest(p_value=math.nan, statistic=0.0, n=1, n_of="units", method="m")

    def test_a_missing_p_value_needs_a_reason(self):
        with pytest.raises(ValueError, match="exactly one of p_value and why_undefined"):
            SignificanceTest(p_value=None, statistic=None, n=0, n_of="units", method="m")


class TestBinomial:
    def test_conover(self):
        """Conover (1971) p. 97, R ``binom.test`` example: 682 of 925, p = 0.75, 0.3825."""
        found = binomial_test(682, 925, p=0.75, alternative="two-sided")

        assert_measured(found.p_value, 0.3825, atol=5e-5, rtol=0)

    @pytest.mark.parametrize("alternative", ["greater", "less", "two-sided"])
    @pytest.mark.parametrize(("count", "n", "p"), [(0, 7, 0.2), (7, 7, 0.9), (3, 20, 0.4)])
    def test_as_scipy(self, count, n, p, alternative):
        found = binomial_test(count, n, p=p, alternative=alternative)
        expected = scipy.stats.binomtest(count, n, p, alternative=alternative).pvalue

        assert_measured(found.p_value, expected, atol=1e-14, rtol=1e-10)

    def test_no_units_no_p_value(self):
        found = binomial_test(0, 0, p=0.5)

        assert (found.p_value, found.why_undefined) == (None, "no units")

    def test_bad_input(self):
        with pytest.raises(InputError, match="`count` must lie between 0 and `n`, got count=4"):
            binomial_test(4, 3, p=0.5)
        for p in (0.0, 1.0, math.nan):
            with pytest.raises(InputError, match=r"`p` must lie strictly between 0 and 1"):
                binomial_test(1, 3, p=p)


class TestMcNemar:
    def test_ten_discordant(self):
        """2 (1 + 10) / 2^10 = 0.021484 two-sided; 11 / 1024 one-sided."""
        assert mcnemar_counts(9, 1, alternative="two-sided").p_value == pytest.approx(22 / 1024)
        assert mcnemar_counts(9, 1).p_value == pytest.approx(11 / 1024)
        assert mcnemar_counts(1, 9).p_value == pytest.approx(1 - 1 / 1024)

    def test_pairs_are_counted_by_direction(self):
        found = mcnemar_test([1, 1, 1, 0, 1, 0], [0, 0, 0, 1, 1, 0])

        # Lost 3, gained 1: P(B(4, 1/2) >= 3) = 5/16.
        assert found.p_value == pytest.approx(5 / 16)
        assert (found.n, found.n_of) == (4, "discordant pairs")

    @pytest.mark.parametrize("pair", [([], []), ([1, 0], [1, 0]), ([1, 1], [1, 1])])
    def test_agreement_and_nothing_have_no_p_value(self, pair):
        found = mcnemar_test(*pair)

        assert found.p_value is None
        assert found.why_undefined == "no discordant pairs: the two sides agree on every one"

    def test_bad_input(self):
        with pytest.raises(InputError, match="`ref` holds 2 units and `cand` 1"):
            mcnemar_test([1, 0], [1])
        with pytest.raises(InputError, match=r"`cand` must hold 0 and 1 alone, got 0.5 at 1"):
            mcnemar_test([1, 0], [1, 0.5])
        with pytest.raises(InputError, match="not finite"):
            mcnemar_test([1, math.nan], [1, 0])
        with pytest.raises(InputError, match="`lost` must lie between"):
            mcnemar_counts(-1, 3)


class TestExceedance:
    def test_none_of_59(self):
        """1 - 0.05^(1/59) = 0.04950: none of 59 shows a share below 5 %."""
        found = exceedance_limits([0.1] * 59, threshold=0.1, levels=Levels(low=0.99))

        assert_measured(found.high, 1 - 0.05 ** (1 / 59), atol=0, rtol=1e-12)
        assert found.low == 0.0

    def test_only_values_beyond_count(self):
        found = exceedance_limits([1, 2, 3, 4], threshold=2.0, levels=Levels(low=0.95))
        expected = scipy.stats.binomtest(2, 4).proportion_ci(0.9, method="exact")

        assert_measured([found.low, found.high], [expected.low, expected.high], atol=0, rtol=1e-9)

    def test_nothing_and_nonsense(self):
        assert exceedance_limits([], threshold=0.0, levels=Levels(low=0.9)).high is None
        with pytest.raises(InputError, match="`threshold` must be finite, got nan"):
            exceedance_limits([1.0], threshold=math.nan, levels=Levels(low=0.9))

    @pytest.mark.parametrize(("count", "expected"), [(0, 59), (1, 93), (2, 124), (3, 153)])
    def test_n_needed(self, count, expected):
        """Success-run tables for 95 % confidence and 95 % reliability: 59, 93, 124, 153."""
        assert exceedance_n_needed(count, limit=0.05, level=0.95) == expected

    def test_n_needed_is_the_smallest(self):
        needed = exceedance_n_needed(5, limit=0.02, level=0.95)

        assert needed is not None
        for n, inside in ((needed, True), (needed - 1, False)):
            high = scipy.stats.binomtest(5, n).proportion_ci(0.9, method="exact").high
            assert bool(high <= 0.02) == inside

    def test_no_plan_is_none(self):
        assert exceedance_n_needed(1, limit=1e-9, level=0.95) is None

    def test_most_allowed_inverts_n_needed(self):
        for count in range(6):
            needed = exceedance_n_needed(count, limit=0.1, level=0.95)
            assert needed is not None
            assert most_allowed(needed, limit=0.1, level=0.95) == count
            assert (most_allowed(needed - 1, limit=0.1, level=0.95) or -1) < count or count == 0
        assert most_allowed(0, limit=0.1, level=0.95) is None
        assert most_allowed(28, limit=0.1, level=0.95) is None

    def test_levels_out_of_range(self):
        for level in (0.0, 1.0, math.nan):
            with pytest.raises(InputError, match="`level` must lie strictly between"):
                exceedance_n_needed(0, limit=0.1, level=level)


class TestMultiplicity:
    def test_holm_as_r(self):
        """R: p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm") is 0.05 0.08 0.09 0.09 0.09."""
        given = {"e": 0.05, "a": 0.01, "d": 0.04, "b": 0.02, "c": 0.03}
        found = holm(given, alpha=0.05)

        assert list(found) == list(given)
        assert_measured(
            [found[k] for k in "abcde"], [0.05, 0.08, 0.09, 0.09, 0.09], atol=1e-12, rtol=0
        )

    def test_holm_stops_at_one(self):
        assert holm({"a": 0.9, "b": 0.7}, alpha=0.05) == {"a": 1.0, "b": 1.0}

    @pytest.mark.parametrize("bad", [math.nan, -0.1, 1.1])
    def test_holm_refuses(self, bad):
        with pytest.raises(InputError, match=r"`p_values` must lie in \[0, 1\], got .* for 'b'"):
            holm({"a": 0.5, "b": bad}, alpha=0.05)
        with pytest.raises(InputError, match="nothing was tested"):
            holm({}, alpha=0.05)

    def test_shares_add_up_and_stand_alone(self):
        shares = weighted_bonferroni({"a": 1, "b": 2, "c": 7}, alpha=0.01)

        assert_measured([shares["a"], shares["c"]], [0.001, 0.007], atol=1e-15, rtol=0)
        assert_measured(math.fsum(shares.values()), 0.01, atol=1e-15, rtol=0)

    @pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
    def test_bad_weights(self, bad):
        with pytest.raises(InputError, match=r"positive and finite, got .* for 'b'"):
            weighted_bonferroni({"a": 1, "b": bad}, alpha=0.01)
        with pytest.raises(InputError, match=r"nothing to split"):
            weighted_bonferroni({}, alpha=0.01)
        with pytest.raises(InputError, match="`alpha` must lie strictly"):
            weighted_bonferroni({"a": 1}, alpha=1.0)


def test_uniform_null_of_the_exact_test():
    """P(p <= a) <= a for every a, by full enumeration at n = 12."""
    law = scipy.stats.binom(12, 0.3)
    p = np.array([binomial_test(k, 12, p=0.3, alternative="two-sided").p_value for k in range(13)])

    for alpha in p:
        assert law.pmf(np.arange(13))[p <= alpha].sum() <= alpha + 1e-12
