"""The noise floor: what ref measures against its own repeats."""

import math
from collections.abc import Sequence

from validate.errors import InputError
from validate.schema.measurement import Levels
from validate.schema.verdict import NoiseFloor
from validate.stats import FLOOR_MIN_REPEATS, floor_limits

__all__ = ["MIN_REPEATS", "noise_floor", "unit_roundoff"]

MIN_REPEATS = FLOOR_MIN_REPEATS
"""Fewer repeats give no floor."""

_SIGNIFICAND_BITS = {
    "float64": 53,
    "float32": 24,
    "float16": 11,
    "bfloat16": 8,
    "float8_e4m3fn": 4,
    "float8_e4m3fnuz": 4,
    "float8_e5m2": 3,
}


def unit_roundoff(dtype: str) -> float:
    """Largest relative error of rounding to nearest: 2 to the minus significand bits.

    Args:
        dtype: By full name, e.g. ``bfloat16``.

    Raises:
        InputError: The dtype is not known.

    Source:
        Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 2.1;
        bits with the hidden one: IEEE 754 table 3.5, OCP 8-bit floating point 1.0.

    Example:
        >>> unit_roundoff("bfloat16")
        0.00390625
    """
    if dtype not in _SIGNIFICAND_BITS:
        msg = f"no unit roundoff is known for '{dtype}'; known: {', '.join(_SIGNIFICAND_BITS)}"
        raise InputError(msg)
    return float(2.0 ** -_SIGNIFICAND_BITS[dtype])


def noise_floor(
    values: Sequence[float],
    *,
    dtype: str,
    roundoff: tuple[float, int] | None = None,
    level: float = 0.95,
) -> NoiseFloor:
    """Upper confidence limit of a measurement between ref and its repeats.

    Args:
        values: The measurement on each (ref, repeat) pair, in its unit.
        dtype: Dtype whose unit roundoff stands in for a floor below one rounding.
        roundoff: ``(scale, power)`` of that stand-in; None: there is none, and a
            floor of 0 stays 0. Repeats that measure less than one rounding of the
            working dtype rounded alike; that does not make rounding free, and each
            counts as one rounding.
        level: One-sided confidence level of the limit.

    Returns:
        The upper limit of ``validate.stats.floor_limits``; undefined for fewer than
        ``MIN_REPEATS`` repeats and where any of them is negative or not finite.
    """
    given = tuple(values)
    bad = [value for value in given if not (math.isfinite(value) and value >= 0)]
    if bad:
        return _undefined(f"{len(bad)} of {len(given)} repeats measure {bad[0]}", given)
    # What lies below one rounding is censored there: a repeat that happened to round alike would
    # else stretch the spread of logarithms, and with it the limit, without bound.
    stand_in = 0.0 if roundoff is None else roundoff[0] * unit_roundoff(dtype) ** roundoff[1]
    held = [max(value, stand_in) for value in given]
    upper = floor_limits(held, levels=Levels(low=level, high=level)).high
    if upper is None:
        return _undefined(f"{len(given)} repeats of ref, at least {MIN_REPEATS} needed", given)
    if not any(value >= stand_in for value in given):
        return NoiseFloor(value=stand_in, repeats=len(given), values=given, derived=True)
    return NoiseFloor(value=upper, repeats=len(given), values=given)


def _undefined(why: str, values: tuple[float, ...]) -> NoiseFloor:
    return NoiseFloor(value=None, repeats=len(values), values=values, why_undefined=why)
