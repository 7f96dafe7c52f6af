"""The bound rule at, just below and just above each of its edges."""

import math

import pytest

from tests.unit.gates.made import floor, interval, limit, measured, verdict
from validate.gates.bound import within
from validate.gates.outcome import defined

BELOW, ABOVE = math.nextafter(0.5, 0), math.nextafter(0.5, 1)
NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("value", "outcome"),
    [(0.0, "PASS"), (BELOW, "PASS"), (0.5, "PASS"), (ABOVE, "FAIL"), (9.0, "FAIL")],
)
def test_deterministic_value_is_judged_itself(value, outcome):
    """Without an interval the limit itself still passes and the next number fails."""
    judged = verdict("bound", measured(value), limit(0.5))

    assert judged.outcome == outcome
    assert judged.judged == value
    assert judged.alpha_share == 0


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (0.1, 0.4, "PASS"),
        (0.1, BELOW, "PASS"),
        (0.1, 0.5, "PASS"),
        (0.5, 0.5, "PASS"),
        (0.1, ABOVE, "INCONCLUSIVE"),
        (BELOW, 0.9, "INCONCLUSIVE"),
        (0.5, 0.9, "INCONCLUSIVE"),
        (ABOVE, 0.9, "FAIL"),
        (0.6, 0.9, "FAIL"),
        (None, 0.5, "PASS"),
        (None, 0.9, "INCONCLUSIVE"),
        (None, None, "INCONCLUSIVE"),
        (0.1, None, "INCONCLUSIVE"),
        (0.6, None, "FAIL"),
        (NAN, NAN, "INCONCLUSIVE"),
        (NAN, 0.4, "PASS"),
        (0.1, NAN, "INCONCLUSIVE"),
        (0.1, INF, "INCONCLUSIVE"),
        (-INF, 0.4, "PASS"),
        (0.1, -INF, "INCONCLUSIVE"),
        (INF, INF, "FAIL"),
    ],
)
def test_interval_decides_by_its_two_limits(low, high, outcome):
    """FAIL by the lower limit alone, PASS by the upper alone, never by NaN or an infinity."""
    judged = verdict("bound", measured(0.45, interval=interval(low, high)), limit(0.5))

    assert judged.outcome == outcome
    assert (judged.reason is None) == (outcome == "PASS")
    assert judged.judged == 0.45


@pytest.mark.parametrize(
    ("value", "noise", "outcome"),
    [
        (0.4, 0.1, "PASS"),
        (0.4, 0.5, "PASS"),
        (0.4, ABOVE, "INCONCLUSIVE"),
        (0.6, 0.1, "FAIL"),
        (0.6, 0.5, "FAIL"),
        (0.6, 0.6, "INCONCLUSIVE"),
        (0.6, 0.7, "INCONCLUSIVE"),
        (0.8, 0.7, "FAIL"),
        (0.4, None, "PASS"),
        (0.6, None, "FAIL"),
    ],
)
def test_noise_above_the_limit_settles_nothing(value, noise, outcome):
    """A floor above the limit forbids PASS, and FAIL unless the value is above the floor too."""
    judged = verdict("bound", measured(value), limit(0.5), noise=floor(noise))

    assert judged.outcome == outcome


def test_repeats_count_as_measured_not_by_their_upper_limit():
    """A floor of 0.9 over repeats that all lie within the limit forbids nothing."""
    wide = floor(0.9, values=(0.1, 0.2, 0.4))
    one = floor(0.1, values=(0.1, 0.55, 0.1))
    few = floor(None, values=(0.55,))

    assert verdict("bound", measured(0.4), limit(0.5), noise=wide).outcome == "PASS"
    assert verdict("bound", measured(0.4), limit(0.5), noise=one).outcome == "INCONCLUSIVE"
    assert verdict("bound", measured(0.4), limit(0.5), noise=few).outcome == "INCONCLUSIVE"


@pytest.mark.parametrize("bad", [NAN, INF])
def test_a_repeat_that_is_no_number_settles_nothing(bad):
    """Neither PASS nor FAIL: ref itself breaks."""
    noise = floor(None, values=(0.1, bad, 0.9))

    assert verdict("bound", measured(0.4), limit(0.5), noise=noise).outcome == "INCONCLUSIVE"
    assert verdict("bound", measured(9.0), limit(0.5), noise=noise).outcome == "INCONCLUSIVE"


