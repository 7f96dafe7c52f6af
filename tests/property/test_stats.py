"""Laws that hold for every input: order, symmetry, scale, inverse, refusal."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from validate.errors import InputError
from validate.schema import Levels
from validate.stats import (
    bernstein_limits,
    betting_limits,
    binomial_test,
    cluster_mean_limits,
    exceedance_n_needed,
    holm,
    kaplan_meier,
    mcnemar_counts,
    most_allowed,
    noninferiority_proportion,
    paired_proportion_limits,
    poisson_rate_limits,
    power_mean_t,
    power_proportion,
    proportion_limits,
    serial_independence,
    tail_diagnostic,
    uniformity_test,
    weighted_bonferroni,
)

LEVELS = Levels(low=0.95, high=0.95)
shares = st.floats(0.01, 0.99)
unit = st.lists(st.floats(0, 1), min_size=2, max_size=40)
counts = st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(1, 100))


@given(unit)
@settings(max_examples=40, deadline=None)
def test_bounded_limits_are_ordered_and_hold_the_mean(values):
    for limits in (bernstein_limits, betting_limits):
        found = limits(values, levels=LEVELS)
        assert found.low is not None
        assert found.high is not None
        assert 0 <= found.low <= found.high <= 1
    found = bernstein_limits(values, levels=LEVELS)
    assert (found.low or 0) - 1e-12 <= float(np.mean(values)) <= (found.high or 0) + 1e-12


@given(counts, shares)
@settings(max_examples=60, deadline=None)
def test_tails_of_the_binomial_meet(given_counts, p):
    a, b, _ = given_counts
    n = a + b
    up, down = (binomial_test(a, n, p=p, alternative=side).p_value for side in ("greater", "less"))
    if n == 0:
        assert up is None
        assert down is None
    else:
        assert up is not None
        assert down is not None
        assert up + down >= 1 - 1e-9


@given(st.integers(0, 60), st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_mcnemar_is_symmetric(lost, gained):
    one = mcnemar_counts(lost, gained, alternative="two-sided").p_value
    two = mcnemar_counts(gained, lost, alternative="two-sided").p_value

    assert (one is None) == (two is None) == (lost + gained == 0)
    if one is not None and two is not None:
        assert abs(one - two) <= 1e-9


@given(counts, shares)
@settings(max_examples=60, deadline=None)
def test_a_wider_margin_is_never_harder(given_counts, margin):
    lost, gained, more = given_counts
    n = lost + gained + more
    one = noninferiority_proportion(lost, gained, n, margin=margin / 2).p_value
    two = noninferiority_proportion(lost, gained, n, margin=margin).p_value

    assert one is not None
    assert two is not None
    assert two <= one + 1e-9


@given(counts)
@settings(max_examples=60, deadline=None)
def test_paired_limits_hold_the_difference_and_mirror(given_counts):
    lost, gained, more = given_counts
    n = lost + gained + more
    one = paired_proportion_limits(lost, gained, n, levels=LEVELS)
    two = paired_proportion_limits(gained, lost, n, levels=LEVELS)

    assert one.low is not None
    assert one.high is not None
    assert two.high is not None
    assert -1 <= one.low <= (gained - lost) / n <= one.high <= 1
    assert abs(one.low + two.high) <= 1e-9


@given(st.integers(0, 8), shares, shares)
@settings(max_examples=60, deadline=None)
def test_n_needed_is_inside_and_one_less_is_not(count, limit, level):
    needed = exceedance_n_needed(count, limit=limit, level=level)

    assert needed is not None
    assert (most_allowed(needed, limit=limit, level=level) or 0) >= count
    before = most_allowed(needed - 1, limit=limit, level=level)
    assert before is None or before < count


@given(st.integers(2, 200), shares, st.floats(0.001, 0.5))
@settings(max_examples=60, deadline=None)
def test_at_the_limit_a_decision_errs_at_most_as_stated(n, limit, alpha):
    for decision in ("FAIL", "PASS"):
        chance = power_proportion(limit, n=n, limit=limit, alpha=alpha, decision=decision)
        assert chance <= alpha + 1e-9


@given(st.integers(2, 300), st.floats(0, 3), st.floats(1e-4, 0.5))
@example(n=160, effect=3.0, alpha=0.25)  # SciPy's law is NaN there
@settings(max_examples=60, deadline=None)
def test_power_grows_with_effect(n, effect, alpha):
    small = power_mean_t(effect, sd=1.0, n=n, alpha=alpha)
    large = power_mean_t(effect + 0.5, sd=1.0, n=n, alpha=alpha)

    assert 0 <= small <= large + 1e-9 <= 1 + 2e-9


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1), min_size=1, max_size=8))
def test_holm_keeps_the_order_and_never_lowers(p_values):
    found = holm(p_values, alpha=0.05)
    ordered = sorted(p_values, key=lambda name: p_values[name])

    assert all(found[name] >= p_values[name] for name in p_values)
    assert [found[name] for name in ordered] == sorted(found.values())


@given(st.dictionaries(st.text(max_size=3), st.floats(1e-3, 1e3), min_size=1, max_size=30))
def test_shares_add_up_to_alpha(weights):
    assert abs(math.fsum(weighted_bonferroni(weights, alpha=0.01).values()) - 0.01) <= 1e-12


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=40))
def test_survival_falls_and_counts_every_event(streams):
    found = kaplan_meier([t for t, _ in streams], [d for _, d in streams])
    curve = [1.0, *found.survival]

    assert sum(found.events) == sum(d for _, d in streams)
    assert all(0 <= b < a for a, b in itertools.pairwise(curve))


@given(st.integers(0, 500))
@settings(max_examples=30, deadline=None)
def test_poisson_limits_hold_the_count(events):
    found = poisson_rate_limits(events, exposure=1.0, levels=LEVELS)

    assert found.low is not None
    assert found.high is not None
    assert found.low <= events < found.high


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "call",
    [
        lambda x: bernstein_limits(x, levels=LEVELS),
        lambda x: betting_limits(x, levels=LEVELS),
        lambda x: cluster_mean_limits(x, clusters=list(range(len(x))), levels=LEVELS),
        serial_independence,
        tail_diagnostic,
        uniformity_test,
    ],
    ids=["bernstein", "betting", "cluster", "serial", "tail", "uniform"],
)
def test_no_number_from_what_is_not_finite(call, bad):
    with pytest.raises(InputError, match="not finite"):
        call([0.1, bad] + [0.3] * 40)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 1.5, math.nan])
@pytest.mark.parametrize(
    "call",
    [
        lambda levels: bernstein_limits([0.1, 0.2], levels=levels),
        lambda levels: betting_limits([0.1, 0.2], levels=levels),
        lambda levels: cluster_mean_limits([0.1, 0.2], clusters=[0, 1], levels=levels),
        lambda levels: paired_proportion_limits(1, 2, 9, levels=levels),
        lambda levels: poisson_rate_limits(1, exposure=1.0, levels=levels),
        lambda levels: proportion_limits(1, 2, levels=levels),
    ],
    ids=["bernstein", "betting", "cluster", "paired", "poisson", "proportion"],
)
def test_levels_outside_the_range_are_refused(call, level):
    for levels in (Levels(low=level), Levels(low=0.9, high=level)):
        with pytest.raises(InputError, match=r"`levels\.(low|high)` must lie strictly"):
            call(levels)
