"""``exact``: the measured number is the one demanded, to the last bit."""

from validate.gates.outcome import PASSED, Finding, counted, defined, excess, number
from validate.schema.measurement import Measurement
from validate.schema.verdict import Limit, NoiseFloor, Outcome

__all__ = ["decide"]


def decide(measurement: Measurement, *, limit: Limit, noise: NoiseFloor | None) -> Finding:
    """Judge a count or an exact difference.

    PASS where the value equals the demanded one. Where reference repeats do not
    keep to it either, nothing PASSes, and only a value beyond theirs FAILs.

    Args:
        measurement: Defined, finite, of at least one unit.
        limit: ``value`` is the demanded number, mostly 0.
        noise: The repeats of ref in the same unit; None: there are none to look at.
    """
    value = defined(measurement)
    beyond = excess(noise, limit.value)
    wanted = number(limit.value, measurement.unit)
    got = number(value, measurement.unit)
    if beyond is not None and not value > beyond:
        reason = (
            f"ref against its own repeats measures up to {number(beyond, measurement.unit)} where "
            f"exactly {wanted} is demanded, so {got} says nothing of cand"
        )
        return Finding(Outcome.INCONCLUSIVE, reason, value)
    upper = value if measurement.upper is None else measurement.upper
    if value == limit.value and upper != value:
        why = f": {measurement.why_open}" if measurement.why_open else ""
        reason = (
            f"between {got} and {number(upper, measurement.unit)} ({counted(measurement)}){why}"
        )
        return Finding(Outcome.INCONCLUSIVE, reason, value)
    if value == limit.value:
        return PASSED._replace(judged=value)
    reason = f"{got} where exactly {wanted} is demanded ({counted(measurement)})"
    return Finding(Outcome.FAIL, reason, value)
