"""Bisection on a power that grows with n or with the effect."""

from collections.abc import Callable

MOST_UNITS = 10_000_000
"""A larger need than this is no plan."""
STEPS = 60


def least_n(power: Callable[[int], float], target: float, *, start: int) -> int | None:
    """Units at which ``power`` reaches ``target``; None above ten million.

    For counts power is a saw-tooth in n: the n returned reaches the target, a slightly
    smaller one may too.
    """
    low, high = start - 1, start
    while not power(high) >= target:
        low, high = high, 2 * high
        if high > MOST_UNITS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle) >= target else (middle, high)
    return high


def least_effect(
    power: Callable[[float], float], target: float, *, low: float, high: float
) -> float | None:
    """Effect between ``low`` and ``high`` where ``power`` reaches ``target``; None: nowhere.

    ``low`` is the end where power is small; it may be the greater number.
    """
    if not power(high) >= target:
        return None
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if power(middle) >= target else (middle, high)
    return high
