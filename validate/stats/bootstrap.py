"""Bootstrap limits for a mean of paired differences over prompts."""

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from validate.errors import InputError
from validate.schema import Interval, Levels
from validate.stats._check import Numbers, check_levels, finite

__all__ = ["bootstrap_limits", "resamples_needed"]

MIN_UNITS = 2
MOST_DRAWS = 400_000_000
"""Units times resamples above which an analytic interval is asked for instead."""
BLOCK = 2_000_000
"""Draws held in memory at a time."""


def resamples_needed(levels: Levels) -> int:
    """Resamples for limits at these levels: 100 / alpha of the more demanding one.

    Example:
        >>> resamples_needed(Levels(low=0.99975, high=0.95))
        400000
    """
    check_levels(levels)
    tail = 1.0 - (levels.low if levels.low > levels.high else levels.high)
    return math.ceil(round(100.0 / tail, 6))


def bootstrap_limits(
    values: Numbers,
    *,
    levels: Levels,
    rng: np.random.Generator,
    method: Literal["studentised", "percentile"] = "studentised",
) -> Interval:
    """Bootstrap limits for the mean over independent units (prompts).

    Assumptions: units are independent and equally drawn. Pass one number per prompt (the
    paired difference, the prompt's mean), so that prompts are resampled, never tokens.

    Args:
        values: One number per prompt.
        levels: One-sided confidence levels of the two limits.
        rng: Where the resamples come from; the same seed gives the same limits.
        method: ``studentised``, or ``percentile``, which is here to be measured against: no
            gate uses it (see ``N_MIN``).

    Returns:
        The limits; both None for fewer than two units or where all are equal; one of them
        None where so many resamples have no spread that its quantile is infinite.

    Raises:
        InputError: A value is not finite, a level is outside (0, 1), or the resamples that the
            levels ask for are too many for so many units.

    Level:
        By simulation, in ``docs/statistics.md``: for heavy tails neither method holds it.

    Power:
        ``power_mean_t``, to which it comes close for light tails.

    Source:
        Efron and Tibshirani, An Introduction to the Bootstrap (1993), 12.5 (studentised), 13.3.
    """
    array = finite(values, name="values")
    resamples = resamples_needed(levels)
    name = f"{method} bootstrap, {resamples} resamples"
    if array.size < MIN_UNITS:
        why = f"undefined: {array.size} of {MIN_UNITS} units"
        return _interval(levels, None, None, f"{name} ({why})")
    if (array == array[0]).all():
        return _interval(levels, None, None, f"{name} (undefined: all values equal)")
    if array.size * resamples > MOST_DRAWS:
        msg = (
            f"{resamples} resamples of {array.size} units are {array.size * resamples} draws, more "
            f"than {MOST_DRAWS}; take `mean_limits` or `cluster_mean_limits`, which need none"
        )
        raise InputError(msg)
    mean, spread = float(array.mean()), float(array.std(ddof=1)) / math.sqrt(array.size)
    means, spreads = _resample(array, resamples, rng)
    if method == "percentile":
        means.sort()
        low, high = _tails(means, levels)
        return _interval(levels, low, high, name)
    off = means - mean
    with np.errstate(divide="ignore", invalid="ignore"):
        pivots = np.where(spreads > 0, off / spreads, np.where(off > 0, np.inf, -np.inf))
    pivots.sort()
    bottom, top = _tails(pivots, Levels(low=levels.high, high=levels.low))
    return _interval(levels, _finite(mean - top * spread), _finite(mean - bottom * spread), name)


def _resample(
    array: NDArray[np.float64], resamples: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard error of each resample."""
    n = array.size
    means, spreads = np.empty(resamples), np.empty(resamples)
    rows = max(1, BLOCK // n)
    for start in range(0, resamples, rows):
        part = slice(start, min(start + rows, resamples))
        drawn = array[rng.integers(n, size=(part.stop - start, n))]
        means[part] = drawn.mean(axis=1)
        drawn -= means[part, None]
        spreads[part] = np.sqrt(np.einsum("ij,ij->i", drawn, drawn) / (n * (n - 1)))
    return means, spreads


def _tails(ordered: NDArray[np.float64], levels: Levels) -> tuple[float, float]:
    """Order statistics of rank (B + 1)(1 - low) from below and (B + 1)(1 - high) from above."""
    count = ordered.size
    below = max(1, math.floor((count + 1) * (1.0 - levels.low) + 1e-9))
    above = max(1, math.floor((count + 1) * (1.0 - levels.high) + 1e-9))
    return float(ordered[below - 1]), float(ordered[count - above])


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _interval(levels: Levels, low: float | None, high: float | None, method: str) -> Interval:
    return Interval(low=low, low_level=levels.low, high=high, high_level=levels.high, method=method)
