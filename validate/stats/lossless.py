"""Tests of lossless sampling beyond those of ``uniformity``, and the power of all of them.

Every power here is a function of one number, the noncentrality that grows with the root of the
sample, so that the smallest effect that is seen falls as 1 / sqrt(n).
"""

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from validate.errors import InputError
from validate.stats._check import Numbers, check_pairs, check_share, finite
from validate.stats.result import SignificanceTest
from validate.stats.uniformity import MIN_PAIRS, UNIFORM_VARIANCE

__all__ = [
    "combined_p",
    "cvm_power",
    "cvm_shift_needed",
    "cvm_test",
    "group_dispersion",
    "lag_products",
    "skewed_z",
    "z_power",
    "z_shift_needed",
]

REST_MEAN = 1.0 / 6.0 - 1.0 / math.pi**2
REST_VARIANCE = 2.0 * (1.0 / 90.0 - 1.0 / math.pi**4)
"""Of sum over j >= 2 of Z_j^2 / (j pi)^2, the part of the Cramer-von Mises limit law that a shift
of the first component leaves alone."""
POINTS = 64
MIN_GROUPS = 5
STEPS = 200
MAX_SKEW = 0.5
"""Of a sum; beyond it a normal law is no guide to the tails."""


def cvm_power(shift: float, *, alpha: float) -> float:
    """Chance that a Cramer-von Mises test rejects, from the shift of its first component.

    The statistic is sum Z_j^2 / (j pi)^2 with Z_j = sqrt(2 / n) sum cos(j pi U_t). Only the mean
    of Z_1 is taken to move; whatever else moves makes the statistic larger, so this is a lower
    bound of the power.

    Args:
        shift: Mean of Z_1 under the alternative: sqrt(2 n) times the mean of cos(pi U).
        alpha: Level.

    Returns:
        A probability; the rest of the sum is taken as a gamma variable of its mean and variance.

    Raises:
        InputError: ``alpha`` is outside (0, 1).

    Source:
        Durbin and Knott, JRSS B 34 (1972) 290 (components of the statistic); checked against
        simulation in ``tests/statistical/test_lossless.py``.

    Example:
        >>> f"{cvm_power(0.0, alpha=0.01):.3f} {cvm_power(4.0, alpha=0.01):.2f}"
        '0.010 0.92'
    """
    check_share(alpha, name="alpha")
    return _beyond(_critical(alpha), shift)


def cvm_test(values: Numbers) -> SignificanceTest:
    """Cramer-von Mises test of uniformity by the limit law that ``cvm_power`` uses.

    As ``uniformity_test``, without a correction for small samples and a hundred times quicker.

    Args:
        values: In [0, 1].

    Returns:
        The test; p-value None for fewer than 20 values, or where all are equal.

    Raises:
        InputError: A value is not finite, or outside [0, 1].

    Level:
        Within 2 % of nominal (relative) from 1e-5 to 0.1.
    """
    array = np.sort(finite(values, name="values"))
    method = "Cramer-von Mises"
    if array.size and not (array[0] >= 0.0 and array[-1] <= 1.0):
        msg = f"`values` must lie in [0, 1], got {array[0]} to {array[-1]}"
        raise InputError(msg)
    if array.size < MIN_PAIRS:
        return _undefined(array.size, "values", method, f"{array.size} of {MIN_PAIRS} values")
    if array[0] == array[-1]:
        return _undefined(array.size, "values", method, "all values equal")
    grid = (np.arange(array.size) + 0.5) / array.size
    statistic = float(np.sum((array - grid) ** 2)) + 1.0 / (12.0 * array.size)
    return SignificanceTest(
        p_value=_clip(_beyond(statistic, 0.0)),
        statistic=statistic,
        n=array.size,
        n_of="values",
        method=method,
        alternative="greater",
    )


