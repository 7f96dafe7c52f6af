"""Is a stream of numbers uniform, independent, and free of drift? Tests for lossless sampling."""

import math

import numpy as np
from scipy import special

from validate.errors import InputError
from validate.stats._check import Numbers, check_pairs, finite
from validate.stats.result import SignificanceTest

__all__ = ["martingale_z", "serial_independence", "uniformity_test"]

MIN_UNIFORM = 5
"""Fewer values than this: the tabulated law of the statistic is too coarse."""
MIN_PAIRS = 20
"""Fewer neighbours than this: the normal law of the lag correlation is too coarse."""
UNIFORM_VARIANCE = 1.0 / 12.0
ROUNDING = 1e-9
"""An increment this small where there is no variance is rounding of its expectation."""


def uniformity_test(values: Numbers) -> SignificanceTest:
    """Cramer-von Mises test that values are independent draws from the uniform law on [0, 1].

    Assumptions: under the null hypothesis values are independent and continuous; ties are then
    impossible, so equal values throughout are refused a p-value rather than judged.

    Args:
        values: Probability transforms U_t, each in [0, 1].

    Returns:
        The test; p-value None for fewer than five values, or where all are equal.

    Raises:
        InputError: A value is not finite or outside [0, 1].

    Level:
        Within 0.1 points of nominal from five values.

    Power:
        By simulation at the stated effect, no closed form; see the tests.

    Source:
        Csorgo and Faraway, JRSS B 58 (1996) 221; ``scipy.stats.cramervonmises``.
    """
    # scipy.stats takes half a second to import; the default suite does not need it.
    from scipy import stats

    array = _unit(values)
    method = "Cramer-von Mises"
    if array.size < MIN_UNIFORM:
        return _undefined(array.size, method, f"{array.size} of {MIN_UNIFORM} values")
    if (array == array[0]).all():
        return _undefined(array.size, method, "all values equal")
    found = stats.cramervonmises(array, "uniform")
    return SignificanceTest(
        p_value=_clip(float(found.pvalue)),
        statistic=float(found.statistic),
        n=array.size,
        n_of="values",
        method=method,
        alternative="greater",
    )


def serial_independence(values: Numbers, *, lag: int = 1) -> SignificanceTest:
    """Correlation of uniform values with those ``lag`` earlier, as a z with known variance.

    Under the null hypothesis the products (U_t - 1/2)(U_{t-lag} - 1/2) have mean 0, variance
    1/144 and no correlation among themselves, so their sum over sqrt(m)/12 is near normal.

    Args:
        values: U_t of one stream, in order; pass streams one at a time.
        lag: Distance, at least 1.

    Returns:
        The two-sided test; p-value None for fewer than 20 neighbours or equal values.

    Raises:
        InputError: A value is not finite or outside [0, 1], or ``lag`` is below 1.

    Level:
        Within half a point of 5 % from 20 neighbours, by simulation in the tests.

    Power:
        Correlation r is seen with power 1 - beta from about ((z_a + z_b) / r)^2 neighbours.

    Source:
        Central limit theorem for m-dependent products; Knuth, TAOCP 2, 3.3.2 (serial correlation).
    """
    if lag < 1:
        msg = f"`lag` must be at least 1, got {lag}"
        raise InputError(msg)
    array = _unit(values)
    pairs = array.size - lag
    method = f"serial correlation, lag {lag}"
    if pairs < MIN_PAIRS:
        return _undefined(array.size, method, f"{max(pairs, 0)} of {MIN_PAIRS} neighbours")
    if (array == array[0]).all():
        return _undefined(array.size, method, "all values equal")
    off = array - 0.5
    total = float(np.dot(off[lag:], off[:-lag]))
    z = total / (UNIFORM_VARIANCE * math.sqrt(pairs))
    return _two_sided(z, pairs, "neighbours", method, total / (pairs * UNIFORM_VARIANCE))


def martingale_z(increments: Numbers, variances: Numbers) -> SignificanceTest:
    """Sum of martingale increments over the root of their summed conditional variances.

    For surprisal: increments log p(x_t) + H_t with Var_t; for acceptance: accepted minus its
    exact expectation a_t, with variance a_t (1 - a_t).

    Assumptions: each increment has mean 0 given the past, and the variance stated; none
    dominates the sum.

    Args:
        increments: One per step.
        variances: Conditional variance of each, not negative.

    Returns:
        The two-sided test; p-value None without steps, or where all variances are 0 and every
        increment is 0. An increment that is not 0 where its variance is (a thing that cannot
        happen) has p-value 0.

    Raises:
        InputError: Lengths differ, a value is not finite, or a variance is negative.

    Level:
        Asymptotic; within a point of 5 % from a summed variance of about 10.

    Power:
        A shift d in every increment is seen from about ((z_a + z_b) s / d)^2 steps.

    Source:
        Brown, Ann. Math. Statist. 42 (1971) 59 (martingale central limit theorem).
    """
    steps, spread = finite(increments, name="increments"), finite(variances, name="variances")
    check_pairs(steps, spread)
    method = "martingale z"
    if (spread < 0).any():
        first = int(np.argmax(spread < 0))
        msg = f"`variances` must not be negative, got {spread[first]} at {first}"
        raise InputError(msg)
    impossible = (spread == 0) & (np.abs(steps) > ROUNDING)
    if impossible.any():
        return SignificanceTest(
            p_value=0.0,
            statistic=None,
            n=steps.size,
            n_of="steps",
            method=f"{method} (step {int(np.argmax(impossible))} has no variance and moved)",
        )
    total = math.fsum(spread)
    if not total > 0.0:
        return _undefined(steps.size, method, "no step has any variance", n_of="steps")
    z = math.fsum(steps) / math.sqrt(total)
    return _two_sided(z, steps.size, "steps", method, math.fsum(steps) / steps.size)


def _two_sided(z: float, n: int, n_of: str, method: str, estimate: float) -> SignificanceTest:
    return SignificanceTest(
        p_value=_clip(2.0 * float(special.ndtr(-abs(z)))),
        statistic=z,
        n=n,
        n_of=n_of,
        method=method,
        estimate=estimate,
    )


def _clip(p_value: float) -> float:
    """Series for p-values may stray from [0, 1] by rounding; NaN stays NaN and is refused."""
    if p_value < 0.0:
        return 0.0
    return 1.0 if p_value > 1.0 else p_value


def _unit(values: Numbers) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    array = finite(values, name="values")
    outside = (array < 0.0) | (array > 1.0)
    if outside.any():
        first = int(np.argmax(outside))
        msg = f"`values` must lie in [0, 1], got {array[first]} at {first}"
        raise InputError(msg)
    return array.reshape(array.size)


def _undefined(n: int, method: str, why: str, *, n_of: str = "values") -> SignificanceTest:
    return SignificanceTest(
        p_value=None, statistic=None, n=n, n_of=n_of, method=method, why_undefined=why
    )
