"""Sums whose result does not depend on the order of the terms."""

import math
from collections.abc import Iterable

__all__ = ["exact_mean", "exact_sum"]


def exact_sum(values: Iterable[float]) -> float:
    """Correctly rounded sum (``math.fsum``); NaN and infinities propagate.

    Numerics:
        The same terms in any order give the same bits, so a report does not
        depend on the order in which prompts were read.
    """
    terms = [float(value) for value in values]
    if all(math.isfinite(term) for term in terms):
        return math.fsum(terms)
    return float(sum(terms))


def exact_mean(values: Iterable[float]) -> float | None:
    """Correctly rounded sum over the count; None for no values, never 0."""
    terms = [float(value) for value in values]
    if not terms:
        return None
    return exact_sum(terms) / len(terms)
