"""``bound``: the measured quantity is at most the limit, at the stated confidence."""

import math

from validate.gates.outcome import (
    PASSED,
    Finding,
    counted,
    defined,
    excess,
    number,
    percent,
    unpooled,
    worst_of,
)
from validate.schema.measurement import Interval, Measurement
from validate.schema.verdict import Limit, NoiseFloor, Outcome
from validate.stats import n_min, trusted, units_needed

__all__ = ["decide", "enough", "within"]


def decide(measurement: Measurement, *, limit: Limit, noise: NoiseFloor | None) -> Finding:
    """Judge a measurement against an upper limit.

    FAIL where the lower confidence limit exceeds the limit, PASS where the
    upper confidence limit is inside, else INCONCLUSIVE. A measurement without an
    interval is deterministic: its value is both limits. Where a repeat of ref
    itself measures more than the limit nothing PASSes, and FAIL needs the
    lower limit to exceed the largest repeat too.

    Args:
        measurement: Defined, finite, of at least one unit; ``worst_value`` is the same
            quantity at its worst row, in whatever unit ``limit.worst`` is given.
        limit: ``value`` in the measurement's unit; ``worst``, where there is one, bounds the
            worst row apart from it.
        noise: The repeats of ref in the same unit; None: there are none to look at.
    """
    found = _value(measurement, limit.value, noise)
    return found if limit.worst is None else worst_of(found, _worst_row(measurement, limit.worst))


def _value(measurement: Measurement, limit: float, noise: NoiseFloor | None) -> Finding:
    found = within(measurement, limit)
    beyond = excess(noise, limit)
    if beyond is None:
        return found
    if math.isfinite(beyond) and within(measurement, beyond).outcome is Outcome.FAIL:
        return found
    unit = measurement.unit
    reason = (
        f"ref against its own repeats measures up to {number(beyond, unit)}, more than the limit "
        f"{number(limit, unit)}: the limit cannot tell cand from noise"
    )
    return Finding(Outcome.INCONCLUSIVE, reason, measurement.value)


def _worst_row(measurement: Measurement, limit: float) -> Finding:
    worst = measurement.worst_value
    if worst is None:
        return Finding(Outcome.INCONCLUSIVE, "the worst row was not measured")
    if not math.isfinite(worst):
        return Finding(Outcome.FAIL, f"the worst row measures {worst}, which is no finite number")
    few = unpooled(measurement, limit)
    if few is not None:
        return few
    if worst <= limit:
        return PASSED
    return Finding(Outcome.FAIL, f"the worst row measures {number(worst)}, limit {number(limit)}")


def within(measurement: Measurement, limit: float) -> Finding:
    """The bound rule alone, on a defined and finite value."""
    interval = measurement.interval
    if interval is None:
        return _deterministic(measurement, limit)
    value = defined(measurement)
    low, high = interval.low, interval.high
    if low is not None and low > limit:
        return Finding(Outcome.FAIL, _exceeds(measurement, low, interval.low_level, limit), value)
    if high is not None and math.isfinite(high) and high <= limit:
        if trusted(interval.method, n=measurement.n, heavy=True):
            return PASSED._replace(judged=value)
        return Finding(Outcome.INCONCLUSIVE, _untrusted(measurement, interval), value)
    return Finding(Outcome.INCONCLUSIVE, _open(measurement, interval, limit), value)


def _deterministic(measurement: Measurement, limit: float) -> Finding:
    """The value itself, or where it is not exact its bounds: FAIL by the lower, PASS by the upper."""
    value = defined(measurement)
    few = unpooled(measurement, limit)
    if few is not None:
        return few
    if not value <= limit:
        reason = f"{number(value, measurement.unit)} exceeds the limit {number(limit)}"
        return Finding(Outcome.FAIL, f"{reason} ({counted(measurement)})", value)
    upper = value if measurement.upper is None else measurement.upper
    if upper <= limit:
        return PASSED._replace(judged=value)
    reason = (
        f"between {number(value)} and {number(upper, measurement.unit)}, which is not inside the "
        f"limit {number(limit)} ({counted(measurement)}{_why(measurement)})"
    )
    return Finding(Outcome.INCONCLUSIVE, reason, value)


def enough(measurement: Measurement, interval: Interval, limit: float) -> int | None:
    """Units that would bring the upper limit inside ``limit`` if what was seen stayed as it is.

    What the metric itself says it needs comes on top. None where the value is not below the
    limit, or no number of units can be named.
    """
    found = units_needed(interval, value=defined(measurement), n=measurement.n, limit=limit)
    return None if found is None else max(found, measurement.n_needed or 0, measurement.n + 1)


def _exceeds(measurement: Measurement, low: float, level: float, limit: float) -> str:
    return (
        f"lower limit {number(low, measurement.unit)} at {percent(level)} exceeds the limit "
        f"{number(limit)} ({counted(measurement)})"
    )


def _open(measurement: Measurement, interval: Interval, limit: float) -> str:
    if interval.high is None:
        upper = f"no upper limit at {percent(interval.high_level)} can be given"
    else:
        upper = (
            f"upper limit {number(interval.high, measurement.unit)} at "
            f"{percent(interval.high_level)} is not inside the limit {number(limit)}"
        )
    if measurement.why_open is not None:
        return f"{upper} ({counted(measurement)}{_why(measurement)})"
    needed = enough(measurement, interval, limit)
    if needed is not None:
        more = f"about {needed} needed"
    elif defined(measurement) < limit:
        more = "no number of units can be named that would settle it"
    else:
        more = (
            "the value itself is not below the limit, so more data alone will not settle it as PASS"
        )
    return f"{upper} ({counted(measurement)}; {more})"


def _why(measurement: Measurement) -> str:
    return f"; {measurement.why_open}" if measurement.why_open else ""


def _untrusted(measurement: Measurement, interval: Interval) -> str:
    """No PASS on limits that were not calibrated for so few units."""
    least = n_min(interval.method, heavy=True)
    need = "calibrated at no number of units" if least is None else f"about {least} needed"
    return (
        f"limits by '{interval.method}' are not to be believed here "
        f"({counted(measurement)}; {need}, see golden/reports/calibration.md)"
    )
