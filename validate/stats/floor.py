"""The noise floor: an upper confidence limit over repeats of the reference."""

from dataclasses import replace

import numpy as np

from validate.errors import InputError
from validate.schema import Interval, Levels
from validate.stats._check import Numbers, check_levels, finite
from validate.stats.mean import mean_limits

__all__ = ["FLOOR_MIN_REPEATS", "floor_limits"]

FLOOR_MIN_REPEATS = 3
"""Repeats below which no floor is given."""


def floor_limits(values: Numbers, *, levels: Levels) -> Interval:
    """Limits for the typical value of a metric between ref and a repeat of ref.

    t limits on the logarithm: a metric between repeats is positive and spreads
    by factors. The upper limit is the floor that gates divide by.

    Args:
        values: The metric of ref against each repeat, in the metric's unit, not negative.
        levels: One-sided confidence levels of the two limits.

    Returns:
        The limits. Both None for fewer than ``FLOOR_MIN_REPEATS`` repeats. Where every
        repeat measured exactly 0 both are 0 (the caller then takes a floor derived from
        unit roundoff and says so). Where some did, a logarithm is not to be had: ``high`` is
        the maximum, whose level ``1 - 2^-n`` for the median stands in ``high_level``.

    Raises:
        InputError: A value is negative or not finite, or a level is outside (0, 1).

    Level:
        Exact for the median of a log-normal spread; between 93 and 98 % for
        gamma-like spreads (shape 2 to 20) at 95 % with 3 to 8 repeats.

    Source:
        Order statistics for the maximum (Hahn and Meeker, chapter 5); calibrated in
        ``tests/statistical/test_limits.py``.
    """
    array = finite(values, name="values")
    check_levels(levels)
    if (array < 0).any():
        first = int(np.argmax(array < 0))
        msg = f"`values` must not be negative, got {array[first]} at {first}"
        raise InputError(msg)
    blank = Interval(
        low=None, low_level=levels.low, high=None, high_level=levels.high, method="t on the log"
    )
    if array.size < FLOOR_MIN_REPEATS:
        why = f"undefined: {array.size} of {FLOOR_MIN_REPEATS} repeats"
        return replace(blank, method=f"t on the log ({why})")
    if not array.any():
        return replace(blank, low=0.0, high=0.0, method="every repeat measured exactly 0")
    if not array.all():
        return replace(
            blank,
            high=float(array.max()),
            high_level=1.0 - 0.5**array.size,
            method="maximum over repeats (some measured exactly 0)",
        )
    inner = mean_limits(np.log(array), levels=levels)
    return replace(
        inner,
        low=None if inner.low is None else float(np.exp(inner.low)),
        high=None if inner.high is None else float(np.exp(inner.high)),
        method=f"{inner.method} on the log",
    )
