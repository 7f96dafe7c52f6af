"""Student's t limits for a mean of paired differences, and for its absolute value."""

import numpy as np
from numpy.typing import NDArray
from scipy import special

from validate.numerics import exact_sum
from validate.schema import Interval, Levels
from validate.stats._check import Numbers, check_levels, finite

__all__ = ["abs_mean_limits", "mean_limits"]

MIN_UNITS = 2
"""One unit has no spread to estimate: its limits are undefined, never of width 0."""


def mean_limits(values: Numbers, *, levels: Levels) -> Interval:
    """Student t limits for the mean over independent units.

    Meant for paired differences, which are near symmetric; for heavy-tailed
    numbers such as KL take ``quantile_limits``: few units cannot bound their mean.

    Args:
        values: One number per unit (prompt), e.g. cand minus ref.
        levels: One-sided confidence levels of the two limits.

    Returns:
        The limits; both None for fewer than two units. Where all values are equal, both are
        that value and the method says so.

    Raises:
        InputError: A value is not finite, or a level is outside (0, 1).

    Level:
        Exact for normal differences.

    Source:
        Student, Biometrika 6 (1908) 1; checked against ``scipy.stats.ttest_1samp``.
    """
    array = finite(values, name="values")
    check_levels(levels)
    if array.size < MIN_UNITS:
        return _undefined(levels, array.size, "t")
    mean, error = _mean_and_error(array)
    if error == 0.0:
        return _interval(levels, mean, mean, "t (all values equal)")
    return _interval(
        levels,
        mean - _t(array.size, levels.low) * error,
        mean + _t(array.size, levels.high) * error,
        "t",
    )


def abs_mean_limits(differences: Numbers, *, levels: Levels) -> Interval:
    """Student t limits for the absolute value of a mean difference.

    A bound on a difference in either direction: the upper limit holds both
    directions at ``levels.high`` each (two one-sided tests), the lower limit
    splits 1 - ``levels.low`` between them.

    Args:
        differences: One paired difference per unit (prompt), cand minus ref.
        levels: One-sided confidence levels of the two limits.

    Returns:
        The limits, at least 0; both None for fewer than two units.

    Raises:
        InputError: A value is not finite, or a level is outside (0, 1).

    Level:
        At least the stated one for normal differences; equal to it in the upper limit far from 0.

    Source:
        Schuirmann, J. Pharmacokinet. Biopharm. 15 (1987) 657.
    """
    half = Levels(low=0.5 + levels.low / 2, high=levels.high)
    array = finite(differences, name="differences")
    check_levels(levels)
    if array.size < MIN_UNITS:
        return _undefined(levels, array.size, "t on the absolute mean")
    mean, error = _mean_and_error(array)
    size = abs(mean)
    if error == 0.0:
        return _interval(levels, size, size, "t on the absolute mean (all values equal)")
    return _interval(
        levels,
        np.fmax(0.0, size - _t(array.size, half.low) * error).item(),
        size + _t(array.size, half.high) * error,
        "t on the absolute mean",
    )


def _mean_and_error(array: NDArray[np.float64]) -> tuple[float, float]:
    """Mean and its standard error; the error is exactly 0 when all values are equal."""
    if np.all(array == array[0]):
        return float(array[0]), 0.0
    mean = exact_sum(array) / array.size
    variance = exact_sum((array - mean) ** 2) / (array.size - 1)
    return mean, float(np.sqrt(variance / array.size))


def _t(n: int, level: float) -> float:
    return float(special.stdtrit(n - 1, level))


def _interval(levels: Levels, low: float, high: float, method: str) -> Interval:
    return Interval(low=low, low_level=levels.low, high=high, high_level=levels.high, method=method)


def _undefined(levels: Levels, n: int, method: str) -> Interval:
    return Interval(
        low=None,
        low_level=levels.low,
        high=None,
        high_level=levels.high,
        method=f"{method} (undefined: {n} of {MIN_UNITS} units)",
    )