def cvm_shift_needed(*, alpha: float, power: float) -> float:
    """Shift of the first component at which ``cvm_power`` is ``power``.

    Raises:
        InputError: A rate is outside (0, 1), or ``power`` is below ``alpha``.
    """
    _check_rates(alpha, power)
    critical = _critical(alpha)
    low, high = 0.0, 100.0
    for _ in range(STEPS):
        middle = (low + high) / 2.0
        if _beyond(critical, middle) < power:
            low = middle
        else:
            high = middle
    return high


def z_power(shift: float, *, alpha: float) -> float:
    """Chance that a two-sided z of mean ``shift`` and variance 1 is rejected.

    Example:
        >>> f"{z_power(0.0, alpha=0.05):.3f}"
        '0.050'
    """
    check_share(alpha, name="alpha")
    edge = float(special.ndtri(1.0 - alpha / 2.0))
    return float(special.ndtr(shift - edge) + special.ndtr(-shift - edge))


def z_shift_needed(*, alpha: float, power: float) -> float:
    """Mean of z at which ``z_power`` is at least ``power``: the sum of the two quantiles.

    Raises:
        InputError: A rate is outside (0, 1), or ``power`` is below ``alpha``.

    Example:
        >>> f"{z_shift_needed(alpha=0.05, power=0.8):.3f}"
        '2.802'
    """
    _check_rates(alpha, power)
    return float(-special.ndtri(alpha / 2.0) + special.ndtri(power))


def skewed_z(increments: Numbers, variances: Numbers, third: float) -> SignificanceTest:
    """Martingale z whose tails are corrected for the skewness of the sum.

    Args:
        increments: One per step, each of mean 0 given the past.
        variances: Conditional variance of each.
        third: Sum of third central moments, known or estimated.

    Returns:
        The two-sided test on z - g (z^2 - 1) / 6 with g the skewness of the sum, cut so that the
        correction stays monotone; p-value None where nothing varies, or where the skewness
        exceeds 0.5, so that no normal law is in sight.

    Raises:
        InputError: Lengths differ, or a value is not finite.

    Source:
        Cornish and Fisher (1938), inverted to first order; Hall, JRSS B 54 (1992) 221.
    """
    steps, spread = finite(increments, name="increments"), finite(variances, name="variances")
    check_pairs(steps, spread)
    method = "martingale z, corrected for skewness"
    total = math.fsum(spread)
    if not total > 0.0:
        return _undefined(steps.size, "steps", method, "no step has any variance")
    z = math.fsum(steps) / math.sqrt(total)
    skew = third / total**1.5
    if not abs(skew) <= MAX_SKEW:
        return _undefined(steps.size, "steps", method, f"skewness {skew:.3g}, at most {MAX_SKEW}")
    size = min(abs(z), 3.0 / abs(skew)) if skew else abs(z)
    corrected = z - skew * (size**2 - 1.0) / 6.0
    return SignificanceTest(
        p_value=_clip(2.0 * float(special.ndtr(-abs(corrected)))),
        statistic=z,
        n=steps.size,
        n_of="steps",
        method=method,
        estimate=math.fsum(steps) / steps.size,
    )


def lag_products(first: Numbers, second: Numbers, *, what: str) -> SignificanceTest:
    """Correlation of uniform values with others that were drawn apart from them, as a z.

    Args:
        first: Values in [0, 1].
        second: As many; value i is the partner of value i, and no pair occurs twice.
        what: Names the pairing, for the method.

    Returns:
        The two-sided test; p-value None for fewer than 20 pairs.

    Source:
        As ``serial_independence``: products of centred uniforms have variance 1 / 144.
    """
    a, b = finite(first, name="first"), finite(second, name="second")
    check_pairs(a, b)
    method = f"correlation, {what}"
    if a.size < MIN_PAIRS:
        return _undefined(a.size, "pairs", method, f"{a.size} of {MIN_PAIRS} pairs")
    total = float(np.dot(a - 0.5, b - 0.5))
    z = total / (UNIFORM_VARIANCE * math.sqrt(a.size))
    return SignificanceTest(
        p_value=_clip(2.0 * float(special.ndtr(-abs(z)))),
        statistic=z,
        n=a.size,
        n_of="pairs",
        method=method,
        estimate=total / (a.size * UNIFORM_VARIANCE),
    )


