"""A number between two bounds: what metrics of top-k captures share."""

from dataclasses import replace

import numpy as np

from validate.schema import Interval, Levels
from validate.stats import proportion_limits

__all__ = ["UNBOUNDED", "between", "share_between", "upper_bound"]

UNBOUNDED = 1e300
"""Stands for an infinite bound where order statistics ask for finite numbers."""


def between(low: Interval, high: Interval) -> Interval:
    """The lower limit of the lower bounds with the upper limit of the upper ones."""
    top = upper_bound(high.high)
    return replace(
        low,
        high=None if top is None or np.isposinf(top) else top,
        above=high.above,
    )


def share_between(certain: int, possible: int, n: int, *, levels: Levels) -> Interval:
    """Clopper-Pearson limits of a share of which only bounds are known."""
    return replace(
        proportion_limits(certain, n, levels=levels),
        high=proportion_limits(possible, n, levels=levels).high,
    )


def upper_bound(value: float | None) -> float | None:
    """The number itself; infinity for what stands for it."""
    return np.inf if value is not None and not value < UNBOUNDED else value
