"""``bound``: the measured quantity is at most the limit, at the stated confidence."""

import math

from validate.gates.outcome import PASSED, Finding, counted, defined, excess, number, percent
from validate.schema.measurement import Interval, Measurement
from validate.schema.verdict import Limit, NoiseFloor, Outcome

__all__ = ["MOST_UNITS", "decide", "enough", "within"]

MOST_UNITS = 10**9
"""A larger need than this is no plan: the value lies at the limit."""
FEWEST_UNITS = 2
"""One unit shows no spread, whatever the interval."""


def decide(measurement: Measurement, *, limit: Limit, noise: NoiseFloor | None) -> Finding:
    """Judge a measurement against an upper limit.

    FAIL where the lower confidence limit exceeds the limit, PASS where the
    upper confidence limit is inside, else INCONCLUSIVE. A measurement without an
    interval is deterministic: its value is both limits. Where a repeat of ref
    itself measures more than the limit nothing PASSes, and FAIL needs the
    lower limit to exceed the largest repeat too.

    Args:
        measurement: Defined, finite, of at least one unit.
        limit: ``value`` in the measurement's unit.
        noise: The repeats of ref in the same unit; None: there are none to look at.
    """
    found = within(measurement, limit.value)
    beyond = excess(noise, limit.value)
    if beyond is None:
        return found
    if math.isfinite(beyond) and within(measurement, beyond).outcome is Outcome.FAIL:
        return found
    unit = measurement.unit
    reason = (
        f"ref against its own repeats measures up to {number(beyond, unit)}, more than the limit "
        f"{number(limit.value, unit)}: the limit cannot tell cand from noise"
    )
    return Finding(Outcome.INCONCLUSIVE, reason, measurement.value)


def within(measurement: Measurement, limit: float) -> Finding:
    """The bound rule alone, on a defined and finite value."""
    value = defined(measurement)
    if measurement.interval is None:
        if value <= limit:
            return PASSED._replace(judged=value)
        reason = f"{number(value, measurement.unit)} exceeds the limit {number(limit)}"
        return Finding(Outcome.FAIL, f"{reason} ({counted(measurement)})", value)
    low, high = measurement.interval.low, measurement.interval.high
    if low is not None and low > limit:
        reason = _exceeds(measurement, low, measurement.interval.low_level, limit)
        return Finding(Outcome.FAIL, reason, value)
    if high is not None and math.isfinite(high) and high <= limit:
        return PASSED._replace(judged=value)
    return Finding(Outcome.INCONCLUSIVE, _open(measurement, measurement.interval, limit), value)


def enough(measurement: Measurement, limit: float) -> int | None:
    """Units that would bring the upper limit inside ``limit`` if the value stayed as it is.

    The half-width of an interval shrinks with the square root of n; what the
    metric itself says it needs comes on top. None where no number of units
    would help or no estimate can be made.
    """
    value = defined(measurement)
    asked = measurement.n_needed or 0
    high = None if measurement.interval is None else measurement.interval.high
    if not value < limit:
        return None
    if high is None or not math.isfinite(high):
        asked = max(asked, FEWEST_UNITS)
        return asked if asked > measurement.n else None
    scaled = measurement.n * ((high - value) / (limit - value)) * ((high - value) / (limit - value))
    if not scaled <= MOST_UNITS:
        return None
    return max(asked, math.ceil(scaled), measurement.n + 1)


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
    needed = enough(measurement, limit)
    if needed is not None:
        more = f"about {needed} needed"
    elif defined(measurement) < limit:
        more = "no number of units can be named that would settle it"
    else:
        more = (
            "the value itself is not below the limit, so more data alone will not settle it as PASS"
        )
    return f"{upper} ({counted(measurement)}; {more})"
