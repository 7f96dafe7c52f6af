"""The noise-ratio rule: the same edges as bound, in units of the floor."""

import math

import pytest

from tests.unit.gates.made import floor, interval, limit, measured, verdict


@pytest.mark.parametrize(
    ("value", "noise", "outcome"),
    [
        (1.0, 0.5, "PASS"),
        (math.nextafter(1.0, 2), 0.5, "FAIL"),
        (0.0, 0.5, "PASS"),
        (1.0, 0.25, "FAIL"),
    ],
)
def test_ratio_of_a_deterministic_value(value, noise, outcome):
    """Limit 2: a value of twice the floor is the last to pass."""
    judged = verdict("noise_ratio", measured(value), limit(2.0), noise=floor(noise))

    assert judged.outcome == outcome
    assert judged.judged == value / noise
    assert (judged.reason is None) == (outcome == "PASS")


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (0.2, 1.0, "PASS"),
        (0.2, 1.5, "INCONCLUSIVE"),
        (1.5, 2.5, "FAIL"),
        (1.0, 2.5, "INCONCLUSIVE"),
        (None, 0.9, "PASS"),
        (None, None, "INCONCLUSIVE"),
        (1.5, None, "FAIL"),
    ],
)
def test_both_limits_are_divided(low, high, outcome):
    """Floor 0.5 and limit 2 put the edge at 1."""
    measurement = measured(0.9, interval=interval(low, high))
    judged = verdict("noise_ratio", measurement, limit(2.0), noise=floor(0.5))

    assert judged.outcome == outcome
    assert judged.measurement == measurement


@pytest.mark.parametrize(
    ("noise", "reason"),
    [
        (None, "the noise floor is not known: it was not measured"),
        (floor(None, why_undefined="2 repeats"), "the noise floor is not known: 2 repeats"),
        (floor(0.0), "the noise floor is 0: nothing to divide by"),
        (floor(-1.0), "the noise floor is -1: nothing to divide by"),
        (floor(math.nan), "the noise floor is nan: nothing to divide by"),
    ],
)
def test_no_floor_is_inconclusive(noise, reason):
    """Even a value of 0 does not pass without a floor."""
    judged = verdict("noise_ratio", measured(0.0), limit(2.0), noise=noise)

    assert judged.outcome == "INCONCLUSIVE"
    assert judged.reason == reason
    assert judged.judged is None


def test_message_gives_ratio_floor_and_its_source():
    """A derived floor says so."""
    plain = verdict("noise_ratio", measured(3.0), limit(2.0), noise=floor(0.5))
    derived = verdict("noise_ratio", measured(3.0), limit(2.0), noise=floor(0.5, derived=True))

    assert plain.reason == (
        "6 times the noise floor exceeds the limit 2 (n = 40 prompts); "
        "noise floor 0.5 nats (4 repeats)"
    )
    assert derived.reason is not None
    assert derived.reason.endswith("noise floor 0.5 nats (derived from unit roundoff)")
