"""Quantiles of the binomial law without ``scipy.stats``, whose import takes half a second."""

import math

from scipy import special

from validate.errors import InputError

__all__ = ["binomial_quantile"]

ROUNDING = 1e-12
"""Of the law's own sum: a probability that is ``q`` but for it counts as ``q``."""


def binomial_quantile(q: float, *, n: int, p: float) -> int:
    """Smallest count that is not exceeded with probability at least ``q``.

    Args:
        q: Probability in (0, 1).
        n: Draws.
        p: Chance of each, in [0, 1].

    Raises:
        InputError: ``q``, ``n`` or ``p`` is out of range.

    Source:
        ``scipy.stats.binom.ppf``; the regularised incomplete beta function (DLMF 8.17.5).

    Example:
        >>> binomial_quantile(0.975, n=10, p=0.5)
        8
    """
    if not 0.0 < q < 1.0 or n < 0 or not 0.0 <= p <= 1.0:
        msg = f"q {q:g} must lie in (0, 1), n {n} be 0 or more and p {p:g} lie in [0, 1]"
        raise InputError(msg)
    if p in (0.0, 1.0) or n == 0:
        return int(n * p)
    found = math.ceil(float(special.bdtrik(q, n, p)))
    below = found - 1 if found > 0 else 0
    return below if float(special.bdtr(below, n, p)) >= q * (1.0 - ROUNDING) else found
