"""Limits for a ratio of two errors, paired by prompt, on its logarithm."""

from dataclasses import replace

import numpy as np

from validate.errors import InputError
from validate.numerics import exact_mean
from validate.schema import Interval, Levels
from validate.stats._check import Numbers, finite
from validate.stats.mean import mean_limits

__all__ = ["geometric_ratio", "ratio_limits"]


def geometric_ratio(numerators: Numbers, denominators: Numbers) -> float | None:
    """Geometric mean of ``numerators / denominators``, paired; None for no pairs.

    Raises:
        InputError: As ``ratio_limits``.
    """
    mean = exact_mean(_logs(numerators, denominators))
    return None if mean is None else float(np.exp(mean))


def ratio_limits(numerators: Numbers, denominators: Numbers, *, levels: Levels) -> Interval:
    """Paired t limits for the geometric mean of a ratio, computed on its logarithm.

    Args:
        numerators: Error of cand per unit (prompt), positive.
        denominators: Error of ref for the same units, positive.
        levels: One-sided confidence levels of the two limits.

    Returns:
        The limits of the ratio; both None for fewer than two pairs; both the common ratio
        where all pairs have the same one.

    Raises:
        InputError: The lengths differ, or a value is not finite and positive.

    Level:
        Exact for log-normal ratios.

    Source:
        ``scipy.stats.ttest_rel`` on the logarithms gives the same limits.
    """
    inner = mean_limits(_logs(numerators, denominators), levels=levels)
    return replace(
        inner,
        low=None if inner.low is None else float(np.exp(inner.low)),
        high=None if inner.high is None else float(np.exp(inner.high)),
        method=f"paired {inner.method} on the log",
    )


def _logs(
    numerators: Numbers, denominators: Numbers
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    sides = {"numerators": numerators, "denominators": denominators}
    above, below = (finite(values, name=name) for name, values in sides.items())
    if above.size != below.size:
        msg = f"`numerators` has {above.size} values, `denominators` {below.size}; they must pair"
        raise InputError(msg)
    for name, values in (("numerators", above), ("denominators", below)):
        if not (values > 0).all():
            first = int(np.argmax(values <= 0))
            msg = f"`{name}` must be positive to have a logarithm, got {values[first]} at {first}"
            raise InputError(msg)
    return np.log(above / below)
