"""Many tests, one risk: weighted Bonferroni across gates, Holm inside one gate."""

import math
from collections.abc import Mapping

from validate.errors import InputError
from validate.stats._check import check_share

__all__ = ["holm", "weighted_bonferroni"]


def weighted_bonferroni(weights: Mapping[str, float | int], *, alpha: float) -> dict[str, float]:
    """Split ``alpha`` over gates in proportion to fixed weights.

    Assumptions: none; the chance of any false alarm is at most the sum of the shares, however
    the gates depend on each other. A share does not depend on which gates are run.

    Args:
        weights: Weight of each gate that spends alpha, positive.
        alpha: False-alarm rate of all together, in (0, 1).

    Returns:
        The share of each gate; they add up to ``alpha``.

    Raises:
        InputError: No weights, a weight that is not positive and finite, or alpha out of range.

    Source:
        Rosenthal and Rubin, Biometrika 70 (1983) 271 (weighted Bonferroni).

    Example:
        >>> weighted_bonferroni({"a": 1, "b": 3}, alpha=0.01)
        {'a': 0.0025, 'b': 0.0075}
    """
    check_share(alpha, name="alpha")
    if not weights:
        msg = "`weights` is empty: there is nothing to split alpha over"
        raise InputError(msg)
    for name, weight in weights.items():
        if not 0.0 < weight < math.inf:
            msg = f"`weights` must be positive and finite, got {weight} for '{name}'"
            raise InputError(msg)
    total = math.fsum(weights.values())
    if not math.isfinite(total):
        msg = f"`weights` add up to {total}; a sum must be finite"
        raise InputError(msg)
    return {name: alpha * weight / total for name, weight in weights.items()}


def holm(p_values: Mapping[str, float], *, alpha: float) -> dict[str, float]:
    """Holm-adjusted p-values: reject where the adjusted one is at most ``alpha``.

    Assumptions: none on dependence.

    Args:
        p_values: One p-value per test (task of an eval), in [0, 1].
        alpha: The level that the caller will compare with; checked, not used.

    Returns:
        Adjusted p-values by name, in the order given, at most 1.

    Raises:
        InputError: No p-values, one that is NaN or outside [0, 1], or alpha out of range.

    Level:
        The chance of any false rejection is at most ``alpha``.

    Source:
        Holm, Scand. J. Statist. 6 (1979) 65; R ``p.adjust(p, "holm")``.

    Example:
        >>> {k: round(v, 3) for k, v in holm({"a": 0.01, "b": 0.04, "c": 0.03}, alpha=0.05).items()}
        {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    check_share(alpha, name="alpha")
    if not p_values:
        msg = "`p_values` is empty: nothing was tested"
        raise InputError(msg)
    for name, value in p_values.items():
        if not 0.0 <= value <= 1.0:
            msg = f"`p_values` must lie in [0, 1], got {value} for '{name}'"
            raise InputError(msg)
    adjusted: dict[str, float] = {}
    running = 0.0
    left = len(p_values)
    for name in sorted(p_values, key=lambda key: p_values[key]):
        scaled = left * p_values[name]
        running = scaled if scaled > running else running
        adjusted[name] = running if running < 1.0 else 1.0
        left -= 1
    return {name: adjusted[name] for name in p_values}
