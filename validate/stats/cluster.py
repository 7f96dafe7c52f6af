"""Means and ratios over tokens or samples that come in clusters (prompts)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import special

from validate.errors import InputError
from validate.schema import Interval, Levels
from validate.stats._check import Numbers, check_levels, check_pairs, finite

__all__ = ["cluster_mean_limits", "cluster_ratio_limits"]

MIN_CLUSTERS = 2


def cluster_mean_limits(
    values: Numbers, *, clusters: Sequence[str | int], levels: Levels
) -> Interval:
    """T limits for a mean over units that come in clusters, by linearisation.

    Assumptions: clusters (prompts) are independent; units inside one may depend in any way and
    clusters may differ in size. Light tails over clusters: ask ``tail_diagnostic`` first.

    Args:
        values: One number per unit (token, sample).
        clusters: The cluster of each unit.
        levels: One-sided confidence levels of the two limits.

    Returns:
        Limits of the mean over units; both None for fewer than two clusters or no spread.

    Raises:
        InputError: A value is not finite, lengths differ, or a level is outside (0, 1).

    Level:
        Nominal for light tails from 32 clusters, see ``docs/statistics.md``.

    Power:
        ``power_mean_t`` with the standard deviation over clusters.

    Source:
        Cochran, Sampling Techniques (1977) 9.2 and 6.3; G - 1 degrees of freedom.

    Example:
        >>> found = cluster_mean_limits(
        ...     [1.0, 3.0, 2.0, 4.0], clusters=["a", "a", "b", "b"], levels=Levels(low=0.95)
        ... )
        >>> f"{found.low:.4f} {found.high:.4f}"
        '-0.6569 5.6569'
    """
    array = finite(values, name="values")
    if array.size != len(clusters):
        msg = f"`values` holds {array.size} units and `clusters` {len(clusters)}"
        raise InputError(msg)
    numbers = {name: i for i, name in enumerate(dict.fromkeys(clusters))}
    index = np.array([numbers[name] for name in clusters], dtype=np.intp)
    sums = np.bincount(index, weights=array).astype(np.float64)
    return _linearised(sums, np.bincount(index).astype(np.float64), levels, "t")


def cluster_ratio_limits(numerators: Numbers, denominators: Numbers, *, levels: Levels) -> Interval:
    """T limits for a ratio of two sums over clusters, by linearisation.

    Assumptions: as ``cluster_mean_limits``; the sum of denominators is well above 0.

    Args:
        numerators: Sum of the numerator per cluster (prompt).
        denominators: Sum of the denominator per cluster, positive.
        levels: One-sided confidence levels of the two limits.

    Returns:
        Limits of sum / sum; both None for fewer than two clusters or no spread.

    Raises:
        InputError: A value is not finite, a denominator is not positive, lengths differ, or a
            level is outside (0, 1).

    Level, Power, Source:
        As ``cluster_mean_limits``.
    """
    top, bottom = finite(numerators, name="numerators"), finite(denominators, name="denominators")
    check_pairs(top, bottom)
    if not (bottom > 0).all():
        first = int(np.argmin(bottom > 0))
        msg = f"`denominators` must be positive, got {bottom[first]} at {first}"
        raise InputError(msg)
    return _linearised(top, bottom, levels, "t on the ratio")


def _linearised(
    sums: NDArray[np.float64], sizes: NDArray[np.float64], levels: Levels, method: str
) -> Interval:
    check_levels(levels)
    count = sums.size
    if count < MIN_CLUSTERS:
        why = f"undefined: {count} of {MIN_CLUSTERS} clusters"
        return _interval(levels, None, None, f"clustered {method} ({why})")
    total = float(sizes.sum())
    mean = float(sums.sum()) / total
    residual = sums - mean * sizes
    error = float(np.sqrt(count / (count - 1) * np.sum(residual * residual))) / total
    scale = float(np.max(np.abs(sums))) / total
    if not error > 1e-14 * scale:
        return _interval(levels, None, None, f"clustered {method} (undefined: no spread)")
    low = mean - float(special.stdtrit(count - 1, levels.low)) * error
    high = mean + float(special.stdtrit(count - 1, levels.high)) * error
    return _interval(levels, low, high, f"clustered {method}")


def _interval(levels: Levels, low: float | None, high: float | None, method: str) -> Interval:
    return Interval(low=low, low_level=levels.low, high=high, high_level=levels.high, method=method)