def group_dispersion(values: Numbers, groups: NDArray[Any], *, what: str) -> SignificanceTest:
    """Do uniform values of one group move together? Sums of squared group sums, as chi-square.

    A group that shares a random number has a sum further from its mean than independent values
    would. Groups of one value say nothing and are left out.

    Args:
        values: In [0, 1].
        groups: Integer label of each.
        what: Names the grouping, for the method.

    Returns:
        The one-sided test; p-value None for fewer than five groups of two.

    Level:
        At most nominal: sums of uniforms have lighter tails than the normal law.
    """
    array = finite(values, name="values")
    labels = finite(np.asarray(groups, np.float64), name="groups")
    check_pairs(array, labels)
    method = f"dispersion, {what}"
    _, place = np.unique(labels, return_inverse=True)
    sizes = np.bincount(place)
    sums = np.bincount(place, weights=array - 0.5)
    held = sizes > 1
    count = int(np.count_nonzero(held))
    if count < MIN_GROUPS:
        return _undefined(count, "groups", method, f"{count} of {MIN_GROUPS} groups of two or more")
    total = float(np.sum(sums[held] ** 2 / (sizes[held] * UNIFORM_VARIANCE)))
    return SignificanceTest(
        p_value=_clip(float(special.chdtrc(float(count), total))),
        statistic=total,
        n=count,
        n_of="groups",
        method=method,
        alternative="greater",
        estimate=total / count,
    )


def combined_p(p_values: Numbers, weights: Numbers) -> float:
    """Weighted Bonferroni: the smallest p over its weight, at most 1.

    Args:
        p_values: In [0, 1].
        weights: Positive; at most 1 in all (what is missing was spent on tests without a result).

    Raises:
        InputError: Weights add up to more than 1, or nothing is given.

    Example:
        >>> combined_p([0.01, 0.5], [0.5, 0.5])
        0.02
    """
    found, shares = finite(p_values, name="p_values"), finite(weights, name="weights")
    check_pairs(found, shares)
    if not found.size or not math.fsum(shares) <= 1.0 + 1e-9 or not (shares > 0.0).all():
        msg = f"weights must be positive and add up to at most 1, got {list(shares)}"
        raise InputError(msg)
    return float(min(1.0, np.min(found / shares)))


@cache
def _rest() -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Equally likely values of the components from the second on."""
    shape = REST_MEAN**2 / REST_VARIANCE
    levels = (np.arange(POINTS) + 0.5) / POINTS
    return np.asarray(special.gammaincinv(shape, levels) * REST_VARIANCE / REST_MEAN)


def _beyond(critical: float, shift: float) -> float:
    edge = math.pi * np.sqrt(np.maximum(critical - _rest(), 0.0))
    return float(np.mean(special.ndtr(shift - edge) + special.ndtr(-shift - edge)))


def _critical(alpha: float) -> float:
    low, high = 0.0, 100.0
    for _ in range(STEPS):
        middle = (low + high) / 2.0
        if _beyond(middle, 0.0) > alpha:
            low = middle
        else:
            high = middle
    return high


def _check_rates(alpha: float, power: float) -> None:
    check_share(alpha, name="alpha")
    check_share(power, name="power")
    if not power > alpha:
        msg = f"`power` must exceed `alpha`, got {power} and {alpha}"
        raise InputError(msg)


def _clip(p_value: float) -> float:
    if p_value < 0.0:
        return 0.0
    return 1.0 if p_value > 1.0 else p_value


def _undefined(n: int, n_of: str, method: str, why: str) -> SignificanceTest:
    return SignificanceTest(
        p_value=None, statistic=None, n=n, n_of=n_of, method=method, why_undefined=why
    )
