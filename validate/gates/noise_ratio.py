"""``noise_ratio``: the measured difference is at most so many times the noise floor."""

import dataclasses

from validate.gates import bound
from validate.gates.outcome import Finding, defined, number
from validate.schema.measurement import Interval, Measurement
from validate.schema.verdict import Limit, NoiseFloor, Outcome

__all__ = ["decide"]


def decide(measurement: Measurement, *, limit: Limit, noise: NoiseFloor | None) -> Finding:
    """Judge a measurement divided by the upper confidence limit of its noise floor.

    Args:
        measurement: Defined, finite, of at least one unit.
        limit: ``value`` is the allowed ratio.
        noise: The floor in the measurement's unit; undefined: INCONCLUSIVE.
    """
    if noise is None:
        return Finding(Outcome.INCONCLUSIVE, "the noise floor is not known: it was not measured")
    floor = noise.value
    if floor is None:
        return Finding(Outcome.INCONCLUSIVE, f"the noise floor is not known: {noise.why_undefined}")
    if not floor > 0:
        return Finding(Outcome.INCONCLUSIVE, f"the noise floor is {floor:g}: nothing to divide by")
    found = bound.within(_over(measurement, floor), limit.value)
    if found.reason is None:
        return found
    source = "derived from unit roundoff" if noise.derived else f"{noise.repeats} repeats"
    reason = f"{found.reason}; noise floor {number(floor, measurement.unit)} ({source})"
    return found._replace(reason=reason)


def _over(measurement: Measurement, floor: float) -> Measurement:
    interval = measurement.interval
    return dataclasses.replace(
        measurement,
        value=defined(measurement) / floor,
        unit="times the noise floor",
        upper=None if measurement.upper is None else measurement.upper / floor,
        interval=None if interval is None else _interval_over(interval, floor),
    )


def _interval_over(interval: Interval, floor: float) -> Interval:
    return dataclasses.replace(
        interval,
        low=None if interval.low is None else interval.low / floor,
        high=None if interval.high is None else interval.high / floor,
        above=tuple(unit / floor for unit in interval.above),
    )
