"""How many units would do if what was measured stayed as it is: exact, for each kind of limit."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import special

from validate.schema import Interval
from validate.stats._check import check_positive, check_share
from validate.stats.n_min import n_min

__all__ = ["units_for_mean", "units_for_rate", "units_for_share", "units_needed"]

MOST_UNITS = 10**6
"""A larger need than this is no plan."""
BLOCK = 256
LARGEST_BLOCK = 1_000_000
FEWEST = 2
"""One unit shows no spread."""
EXACT = 1e-9
"""Relative; a count this near to a whole number is that number."""


def units_needed(interval: Interval, *, value: float, n: int, limit: float) -> int | None:
    """Smallest n at which an upper limit made as this one is inside ``limit``, all else as it is.

    The same share of units beyond the limit, the same rate, the same spread. No fewer than the
    units at which the method is calibrated for heavy tails.

    Args:
        interval: The limits that were made.
        value: The measured number.
        n: Units (prompts) that it rests on.
        limit: The number the upper limit is to be inside of.

    Returns:
        The units, by the law of the interval's own method; None where the value is not below the
        limit, the method may not be used at any n, or the need is above a million.

    Raises:
        InputError: The method was not calibrated.
    """
    least = n_min(interval.method, heavy=True)
    if least is None or not value < limit:
        return None
    found = _by_method(interval, value=value, n=n, limit=limit)
    return None if found is None else max(found, least)


def _by_method(interval: Interval, *, value: float, n: int, limit: float) -> int | None:
    level, high = interval.high_level, interval.high
    if interval.q is not None:
        beyond = sum(unit > limit for unit in interval.above) / max(n, 1)
        return units_for_share(beyond, limit=1.0 - interval.q, level=level)
    if interval.method == "Clopper-Pearson":
        return units_for_share(value, limit=limit, level=level) if limit < 1.0 else None
    if high is None or not math.isfinite(high):
        return FEWEST if n < FEWEST else None
    if interval.method == "exact Poisson":
        return units_for_rate(value, high=high, n=n, limit=limit, level=level)
    return units_for_mean(value, high=high, n=n, limit=limit, level=level)


def units_for_share(share: float, *, limit: float, level: float) -> int | None:
    """Smallest n at which a share that stays as it is has a Clopper-Pearson limit inside ``limit``.

    The same n brings the upper order-statistic limit of a q-quantile inside a value: with
    the share of units beyond the value, and 1 - q for ``limit``.

    Args:
        share: Share of units seen beyond, in [0, 1]; of n units the next whole number counts.
        limit: Largest share that is accepted, in (0, 1).
        level: One-sided confidence level of the upper limit.

    Returns:
        The units; None where the share is not below the limit, or above a million.

    Raises:
        InputError: ``limit`` or ``level`` is outside (0, 1).

    Source:
        As ``exceedance_n_needed``: P(B(n, limit) <= count) <= 1 - level.

    Example:
        >>> [units_for_share(s, limit=0.1, level=0.95) for s in (0.0, 0.02, 0.1)]
        [29, 46, None]
    """
    check_share(limit, name="limit")
    check_share(level, name="level")
    if not share < limit:
        return None

    def inside(units: NDArray[np.int64]) -> NDArray[np.bool_]:
        counts = np.ceil(share * units * (1.0 - EXACT))
        return np.asarray(special.bdtr(counts, units, limit) <= 1.0 - level)

    return _first(inside)


def units_for_rate(rate: float, *, high: float, n: int, limit: float, level: float) -> int | None:
    """Smallest n at which a rate that stays as it is has an exact Poisson limit inside ``limit``.

    Args:
        rate: Events per unit of exposure.
        high: Its upper limit at ``level`` over ``n`` units, which tells how many events there were.
        n: Units (prompts); more of them are taken to be exposed alike.
        limit: Largest rate that is accepted.
        level: One-sided confidence level of the upper limit.

    Returns:
        The units; None where the rate is not below the limit, or above a million.

    Raises:
        InputError: ``high`` or ``limit`` is not positive and finite, or ``level`` out of range.

    Source:
        Garwood, Biometrika 28 (1936) 437: the limit of k events is gamma^-1(k + 1, level).

    Example:
        >>> units_for_rate(0.0, high=2.9957, n=10, limit=0.5, level=0.95)
        60
    """
    check_positive(high, name="high")
    check_positive(limit, name="limit")
    check_share(level, name="level")
    if not rate < limit:
        return None
    events = _events(rate / high, level=level)
    exposure = events / rate if events else float(special.gammaincinv(1.0, level)) / high
    each = exposure / n

    def inside(units: NDArray[np.int64]) -> NDArray[np.bool_]:
        counts = np.ceil(rate * each * units * (1.0 - EXACT))
        highest = special.gammaincinv(counts + 1.0, level) / (each * units)
        return np.asarray(highest <= limit * (1.0 + EXACT))

    return _first(inside)


def units_for_mean(value: float, *, high: float, n: int, limit: float, level: float) -> int | None:
    """Smallest n at which Student's t limit of a mean is inside ``limit``, its spread as it is.

    Args:
        value: The mean.
        high: Its upper t limit at ``level`` over ``n`` units.
        n: Units, at least two.
        limit: Largest mean that is accepted.
        level: One-sided confidence level of the upper limit.

    Returns:
        The units; None where the mean is not below the limit, or above a million.

    Raises:
        InputError: ``level`` is outside (0, 1).

    Example:
        >>> units_for_mean(0.0, high=1.0, n=8, limit=0.5, level=0.95)
        27
    """
    check_share(level, name="level")
    if not (value < limit and n >= FEWEST):
        return None
    spread = (high - value) / float(special.stdtrit(n - 1.0, level)) * math.sqrt(n)

    def inside(units: int) -> bool:
        half = float(special.stdtrit(units - 1.0, level)) * spread / math.sqrt(units)
        return bool(half <= (limit - value) * (1.0 + EXACT))

    low, top = FEWEST - 1, FEWEST
    while not inside(top):
        low, top = top, 2 * top
        if top > 2 * MOST_UNITS:
            return None
    while top - low > 1:
        middle = (low + top) // 2
        low, top = (low, middle) if inside(middle) else (middle, top)
    return top if top <= MOST_UNITS else None


def _first(inside: Callable[[NDArray[np.int64]], NDArray[np.bool_]]) -> int | None:
    """Smallest number of units that is inside; a saw-tooth is looked at tooth by tooth."""
    start, step = 1, BLOCK
    while start <= MOST_UNITS:
        units = np.arange(start, start + step, dtype=np.int64)
        found = np.flatnonzero(inside(units))
        if found.size:
            return int(units[found[0]])
        start, step = start + step, min(2 * step, LARGEST_BLOCK)
    return None


def _events(ratio: float, *, level: float) -> int:
    """Events whose count over its own upper limit is ``ratio``; it rises with the count."""
    if not ratio > 0.0:
        return 0
    low, high = 0, 1
    while high < MOST_UNITS and high / float(special.gammaincinv(high + 1.0, level)) < ratio:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        below = middle / float(special.gammaincinv(middle + 1.0, level)) < ratio
        low, high = (middle, high) if below else (low, middle)
    gaps = [abs(k / float(special.gammaincinv(k + 1.0, level)) - ratio) for k in (low, high)]
    return low if gaps[0] < gaps[1] and low > 0 else high
