"""Limits, needed items and smallest effects of a paired drop."""

import pytest
from scipy import stats

from tests.measured import assert_measured, known
from validate.errors import InputError
from validate.schema import Levels
from validate.stats import (
    DROP_METHOD,
    drop_limits,
    drop_n_needed,
    least_drop,
    mde_drop,
    n_min,
    trusted,
)

LEVELS = Levels(low=0.99, high=0.95)


def test_upper_limit_without_discordant_pairs_is_tangos():
    """z^2 / (n + z^2), z = 1.6449: 2.7055 / 502.7055 (Tango 1998, section 3)."""
    found = drop_limits(0, 0, 500, levels=LEVELS)

    assert_measured(found.high, 2.705543 / 502.705543, atol=1e-6, rtol=0)
    assert found.method == DROP_METHOD


def test_lower_limit_inverts_the_conditional_test():
    """At the limit the binomial tail is 0.9 of the risk, the rest was spent on the share."""
    lost, gained, n = 30, 2, 500
    low = known(drop_limits(lost, gained, n, levels=LEVELS).low)
    share = stats.beta.ppf(0.001, lost + gained, n - lost - gained + 1)

    p_value = stats.binom.sf(lost - 1, lost + gained, 0.5 * (1 + low / share))

    assert_measured(p_value, 0.009, atol=1e-6, rtol=0)


def test_lower_limit_is_below_and_upper_above_what_was_seen():
    """Both sides of the drop, for a drop, none and a gain."""
    for lost, gained in ((10, 2), (5, 5), (2, 10), (0, 0), (500, 0)):
        found = drop_limits(lost, gained, 500, levels=LEVELS)
        seen = (lost - gained) / 500

        assert known(found.low) <= seen <= known(found.high)


def test_no_items_give_no_limits():
    """Nothing was measured."""
    found = drop_limits(0, 0, 0, levels=LEVELS)

    assert (found.low, found.high) == (None, None)


def test_more_flips_than_items_are_refused():
    """Counts must fit."""
    with pytest.raises(InputError, match="more than n=10"):
        drop_limits(8, 3, 10, levels=LEVELS)


def test_needed_items_bring_the_limit_inside():
    """At the number named the limit of the scaled counts is inside, at two thirds it is not."""
    needed = known(drop_n_needed(5, 5, 500, limit=0.01, levels=LEVELS))
    at = drop_limits(round(needed / 100), round(needed / 100), needed, levels=LEVELS)
    less = drop_limits(round(needed / 150), round(needed / 150), needed * 2 // 3, levels=LEVELS)

    assert known(at.high) <= 0.0101
    assert known(less.high) > 0.01


def test_no_number_of_items_moves_a_drop_beyond_the_limit():
    """2 % were lost, 1 % is allowed."""
    assert drop_n_needed(10, 0, 500, limit=0.01, levels=LEVELS) is None


def test_smallest_effect_is_that_of_the_survey():
    """n = 1,319 and 2 % discordance: 1.0 point; 4 % : 1.4 (facts of the survey, calculated)."""
    assert_measured(mde_drop(0.02, n=1319, alpha=0.05, power=0.8), 0.0097, atol=5e-5, rtol=0)
    assert_measured(mde_drop(0.04, n=1319, alpha=0.05, power=0.8), 0.0137, atol=5e-5, rtol=0)
    assert mde_drop(0.0, n=1319, alpha=0.05, power=0.8) is None


def test_least_drop_is_of_five_lost_items() -> None:
    """Five lost and none gained: 0.5^5 = 0.031 is the first p below 0.05; P(Bin(500, p) >= 5) = 0.8
    at p = 0.0134, by ``scipy.stats.binom.sf``. Four items can never be rejected."""
    found = known(least_drop(n=500, alpha=0.05, power=0.8))

    assert_measured(found, 0.013405, atol=1e-6, rtol=0)
    assert_measured(stats.binom.sf(4, 500, found), 0.8, atol=1e-9, rtol=0)
    assert least_drop(n=4, alpha=0.05, power=0.8) is None


def test_method_may_be_believed_from_a_hundred_items():
    """By enumeration, whatever the tail."""
    assert n_min(DROP_METHOD, heavy=True) == 100
    assert trusted(DROP_METHOD, n=100, heavy=True)
    assert not trusted(DROP_METHOD, n=99, heavy=True)
