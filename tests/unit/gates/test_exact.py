"""The exact rule: one number passes, all others fail."""

import math

import pytest

from tests.unit.gates.made import floor, limit, measured, verdict


@pytest.mark.parametrize(
    ("value", "demanded", "outcome"),
    [
        (0.0, 0.0, "PASS"),
        (-0.0, 0.0, "PASS"),
        (1.0, 0.0, "FAIL"),
        (-1.0, 0.0, "FAIL"),
        (5e-324, 0.0, "FAIL"),
        (-5e-324, 0.0, "FAIL"),
        (1.0, 1.0, "PASS"),
        (math.nextafter(1, 2), 1.0, "FAIL"),
        (math.nextafter(1, 0), 1.0, "FAIL"),
        (0.0, 1.0, "FAIL"),
    ],
)
def test_only_the_demanded_number_passes(value, demanded, outcome):
    """The smallest subnormal away from the demanded value fails, on either side."""
    judged = verdict("exact", measured(value), limit(demanded))

    assert judged.outcome == outcome
    assert judged.judged == value


@pytest.mark.parametrize(
    ("value", "noise", "outcome"),
    [
        (0.0, 0.0, "PASS"),
        (0.0, None, "PASS"),
        (1.0, None, "FAIL"),
        (1.0, 0.0, "FAIL"),
        (0.0, 2.0, "INCONCLUSIVE"),
        (2.0, 2.0, "INCONCLUSIVE"),
        (1.0, 2.0, "INCONCLUSIVE"),
        (3.0, 2.0, "FAIL"),
    ],
)
def test_repeats_that_are_not_exact_settle_nothing(value, noise, outcome):
    """Where ref itself breaks the rule, only what goes beyond ref is held against cand."""
    judged = verdict("exact", measured(value), limit(0.0), noise=floor(noise))

    assert judged.outcome == outcome


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_repeat_that_is_no_number_settles_nothing(bad):
    """Neither PASS nor FAIL."""
    noise = floor(None, values=(0.0, bad))

    assert verdict("exact", measured(0.0), limit(0.0), noise=noise).outcome == "INCONCLUSIVE"
    assert verdict("exact", measured(9.0), limit(0.0), noise=noise).outcome == "INCONCLUSIVE"


def test_messages_name_both_numbers():
    """What was measured, what was demanded, over how many."""
    failed = verdict("exact", measured(3.0, unit="positions"), limit(0.0))
    open_ = verdict("exact", measured(0.0, unit="positions"), limit(0.0), noise=floor(2.0))

    assert failed.reason == ("3 positions where exactly 0 positions is demanded (n = 40 prompts)")
    assert open_.reason == (
        "ref against its own repeats measures up to 2 positions where exactly 0 positions is "
        "demanded, so 0 positions says nothing of cand"
    )
