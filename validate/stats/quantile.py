"""Distribution-free one-sided limits for a quantile over independent units."""

import math

import numpy as np
from scipy import special

from validate.errors import InputError
from validate.schema import Interval, Levels
from validate.stats._check import Numbers, check_levels, finite

__all__ = ["quantile", "quantile_limits", "quantile_n_min"]


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
    ranks = np.arange(1, ordered.size + 1)
    reaches = special.bdtr(ranks - 1.0, ordered.size, q) >= levels.high
    stays = special.bdtrc(ranks - 1.0, ordered.size, q) >= levels.low
    return Interval(
        low=float(ordered[np.flatnonzero(stays)[-1]]) if stays.any() else None,
        low_level=levels.low,
        high=float(ordered[np.flatnonzero(reaches)[0]]) if reaches.any() else None,
        high_level=levels.high,
        method="order statistic",
    )


def _check_q(q: float) -> None:
    if not 0.0 < q < 1.0:
        msg = f"`q` must lie strictly between 0 and 1, got {q}"
        raise InputError(msg)
