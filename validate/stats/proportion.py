"""Exact one-sided limits for a proportion."""

from scipy import special

from validate.errors import InputError
from validate.schema import Interval, Levels
from validate.stats._check import check_levels

__all__ = ["proportion_limits"]


def proportion_limits(count: int, n: int, *, levels: Levels) -> Interval:
    """Clopper-Pearson limits for the share of units that have a property.

    Args:
        count: Units that have it.
        n: Units looked at.
        levels: One-sided confidence levels of the two limits.

    Returns:
        The limits, in [0, 1]; both None for n = 0.

    Raises:
        InputError: ``count`` is not between 0 and ``n``, or a level is outside (0, 1).

    Level:
        At least the stated one at every true share and n (conservative).

    Source:
        Clopper and Pearson, Biometrika 26 (1934) 404; checked against
        ``scipy.stats.binomtest(...).proportion_ci("exact")``.

    Example:
        >>> f"{proportion_limits(0, 59, levels=Levels(low=0.95)).high:.4f}"
        '0.0495'
    """
    check_levels(levels)
    if not 0 <= count <= n:
        msg = f"`count` must lie between 0 and `n`, got count={count} and n={n}"
        raise InputError(msg)
    low: float | None = None
    high: float | None = None
    if n > 0:
        low, high = 0.0, 1.0
        if count > 0:
            low = float(special.betaincinv(count, n - count + 1, 1.0 - levels.low))
        if count < n:
            high = float(special.betaincinv(count + 1, n - count, levels.high))
    return Interval(
        low=low,
        low_level=levels.low,
        high=high,
        high_level=levels.high,
        method="Clopper-Pearson",
    )
