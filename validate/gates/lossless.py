"""``lossless``: a hypothesis is not rejected, by tests that would have seen the stated effect."""

import math

from validate.gates.outcome import PASSED, Finding, counted, defined, number, percent
from validate.schema.measurement import Detection, Measurement
from validate.schema.verdict import Limit, Outcome

__all__ = ["decide", "mismatch", "needed"]

MARGIN = 1.05
"""Units beyond what the law of large samples asks for."""
ROUNDING = 1e-9


def decide(measurement: Measurement, *, limit: Limit, alpha: float, beta: float) -> Finding:
    """Judge a p-value.

    FAIL where it is below the gate's share of alpha. A non-rejection is a PASS only
    where the stated effect would have been rejected with probability 1 - beta, else
    INCONCLUSIVE with the number of units that would do.

    Args:
        measurement: Defined and finite; its value is the p-value of all its tests together.
        limit: ``value`` is the stated effect, ``basis`` says what it measures.
        alpha: This gate's share of the suite's alpha.
        beta: Chance of missing the effect that is accepted.
    """
    p_value, detection = defined(measurement), measurement.detection
    if detection is None:
        return Finding(Outcome.INCONCLUSIVE, "the measurement does not say what it would have seen")
    if not p_value >= alpha:
        found = "" if measurement.pattern is None else f": {measurement.pattern}"
        reason = (
            f"p = {number(p_value)} is below the share of alpha {number(alpha)}"
            f" ({counted(measurement)}){found}"
        )
        return Finding(Outcome.FAIL, reason, p_value)
    if detection.effect <= limit.value:
        return PASSED._replace(judged=p_value)
    reason = (
        f"not rejected (p = {number(p_value)}), but {_blind(detection)}; the suite demands "
        f"{number(limit.value)} at {percent(1 - beta)} ({_effect(limit)}) "
        f"({counted(measurement)}{_more(measurement, limit.value)})"
    )
    return Finding(Outcome.INCONCLUSIVE, reason, p_value)


def needed(measurement: Measurement, effect: float) -> int | None:
    """Units at which ``effect`` would be seen, by the law of the square root; None: no telling.

    Power:
        Asked for 95 %; greedy rows of the stated effect FAILed at the number named for 125 of
        128 seeds (97.7 %, interval 93.3 to 99.5 %).
    """
    detection = measurement.detection
    if detection is None or not math.isfinite(detection.effect):
        return measurement.n_needed
    return math.ceil(MARGIN * measurement.n * (detection.effect / effect) ** 2)


def mismatch(
    measurement: Measurement, detection: Detection, alpha_share: float, beta: float
) -> Finding | None:
    """A p-value where the suite gives no alpha; power that was computed for a looser test.

    Raises:
        ValueError: Power was computed at a larger alpha, or for less than 1 - beta.
    """
    if not alpha_share > 0:
        reason = "the measurement is a p-value, but the suite gives this gate the weight 0"
        return Finding(Outcome.INCONCLUSIVE, reason, measurement.value)
    loose = detection.alpha > alpha_share * (1 + ROUNDING) + ROUNDING**2
    if loose or detection.power < 1 - beta - ROUNDING:
        msg = (
            f"{measurement.metric}: power computed at alpha {detection.alpha:.9g} for "
            f"{detection.power:.9g}, asked for {alpha_share:.9g} and {1 - beta:.9g}"
        )
        raise ValueError(msg)
    return None


def _blind(detection: Detection) -> str:
    if not math.isfinite(detection.effect):
        return "no effect would be seen"
    return f"the smallest effect that would be seen is {number(detection.effect)}"


def _effect(limit: Limit) -> str:
    return limit.basis or limit.pointer


def _more(measurement: Measurement, effect: float) -> str:
    count = needed(measurement, effect)
    return "" if count is None else f", about {count} needed"
