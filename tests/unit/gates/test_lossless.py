"""``lossless``: rejection, power, and what both cannot say."""

import math
from typing import Any

import pytest

from tests.unit.gates.made import SHARE, limit, measured, spec
from validate.gates import judge
from validate.schema.measurement import Detection
from validate.schema.verdict import Outcome

EFFECT: dict[str, Any] = {"effect": 0.3, "effect_of": "share of tokens drawn from the argmax"}
AT = limit(0.3, basis="share of tokens drawn from the argmax")


def seen(effect: float, **changes):
    fields = {"effect": effect, "alpha": SHARE, "power": 0.95, "method": "z"}
    return Detection(**{**fields, **changes})


def judged(p_value, effect=0.2, *, share=SHARE, detection=None, **changes):
    found = measured(
        p_value,
        n=1000,
        n_of="sampled tokens",
        unit="p-value",
        detection=seen(effect) if detection is None else detection,
        **changes,
    )
    return judge(
        spec("lossless", weight=1, **EFFECT),
        measurement=found,
        limit=AT,
        noise=None,
        alpha_share=share,
        rerun="validate compare",
    )


def test_a_rejection_fails_and_says_what_was_found():
    verdict = judged(0.001, pattern="sampling is greedy: every token at T > 0 is the argmax")

    assert verdict.outcome is Outcome.FAIL
    assert verdict.reason == (
        "p = 0.001 is below the share of alpha 0.0025 (n = 1000 sampled tokens): "
        "sampling is greedy: every token at T > 0 is the argmax"
    )


def test_a_rejection_needs_no_power():
    assert judged(0.001, effect=math.inf).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("p_value", "effect", "outcome"),
    [
        (0.0025, 0.3, Outcome.PASS),
        (0.00249, 0.3, Outcome.FAIL),
        (1.0, 0.3, Outcome.PASS),
        (1.0, 0.301, Outcome.INCONCLUSIVE),
        (math.nan, 0.1, Outcome.FAIL),
    ],
)
def test_edges(p_value, effect, outcome):
    assert judged(p_value, effect).outcome is outcome


def test_without_power_it_says_how_much_would_do():
    """1000 x (0.6 / 0.3)^2 x 1.05 = 4200."""
    verdict = judged(0.5, effect=0.6)

    assert verdict.reason == (
        "not rejected (p = 0.5), but the smallest effect that would be seen is 0.6; the suite "
        "demands 0.3 at 95 % (share of tokens drawn from the argmax) "
        "(n = 1000 sampled tokens, about 4200 needed)"
    )


def test_no_effect_at_all_would_be_seen():
    verdict = judged(0.5, effect=math.inf)

    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "no effect would be seen" in (verdict.reason or "")
    assert "needed" not in (verdict.reason or "")


def test_nan_power_never_passes():
    assert judged(0.5, effect=math.nan).outcome is Outcome.INCONCLUSIVE


def test_a_gate_without_alpha_says_nothing():
    verdict = judged(0.5, share=0.0)

    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.reason == (
        "the measurement is a p-value, but the suite gives this gate the weight 0"
    )


@pytest.mark.parametrize("changes", [{"alpha": 2 * SHARE}, {"power": 0.9}])
def test_power_of_a_looser_test_is_an_error(changes):
    with pytest.raises(ValueError, match="power computed at alpha"):
        judged(0.5, detection=seen(0.1, **changes))


def test_a_measurement_without_power_is_open():
    verdict = judge(
        spec("lossless", weight=1, **EFFECT),
        measurement=measured(0.5),
        limit=AT,
        noise=None,
        alpha_share=SHARE,
        rerun="",
    )

    assert verdict.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("kind", "fields"),
    [("lossless", {}), ("lossless", {"effect": 0.3}), ("bound", EFFECT)],
)
def test_effects_belong_to_lossless_gates(kind, fields):
    with pytest.raises(ValueError, match="a lossless gate, and no other, states 'effect'"):
        spec(kind, **fields)
