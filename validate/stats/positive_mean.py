"""Limits for the mean of non-negative, right-skewed numbers, with a tail diagnostic."""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from validate.errors import InputError
from validate.schema import Interval, Levels
from validate.stats._check import Numbers, finite
from validate.stats.mean import mean_limits

__all__ = ["POSITIVE_MEAN_N_MIN", "TAIL_SHARE", "positive_mean_limits", "tail_share"]

POSITIVE_MEAN_N_MIN = 30
"""Units below which no upper limit is given: skewness cannot be estimated from fewer."""

TAIL_SHARE = 0.5
"""Share of the squared deviations in one unit from which no upper limit is given."""


def tail_share(values: Numbers) -> float | None:
    """Share of the summed squared deviations that the largest one carries; None without spread."""
    array = finite(values, name="values")
    if array.size == 0:
        return None
    squares = (array - array.mean()) ** 2
    total = float(squares.sum())
    return float(squares.max()) / total if total > 0 else None


def positive_mean_limits(values: Numbers, *, levels: Levels) -> Interval:
    """Limits for the mean of numbers such as prompt means of KL.

    The lower limit is Student's t, at least 0, which is cautious under right skew. The
    upper limit is a skewness-corrected t at a third of the error rate asked
    for, a level found by simulation; without enough units, or where one unit
    carries most of the spread, there is none: the mean of a heavy tail can't be
    bounded by a few prompts.

    Args:
        values: One non-negative number per unit (prompt).
        levels: One-sided confidence levels of the two limits.

    Returns:
        The limits. ``high`` is None below ``POSITIVE_MEAN_N_MIN`` units or where
        ``tail_share`` reaches ``TAIL_SHARE``; the method says which. Where all values are
        equal, both limits are that value.

    Raises:
        InputError: A value is negative or not finite, or a level is outside (0, 1).

    Level:
        Simulated at 95 %, n = 30 to 100, counting a draw without an upper limit
        as no error: at most 5 % for exponential and log-normal tails up to
        sigma 1; about 10 % for sigma 1.5; above 15 % where 5 % of the units are
        20 times as large as the rest. No method knows units that were not drawn,
        so a gate on a quantile stands beside every gate on this mean.

    Source:
        First Edgeworth term of the studentised mean (Johnson, J. Am. Stat.
        Assoc. 73 (1978) 536); calibrated in
        ``tests/statistical/test_limits.py``.
    """
    array = finite(values, name="values")
    if (array < 0).any():
        first = int(np.argmax(array < 0))
        msg = f"`values` must not be negative, got {array[first]} at {first}"
        raise InputError(msg)
    plain = mean_limits(array, levels=levels)
    if plain.low is not None:
        plain = replace(plain, low=np.fmax(plain.low, 0.0).item())
    share = tail_share(array)
    if share is None:
        return plain
    if array.size < POSITIVE_MEAN_N_MIN:
        why = f"no upper limit from {array.size} of {POSITIVE_MEAN_N_MIN} units"
        return replace(plain, high=None, method=f"skewness-corrected t ({why})")
    if not share < TAIL_SHARE:
        why = f"no upper limit: one unit carries {share:.0%} of the spread"
        return replace(plain, high=None, method=f"skewness-corrected t ({why})")
    return replace(plain, high=_upper(array, levels.high), method="skewness-corrected t")


def _upper(array: NDArray[np.float64], level: float) -> float:
    n = array.size
    deviations = array - array.mean()
    error = float(array.std(ddof=1)) / math.sqrt(n)
    skewness = float(np.mean(deviations**3) / np.mean(deviations**2) ** 1.5)
    t = float(special.stdtrit(n - 1, 1.0 - (1.0 - level) / 3.0))
    correction: float = np.fmax(skewness, 0.0).item() * (1.0 + 2.0 * t * t) / (6.0 * math.sqrt(n))
    upper: float = float(array.mean()) + error * (t + correction)
    return upper