def test_noise_above_the_limit_is_named():
    """The reason gives the floor and the limit with their unit."""
    judged = verdict("bound", measured(0.4), limit(0.5), noise=floor(0.75))

    assert judged.reason == (
        "ref against its own repeats measures up to 0.75 nats, more than the limit 0.5 nats: "
        "the limit cannot tell cand from noise"
    )
    assert judged.judged == 0.4


def test_messages_give_number_limit_level_and_count():
    """Each reason stands alone. P(B(46, 0.1) <= 1) = 0.0478: 46 prompts allow one beyond."""
    tail = {"q": 0.9, "above": (0.45, 0.46, 0.47, 0.9)}
    failed = verdict("bound", measured(0.7, interval=interval(0.6, 0.9)), limit(0.5))
    plain = verdict("bound", measured(0.71234), limit(0.5))
    opened = verdict("bound", measured(0.3, interval=interval(0.1, 0.9, **tail)), limit(0.5))
    hopeless = verdict("bound", measured(0.5, interval=interval(0.1, 0.9)), limit(0.5))
    unknown = verdict("bound", measured(0.3, interval=interval(0.1, None)), limit(0.5))

    assert failed.reason == (
        "lower limit 0.6 nats at 99.75 % exceeds the limit 0.5 (n = 40 prompts)"
    )
    assert plain.reason == "0.7123 nats exceeds the limit 0.5 (n = 40 prompts)"
    assert opened.reason == (
        "upper limit 0.9 nats at 95 % is not inside the limit 0.5 (n = 40 prompts; about 61 needed)"
    )
    assert hopeless.reason is not None
    assert "the value itself is not below the limit" in hopeless.reason
    assert unknown.reason == (
        "no upper limit at 95 % can be given (n = 40 prompts; "
        "no number of units can be named that would settle it)"
    )


def test_an_undefined_value_is_a_fault_of_ours():
    """Rules are never asked about nothing; if they are, it is no verdict."""
    with pytest.raises(ValueError, match="undefined value reached a rule"):
        defined(measured(None, why_undefined="no data"))


@pytest.mark.parametrize("value", [NAN, INF])
def test_a_number_that_is_none_fails_the_rule_itself(value):
    """The judge settles such values before; the rule must not lean on that."""
    found = within(measured(value), 0.5)

    assert found.outcome == "FAIL"
    assert "exceeds the limit 0.5" in str(found.reason)


@pytest.mark.parametrize(
    ("value", "worst", "outcome"),
    [
        (0.1, 0.1, "PASS"),
        (0.1, 0.75, "PASS"),
        (0.1, math.nextafter(0.75, 1), "FAIL"),
        (0.6, 0.6, "FAIL"),
        (0.1, NAN, "FAIL"),
        (0.1, INF, "FAIL"),
        (0.1, None, "INCONCLUSIVE"),
    ],
)
def test_a_limit_with_a_worst_bounds_what_was_set_apart_too(value, worst, outcome):
    """Value limit 0.5, worst 0.75: rows that a tie has moved may be off by more, not by anything."""
    judged = verdict("bound", measured(value, worst_value=worst), limit(0.5, worst=0.75))

    assert judged.outcome == outcome
    assert judged.judged == value


def test_a_worst_row_counts_only_where_the_limit_has_one():
    assert verdict("bound", measured(0.1, worst_value=9.0), limit(0.5)).outcome == "PASS"


def test_a_worst_row_beyond_its_limit_fails_where_repeats_exceed_the_limit():
    """The repeats' own size makes the value INCONCLUSIVE; the worst row is judged apart from it."""
    judged = verdict(
        "bound", measured(0.6, worst_value=0.9), limit(0.5, worst=0.75), noise=floor(0.7)
    )

    assert judged.outcome == "FAIL"
    assert judged.reason is not None
    assert judged.reason.endswith("; the worst row measures 0.9, limit 0.75")
