"""The noninferior rule at, just below and just above each of its edges."""

import math

import pytest

from tests.unit.gates.made import SHARE, floor, interval, limit, measured, spec
from validate.gates import judge
from validate.gates.noninferior import decide, needed
from validate.schema.suite import GateSpec
from validate.schema.verdict import Verdict

BELOW, ABOVE = math.nextafter(1.0, 0), math.nextafter(1.0, 2)
TANGO = "Tango score (lower limit exact, conditional)"


def judged(low, high, *, value=0.4, noise=None, **changes) -> Verdict:
    """A drop of ``value`` points of 500 items against a margin of one point."""
    found = measured(
        value,
        metric="evals.score_drop",
        unit="points",
        n=500,
        n_of="items of gsm8k",
        interval=interval(low, high, method=TANGO),
        **changes,
    )
    return judge(
        spec("noninferior", "evals.score_drop", weight=1.0),
        measurement=found,
        limit=limit(1.0),
        noise=noise,
        alpha_share=SHARE,
        rerun="validate compare",
    )


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (-0.5, 0.9, "PASS"),
        (-0.5, BELOW, "PASS"),
        (-0.5, 1.0, "PASS"),
        (-0.5, ABOVE, "INCONCLUSIVE"),
        (BELOW, 3.0, "INCONCLUSIVE"),
        (1.0, 3.0, "INCONCLUSIVE"),
        (ABOVE, 3.0, "FAIL"),
        (None, 0.9, "PASS"),
        (None, None, "INCONCLUSIVE"),
        (2.0, None, "FAIL"),
        (math.nan, 3.0, "INCONCLUSIVE"),
        (-0.5, math.nan, "INCONCLUSIVE"),
    ],
)
def test_interval_decides_by_its_two_limits(low, high, outcome):
    """FAIL by the lower limit, PASS by the upper, never by NaN."""
    found = judged(low, high)

    assert found.outcome == outcome
    assert (found.reason is None) == (outcome == "PASS")
    assert found.judged == 0.4


def test_inconclusive_names_the_items_needed():
    """Width 1.0 at 500 items, 0.6 wanted: (1.0 / 0.6)^2 times as many, 5 % on top."""
    found = judged(-0.5, 1.4)

    assert found.reason == (
        "may be worse by up to 1.4 points at 95 %, which is not inside the margin 1 "
        "(n = 500 items of gsm8k; about 1459 needed)"
    )


def test_needed_looks_at_the_part_whose_limit_decides():
    """``worst_value`` is that part's drop; the greatest drop may be another part's."""
    found = measured(0.9, n=500, worst_value=0.4, interval=interval(None, 1.4))

    assert needed(found, interval(None, 1.4), 1.0) == 1459
    assert needed(found, interval(None, None), 1.0) is None
    assert needed(measured(1.0, n=500), interval(None, 1.4), 1.0) is None


def test_a_drop_at_the_margin_is_not_settled_by_more_items():
    """The reason says so in place of a number."""
    found = judged(-0.5, 2.0, value=1.0)

    assert "more items alone will not settle it as PASS" in str(found.reason)


def test_failure_names_the_drop_and_the_pattern():
    """The reason stands alone: drop, level, margin, items, what fell."""
    found = judged(1.5, 3.0, value=2.2, pattern="1 of 2 scores fall")

    assert found.reason == (
        "is worse by at least 1.5 points at 99.75 %, beyond the margin 1 "
        "(n = 500 items of gsm8k): 1 of 2 scores fall"
    )


def test_part_without_an_upper_limit_says_why():
    """Ref at chance: no drop could show, so nothing passes."""
    found = judged(-0.5, None, why_open="hellaswag: ref scores no better than a guess")

    assert found.reason == ("hellaswag: ref scores no better than a guess (n = 500 items of gsm8k)")


@pytest.mark.parametrize(
    ("noise", "low", "high", "outcome"),
    [
        (1.0, -0.5, 0.9, "PASS"),
        (1.2, -0.5, 0.9, "INCONCLUSIVE"),
        (1.2, 1.1, 3.0, "INCONCLUSIVE"),
        (1.2, 1.3, 3.0, "FAIL"),
        (math.nan, -0.5, 0.9, "INCONCLUSIVE"),
    ],
)
def test_repeats_beyond_the_margin_settle_nothing(noise, low, high, outcome):
    """Where ref's own repeats drop by more, only a larger drop FAILs."""
    assert judged(low, high, noise=floor(noise)).outcome == outcome


def test_too_few_items_never_pass():
    """Tango's limit was enumerated from 100 items on."""
    found = judge(
        spec("noninferior", "evals.score_drop", weight=1.0),
        measurement=measured(0.0, n=99, interval=interval(-1.0, 0.5, method=TANGO)),
        limit=limit(1.0),
        noise=None,
        alpha_share=SHARE,
        rerun="validate compare",
    )

    assert found.outcome == "INCONCLUSIVE"
    assert "not to be believed" in str(found.reason)


def test_a_drop_without_an_interval_shows_nothing():
    """A weight demands an interval before the rule is asked."""
    found = judge(
        spec("noninferior", "evals.score_drop", weight=1.0),
        measurement=measured(0.0),
        limit=limit(1.0),
        noise=None,
        alpha_share=SHARE,
        rerun="validate compare",
    )

    assert found.outcome == "INCONCLUSIVE"


def test_gate_needs_a_weight():
    """A margin is judged by limits, and limits cost alpha."""
    with pytest.raises(ValueError, match="a noninferior gate needs a weight"):
        GateSpec(name="evals.score_drop", kind="noninferior")


@pytest.mark.parametrize(("method", "outcome"), [(TANGO, "PASS"), ("t", "INCONCLUSIVE")])
def test_no_pass_on_limits_that_heavy_tails_break(method, outcome):
    """golden/reports/calibration.md: Student's t is right from 8 units of light tails, of heavy never."""
    found = measured(0.4, unit="points", n=500, interval=interval(-0.5, 0.9, method=method))

    assert decide(found, limit=limit(1.0), noise=None).outcome == outcome
