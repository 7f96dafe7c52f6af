"""``noninferior``: cand is shown to be at most a margin worse, in each of several parts."""

import math

from validate.gates.bound import within
from validate.gates.outcome import PASSED, Finding, counted, defined, excess, number, percent
from validate.schema.measurement import Interval, Measurement
from validate.schema.verdict import Limit, NoiseFloor, Outcome
from validate.stats import trusted

__all__ = ["decide", "needed"]

MARGIN = 1.05
"""Units beyond what the law of large samples asks for."""


def decide(measurement: Measurement, *, limit: Limit, noise: NoiseFloor | None) -> Finding:
    """Judge by how much cand is worse than ref.

    PASS where the one-sided upper limit of the drop is inside the margin, FAIL where the lower
    limit at 1 - alpha_i exceeds it, else INCONCLUSIVE with the number of items that would do.
    The measurement's limits are the greatest of its parts' (tasks): a FAIL says that at least one
    task dropped, a PASS that all are inside.

    Args:
        measurement: Defined, finite, with an interval; ``worst_value`` is the drop of the part
            whose upper limit is the greatest, ``n`` its items.
        limit: ``value`` is the margin, in the measurement's unit.
        noise: The repeats of ref in the same unit; None: there are none to look at.
    """
    found = _against(measurement, limit.value)
    beyond = excess(noise, limit.value)
    if beyond is None:
        return found
    if math.isfinite(beyond) and within(measurement, beyond).outcome is Outcome.FAIL:
        return found
    reason = (
        f"ref's own repeats are worse by up to {number(beyond, measurement.unit)}, more than the margin "
        f"{number(limit.value, measurement.unit)}: the margin cannot tell cand from noise"
    )
    return Finding(Outcome.INCONCLUSIVE, reason, measurement.value)


def needed(measurement: Measurement, interval: Interval, margin: float) -> int | None:
    """Items that would bring the upper limit inside ``margin`` if what was seen stayed as it is.

    By the law of large samples, 5 % on top. None where the drop itself is not below the margin.
    """
    value = defined(measurement) if measurement.worst_value is None else measurement.worst_value
    if interval.high is None or not math.isfinite(interval.high) or not value < margin:
        return None
    ratio = (interval.high - value) / (margin - value)
    return math.ceil(MARGIN * measurement.n * ratio * ratio)


def _against(measurement: Measurement, margin: float) -> Finding:
    value, interval = defined(measurement), measurement.interval
    if interval is None:
        return Finding(Outcome.INCONCLUSIVE, "there is no interval, so nothing is shown", value)
    where = "" if measurement.worst is None else f"; {measurement.worst.place}"
    said = "" if measurement.pattern is None else f": {measurement.pattern}"
    if interval.low is not None and interval.low > margin:
        reason = (
            f"is worse by at least {number(interval.low, measurement.unit)} at "
            f"{percent(interval.low_level)}, beyond the margin {number(margin)} "
            f"({counted(measurement)}{where}){said}"
        )
        return Finding(Outcome.FAIL, reason, value)
    if interval.high is not None and interval.high <= margin:
        if trusted(interval.method, n=measurement.n, heavy=True):
            return PASSED._replace(judged=value)
        reason = f"limits by '{interval.method}' are not to be believed ({counted(measurement)})"
        return Finding(Outcome.INCONCLUSIVE, reason, value)
    return Finding(Outcome.INCONCLUSIVE, _open(measurement, interval, margin), value)


def _open(measurement: Measurement, interval: Interval, margin: float) -> str:
    """Why the upper limit is not enough, and how many items would be."""
    if interval.high is None:
        why = measurement.why_open or f"no upper limit at {percent(interval.high_level)}"
        return f"{why} ({counted(measurement)})"
    units = needed(measurement, interval, margin)
    more = (
        "the value itself is not below the margin, so more items alone will not settle it as PASS"
        if units is None
        else f"about {units} needed"
    )
    return (
        f"may be worse by up to {number(interval.high, measurement.unit)} at "
        f"{percent(interval.high_level)}, which is not inside the margin {number(margin)} "
        f"({counted(measurement)}; {more})"
    )
