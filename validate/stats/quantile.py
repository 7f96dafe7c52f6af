"""Distribution-free one-sided limits for a quantile over independent units."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from validate.errors import InputError
from validate.schema import Interval, Levels
from validate.stats._check import Numbers, check_levels, finite

__all__ = ["abs_median", "abs_median_limits", "quantile", "quantile_limits", "quantile_n_min"]

MEDIAN = 0.5


def quantile(values: Numbers, *, q: float) -> float | None:
    """Empirical q-quantile: the order statistic of rank ``ceil(n q)``; None for no values.

    Raises:
        InputError: A value is not finite, or q is not strictly between 0 and 1.
    """
    ordered = np.sort(finite(values, name="values"))
    _check_q(q)
    if ordered.size == 0:
        return None
    return float(ordered[max(math.ceil(ordered.size * q), 1) - 1])


def quantile_n_min(q: float, level: float) -> int:
    """Smallest n whose maximum is an upper limit for the q-quantile: ``ceil(ln(1-level)/ln q)``.

    Source:
        ``1 - q^n >= level``: all n values lie below the quantile with probability ``q^n``.

    Example:
        >>> [quantile_n_min(q, 0.95) for q in (0.90, 0.95, 0.99)]
        [29, 59, 299]
    """
    _check_q(q)
    check_levels(Levels(low=level, high=level))
    return math.ceil(math.log1p(-level) / math.log(q))


def quantile_limits(values: Numbers, *, q: float, levels: Levels) -> Interval:
    """Order-statistic limits for the q-quantile over independent, equally drawn units.

    Both limits are observed values, so no shape of the distribution is
    assumed; ties and jumps only make the true level greater.

    Args:
        values: One number per unit (prompt).
        q: Which quantile, in (0, 1).
        levels: One-sided confidence levels of the two limits.

    Returns:
        The limits; either is None where even the extreme order statistic cannot give its
        level (the upper one below ``quantile_n_min(q, levels.high)`` units).

    Raises:
        InputError: A value is not finite, q or a level is outside (0, 1).

    Level:
        Exact for continuous distributions in the sense that the error rate is
        at most 1 - level; at n = 48 and q = 0.9 the upper limit errs in 4.0 % of draws.

    Source:
        Hahn and Meeker, Statistical Intervals, chapter 5: the number of values below
        the quantile is binomial.

    Example:
        >>> quantile_limits(range(1, 30), q=0.9, levels=Levels(low=0.95)).high
        29.0
    """
    ordered = np.sort(finite(values, name="values"))
    _check_q(q)
    check_levels(levels)
    ranks = _ranks(ordered.size, q, levels)
    above = ordered[max(math.ceil(ordered.size * q), 1) :]
    return Interval(
        low=None if ranks.low is None else float(ordered[ranks.low - 1]),
        low_level=levels.low,
        high=None if ranks.high is None else float(ordered[ranks.high - 1]),
        high_level=levels.high,
        method="order statistic",
        q=q,
        above=tuple(above.tolist()),
    )


def abs_median(differences: Numbers) -> float | None:
    """Absolute value of the median of signed differences; None for no units.

    Raises:
        InputError: A value is not finite.
    """
    array = finite(differences, name="differences")
    return abs(float(np.median(array))) if array.size else None


def abs_median_limits(differences: Numbers, *, levels: Levels) -> Interval:
    """Distribution-free limits for the absolute value of a median difference.

    A bound on a shift in either direction, from two sign tests: the upper limit holds both
    directions at ``levels.high`` each (two one-sided tests), the lower limit splits
    1 - ``levels.low`` between them. No symmetry and no light tail is assumed.

    Args:
        differences: One paired difference per unit (prompt), cand minus ref.
        levels: One-sided confidence levels of the two limits.

    Returns:
        The limits, at least 0; either None where the extreme order statistics cannot give it.

    Raises:
        InputError: A value is not finite, or a level is outside (0, 1).

    Level:
        At least the stated one for every law and n; ties and jumps only raise it.

    Power:
        About 64 % of t's units do as much where differences are normal, fewer under heavy tails.

    Source:
        Hahn and Meeker, Statistical Intervals, chapter 5; Schuirmann, J. Pharmacokinet.
        Biopharm. 15 (1987) 657 for the two one-sided tests.

    Example:
        >>> found = abs_median_limits([-3.0, -2.0, -1.0, 0.5, 1.0], levels=Levels(low=0.9))
        >>> found.high
        3.0
    """
    array = finite(differences, name="differences")
    check_levels(levels)
    size = abs_median(array)
    pass_side = quantile_limits(array, q=MEDIAN, levels=Levels(low=levels.high, high=levels.high))
    half = 0.5 + levels.low / 2
    fail_side = quantile_limits(array, q=MEDIAN, levels=Levels(low=half, high=half))
    low = high = None
    if fail_side.low is not None and fail_side.high is not None:
        low = float(np.max([0.0, fail_side.low, -fail_side.high]))
    if pass_side.low is not None and pass_side.high is not None:
        high = float(np.max([pass_side.high, -pass_side.low]))
    return Interval(
        low=low,
        low_level=levels.low,
        high=high,
        high_level=levels.high,
        method="order statistic on the absolute median",
        q=MEDIAN,
        above=() if size is None else _either_way(array, size),
    )


class _Ranks(NamedTuple):
    """1-based ranks of the two limits; None where the extremes do not reach the level."""

    low: int | None
    high: int | None


@lru_cache(maxsize=1024)
def _ranks(n: int, q: float, levels: Levels) -> _Ranks:
    ranks = np.arange(1, n + 1)
    reaches = np.flatnonzero(special.bdtr(ranks - 1.0, n, q) >= levels.high)
    stays = np.flatnonzero(special.bdtrc(ranks - 1.0, n, q) >= levels.low)
    return _Ranks(
        low=int(ranks[stays[-1]]) if stays.size else None,
        high=int(ranks[reaches[0]]) if reaches.size else None,
    )


def _either_way(array: NDArray[np.float64], size: float) -> tuple[float, ...]:
    """Units beyond the absolute median on the worse side, ascending.

    The k-th from the end is the greater of the k-th from the end of either side.
    """
    count = array.size - math.ceil(array.size * MEDIAN)
    up, down = np.sort(array), np.sort(-array)
    worse = np.maximum(up, down)[array.size - count :]
    return tuple(worse[worse > size].tolist())


def _check_q(q: float) -> None:
    if not 0.0 < q < 1.0:
        msg = f"`q` must lie strictly between 0 and 1, got {q}"
        raise InputError(msg)
