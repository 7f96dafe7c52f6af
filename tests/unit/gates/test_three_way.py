"""The three-way rule: the ratio and the worst row, both."""

import math

import pytest

from tests.unit.gates.made import floor, interval, limit, measured, verdict
from validate.errors import SuiteError

BELOW, ABOVE = math.nextafter(0.5, 0), math.nextafter(0.5, 1)


@pytest.mark.parametrize(
    ("low", "high", "worst", "outcome"),
    [
        (0.9, 1.2, 0.1, "PASS"),
        (0.9, 1.2, BELOW, "PASS"),
        (0.9, 1.2, 0.5, "PASS"),
        (0.9, 1.2, ABOVE, "FAIL"),
        (0.9, 1.2, math.nan, "FAIL"),
        (0.9, 1.2, math.inf, "FAIL"),
        (0.9, 1.2, -math.inf, "FAIL"),
        (0.9, 1.2, None, "INCONCLUSIVE"),
        (0.9, 1.9, 0.1, "INCONCLUSIVE"),
        (0.9, 1.9, 0.6, "FAIL"),
        (1.6, 1.9, 0.1, "FAIL"),
        (1.6, 1.9, None, "FAIL"),
        (1.6, 1.9, 0.6, "FAIL"),
    ],
)
def test_ratio_and_worst_row_must_both_hold(low, high, worst, outcome):
    """Ratio limit 1.5, worst row 0.5: a good bulk never hides a bad row, nor the reverse."""
    measurement = measured(1.1, unit="ratio", interval=interval(low, high), worst_value=worst)
    judged = verdict("three_way", measurement, limit(1.5, worst=0.5))

    assert judged.outcome == outcome
    assert judged.judged == 1.1
    assert (judged.reason is None) == (outcome == "PASS")


def test_every_reason_is_kept():
    """Both halves are told."""
    measurement = measured(2.0, unit="ratio", worst_value=0.6)
    judged = verdict("three_way", measurement, limit(1.5, worst=0.5))

    assert judged.reason == (
        "2 ratio exceeds the limit 1.5 (n = 40 prompts); the worst row measures 0.6, limit 0.5"
    )


def test_a_worst_row_that_is_no_number_is_told():
    """NaN at the worst row fails with its own sentence."""
    judged = verdict(
        "three_way", measured(1.0, worst_value=math.nan), limit(1.5, worst=0.5), noise=floor(1.0)
    )

    assert judged.reason == "the worst row measures nan, which is no finite number"


def test_missing_worst_limit_is_refused():
    """Half a gate never passes as a whole."""
    with pytest.raises(SuiteError, match="a three_way limit needs 'worst' beside 'value'"):
        verdict("three_way", measured(1.0, worst_value=0.1), limit(1.5))
