"""Limits for the mean of a metric in [0, 1] that hold at every n and for every shape."""

import math

import numpy as np
from numpy.typing import NDArray

from validate.errors import InputError
from validate.schema import Interval, Levels
from validate.stats._check import Numbers, check_levels, finite

__all__ = ["bernstein_limits", "betting_limits"]

BET_CAP = 0.75
"""Largest share of the capital at risk in one bet (c in the paper, which uses 1/2 or 3/4)."""
STEPS = 48
"""Halvings of [0, 1]; the limit is rounded outwards by at most 2^-48."""
MIN_UNITS = 2


def bernstein_limits(values: Numbers, *, levels: Levels) -> Interval:
    """Empirical-Bernstein limits for the mean of numbers in [0, 1].

    Assumptions: independent units with one mean, all in [0, 1]. No shape, no n_min.

    Args:
        values: One number in [0, 1] per unit (prompt), e.g. TVD or a share.
        levels: One-sided confidence levels of the two limits.

    Returns:
        Limits in [0, 1]; both None for fewer than two units.

    Raises:
        InputError: A value is not finite or outside [0, 1], or a level is outside (0, 1).

    Level:
        At least the stated one at every n (far above it at small n).

    Power:
        Width about ``sqrt(2 V L / n) + 7 L / 3n``, L = ln(2 / alpha): below 60 units wide.

    Source:
        Maurer and Pontil, COLT 2009, theorem 4.
    """
    array = _unit_interval(values)
    check_levels(levels)
    if array.size < MIN_UNITS:
        why = f"undefined: {array.size} of {MIN_UNITS} units"
        return _interval(levels, None, None, f"empirical Bernstein ({why})")
    mean, variance = float(array.mean()), float(array.var(ddof=1))
    low = mean - _bernstein_width(array.size, variance, 1.0 - levels.low)
    high = mean + _bernstein_width(array.size, variance, 1.0 - levels.high)
    return _interval(
        levels, np.fmax(low, 0.0).item(), np.fmin(high, 1.0).item(), "empirical Bernstein"
    )


def betting_limits(values: Numbers, *, levels: Levels) -> Interval:
    """Betting limits (capital process) for the mean of numbers in [0, 1].

    Assumptions: as ``bernstein_limits``, and the order of the units says nothing of their
    values (the order of a prompt file fixed beforehand will do, a sorted list will not).
    Each limit bets all of its capital on its own side, the one-sided form of the paper's hedge.

    Args:
        values: One number in [0, 1] per unit (prompt), in an order fixed beforehand.
        levels: One-sided confidence levels of the two limits.

    Returns:
        Limits in [0, 1]; both None for no units.

    Raises:
        InputError: A value is not finite or outside [0, 1], or a level is outside (0, 1).

    Level:
        At least the stated one at every n (Ville's inequality), also when looked at repeatedly.

    Power:
        Close to Clopper-Pearson on 0 and 1, closer than any other known bound between.

    Source:
        Waudby-Smith and Ramdas, JRSS B 86 (2024) 1, section 4, eq. 26 (fixed n) with truncation.
    """
    array = _unit_interval(values)
    check_levels(levels)
    if array.size == 0:
        return _interval(levels, None, None, "betting (undefined: no units)")
    low = _betting_low(array, 1.0 - levels.low)
    high = 1.0 - _betting_low(1.0 - array, 1.0 - levels.high)
    return _interval(levels, low, high, "betting")


def _betting_low(array: NDArray[np.float64], alpha: float) -> float:
    """Largest mean that the capital, at risk on greater values, has refuted."""
    stakes = _stakes(array, alpha)
    goal = math.log(1.0 / alpha)
    low, high = 0.0, 1.0
    if not _best_log_capital(array, stakes, 0.5**STEPS) >= goal:
        return 0.0
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        refuted = _best_log_capital(array, stakes, middle) >= goal
        low, high = (middle, high) if refuted else (low, middle)
    return low


def _stakes(array: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """Predictable bets: each looks at earlier units alone."""
    n = array.size
    t = np.arange(1.0, n + 1.0)
    means = (0.5 + np.cumsum(array)) / (t + 1.0)
    variances = (0.25 + np.cumsum((array - means) ** 2)) / (t + 1.0)
    before = np.concatenate([[0.25], variances[:-1]])
    return np.asarray(np.sqrt(2.0 * math.log(1.0 / alpha) / (n * before)), dtype=np.float64)


def _best_log_capital(
    array: NDArray[np.float64], stakes: NDArray[np.float64], mean: float
) -> float:
    bets = np.minimum(stakes, BET_CAP / mean)
    return float(np.cumsum(np.log1p(bets * (array - mean))).max())


def _bernstein_width(n: int, variance: float, alpha: float) -> float:
    need = math.log(2.0 / alpha)
    return math.sqrt(2.0 * variance * need / n) + 7.0 * need / (3.0 * (n - 1))


def _unit_interval(values: Numbers) -> NDArray[np.float64]:
    array = finite(values, name="values")
    outside = (array < 0.0) | (array > 1.0)
    if outside.any():
        first = int(np.argmax(outside))
        msg = f"`values` must lie in [0, 1], got {array[first]} at {first}"
        raise InputError(msg)
    return array


def _interval(levels: Levels, low: float | None, high: float | None, method: str) -> Interval:
    return Interval(low=low, low_level=levels.low, high=high, high_level=levels.high, method=method)
