"""``judge``: what every gate checks first, then the rule of its kind."""

import math

from validate.errors import SuiteError
from validate.gates import bound, exact, lossless, noise_ratio, noninferior, three_way
from validate.gates.outcome import Finding
from validate.schema.measurement import Measurement
from validate.schema.suite import GateSpec
from validate.schema.verdict import GateKind, Limit, NoiseFloor, Outcome, Verdict

__all__ = ["judge"]

_KINDS = {
    "exact": exact.decide,
    "bound": bound.decide,
    "noise_ratio": noise_ratio.decide,
    "three_way": three_way.decide,
    "noninferior": noninferior.decide,
}


def judge(
    gate: GateSpec,
    *,
    measurement: Measurement,
    limit: Limit,
    noise: NoiseFloor | None,
    alpha_share: float,
    rerun: str,
    beta: float = 0.05,
    deviation: str | None = None,
) -> Verdict:
    """Judge one measurement.

    An undefined value is INCONCLUSIVE, or INCOMPARABLE where the sides are unlike;
    a value that is not finite FAILs; no units at all are INCONCLUSIVE. A yardstick
    gate that fails is INCOMPARABLE: the yardstick is at fault, not cand.

    Args:
        gate: Which rule.
        measurement: What the metric measured.
        limit: The number to hold it against; for ``exact`` the demanded value.
        noise: The same measurement between ref and its repeats, if there is one.
        alpha_share: This gate's share of the suite's alpha; 0 for deterministic gates.
        rerun: The command that judges this gate again.
        beta: Chance of a false PASS that the upper limit must keep to.
        deviation: Id of the declared deviation whose budget ``limit`` is. The budget
            of an ``exact`` gate bounds its count.

    Raises:
        SuiteError: The limit is not finite, or lacks what the kind needs.
        ValueError: The interval was made at lower levels than this gate asks for.
    """
    kind: GateKind = gate.kind
    if deviation is not None and kind == "exact":
        kind = "bound"
    _check_limit(limit)
    found = _before(measurement, alpha_share, beta)
    if found is None and kind == "lossless":
        found = lossless.decide(measurement, limit=limit, alpha=alpha_share, beta=beta)
    if found is None:
        found = _KINDS[kind](measurement, limit=limit, noise=noise)
    outcome = found.outcome
    if outcome is Outcome.FAIL and gate.area == "yardstick":
        outcome = Outcome.INCOMPARABLE
    return Verdict(
        gate=gate.name,
        kind=kind,
        outcome=outcome,
        alpha_share=alpha_share,
        measurement=measurement,
        limit=limit,
        noise=noise,
        reason=found.reason,
        rerun=rerun,
        judged=found.judged,
        deviation=deviation,
    )


def _check_limit(limit: Limit) -> None:
    numbers = [limit.value] if limit.worst is None else [limit.value, limit.worst]
    if not all(map(math.isfinite, numbers)):
        msg = f"{limit.pointer}: a limit must be a finite number, got {numbers}"
        raise SuiteError(msg)


def _before(measurement: Measurement, alpha_share: float, beta: float) -> Finding | None:
    """What is settled before any limit is looked at; None: the rule of the kind decides."""
    if measurement.value is None:
        unlike = measurement.undefined_kind == "unlike"
        outcome = Outcome.INCOMPARABLE if unlike else Outcome.INCONCLUSIVE
        return Finding(outcome, f"undefined: {measurement.why_undefined}{_more(measurement)}")
    if not math.isfinite(measurement.value):
        return Finding(Outcome.FAIL, f"measures {measurement.value}, which is no finite number")
    if not measurement.n > 0:
        return Finding(
            Outcome.INCONCLUSIVE, f"n = {measurement.n} {measurement.n_of}: nothing was measured"
        )
    return _mismatch(measurement, alpha_share, beta)


def _more(measurement: Measurement) -> str:
    if measurement.n_needed is None:
        return ""
    return f" (n = {measurement.n} {measurement.n_of}, {measurement.n_needed} needed)"


def _mismatch(measurement: Measurement, alpha_share: float, beta: float) -> Finding | None:
    """An interval where the suite expects none, none where it expects one, or too weak a one."""
    interval = measurement.interval
    if measurement.detection is not None:
        return lossless.mismatch(measurement, measurement.detection, alpha_share, beta)
    if interval is None:
        if alpha_share > 0:
            reason = "the suite gives this gate a weight, but its measurement has no interval"
            return Finding(Outcome.INCONCLUSIVE, reason, measurement.value)
        return None
    if not alpha_share > 0:
        reason = "the measurement has an interval, but the suite gives this gate the weight 0"
        return Finding(Outcome.INCONCLUSIVE, reason, measurement.value)
    if interval.low_level < 1 - alpha_share or interval.high_level < 1 - beta:
        msg = (
            f"{measurement.metric}: interval at levels {interval.low_level:.9g} and "
            f"{interval.high_level:.9g}, asked for {1 - alpha_share:.9g} and {1 - beta:.9g}"
        )
        raise ValueError(msg)
    return None
