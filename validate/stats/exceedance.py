"""How often is a prompt beyond a value? Exact limits, and the prompts that a limit needs."""

import numpy as np
from scipy import special

from validate.errors import InputError
from validate.schema import Interval, Levels
from validate.stats._check import Numbers, check_count, check_share, finite
from validate.stats.proportion import proportion_limits

__all__ = ["exceedance_limits", "exceedance_n_needed", "most_allowed"]

MOST_UNITS = 10**7
"""A larger need than this is no plan."""


def exceedance_limits(values: Numbers, *, threshold: float, levels: Levels) -> Interval:
    """Clopper-Pearson limits for the share of prompts whose value exceeds ``threshold``.

    Assumptions: prompts are independent and equally drawn; no shape is assumed, so a heavy
    tail does no harm. The threshold was fixed before the values were seen.

    Args:
        values: One number per prompt.
        threshold: A prompt counts where its value is greater.
        levels: One-sided confidence levels of the two limits.

    Returns:
        Limits of the share, in [0, 1]; both None for no prompts.

    Raises:
        InputError: A value or the threshold is not finite, or a level is outside (0, 1).

    Level:
        At least the stated one at every n.

    Power:
        ``power_proportion``.

    Source:
        Clopper and Pearson, Biometrika 26 (1934) 404.

    Example:
        >>> limits = exceedance_limits([0.0] * 59, threshold=0.1, levels=Levels(low=0.99))
        >>> f"{limits.high:.4f}"
        '0.0495'
    """
    array = finite(values, name="values")
    if not np.isfinite(threshold):
        msg = f"`threshold` must be finite, got {threshold}"
        raise InputError(msg)
    return proportion_limits(int(np.count_nonzero(array > threshold)), array.size, levels=levels)


def exceedance_n_needed(count: int, *, limit: float, level: float) -> int | None:
    """Smallest n at which ``count`` exceedances still give an upper limit inside ``limit``.

    Args:
        count: Prompts beyond the threshold that are allowed for, e.g. those seen.
        limit: Largest share that a gate accepts, in (0, 1).
        level: One-sided confidence level of the upper limit.

    Returns:
        The prompts; None above ten million.

    Raises:
        InputError: ``count`` is negative, or ``limit`` or ``level`` is outside (0, 1).

    Source:
        The Clopper-Pearson limit at n is inside ``limit`` exactly when
        P(B(n, limit) <= count) <= 1 - level; for count 0 that is ln(1-level)/ln(1-limit).

    Example:
        >>> [exceedance_n_needed(k, limit=0.05, level=0.95) for k in (0, 1, 2)]
        [59, 93, 124]
    """
    check_count(count, MOST_UNITS)
    check_share(limit, name="limit")
    check_share(level, name="level")
    low, high = count, count + 1
    while not special.bdtr(float(count), high, limit) <= 1.0 - level:
        low, high = high, 2 * high
        if high > 2 * MOST_UNITS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        inside = special.bdtr(float(count), middle, limit) <= 1.0 - level
        low, high = (low, middle) if inside else (middle, high)
    return high if high <= MOST_UNITS else None


def most_allowed(n: int, *, limit: float, level: float) -> int | None:
    """Most exceedances among n prompts whose upper limit is inside ``limit``; None: not even 0.

    Raises:
        InputError: ``n`` is negative, or ``limit`` or ``level`` is outside (0, 1).

    Example:
        >>> [most_allowed(n, limit=0.05, level=0.95) for n in (58, 59, 93)]
        [None, 0, 1]
    """
    check_count(0, n, name="n")
    check_share(limit, name="limit")
    check_share(level, name="level")
    counts = np.arange(n, dtype=np.float64)
    inside = special.bdtr(counts, n, limit) <= 1.0 - level
    return int(np.count_nonzero(inside)) - 1 if inside.any() else None
