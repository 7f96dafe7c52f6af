"""Is cand at most a margin worse (non-inferiority), or within it both ways (equivalence)?"""

import math

from scipy import special

from validate.errors import InputError
from validate.schema import Interval, Levels
from validate.stats._check import (
    Numbers,
    check_count,
    check_levels,
    check_positive,
    check_share,
    finite,
)
from validate.stats.result import Alternative, SignificanceTest

__all__ = [
    "equivalence_mean",
    "equivalence_proportion",
    "noninferiority_mean",
    "noninferiority_proportion",
    "paired_proportion_limits",
]

MIN_UNITS = 2
STEPS = 60


def noninferiority_mean(differences: Numbers, *, margin: float) -> SignificanceTest:
    """Paired t test of ``mean(cand - ref) <= -margin`` against greater.

    Greater scores are better; a small p-value shows that cand is at most ``margin`` worse.

    Assumptions: independent units (prompts), differences without a heavy tail.

    Args:
        differences: cand minus ref per unit.
        margin: Largest harm that is accepted, in the unit of the differences, positive.

    Returns:
        The test; its p-value is None for fewer than two units or without spread.

    Raises:
        InputError: A value is not finite, or the margin is not positive.

    Level:
        Exact for normal differences.

    Power:
        ``power_mean_t(effect=margin, ...)`` where the true difference is 0.

    Source:
        Student's t; Schuirmann, J. Pharmacokinet. Biopharm. 15 (1987) 657.
    """
    check_positive(margin, name="margin")
    return _mean_test(differences, margin, "greater", "non-inferiority, paired t")


def equivalence_mean(differences: Numbers, *, margin: float) -> SignificanceTest:
    """Two one-sided paired t tests (TOST) of ``|mean(cand - ref)| >= margin``.

    Args, Raises, Level, Source:
        As ``noninferiority_mean``; the p-value is the greater of the two.

    Power:
        ``power_equivalence_mean``.
    """
    check_positive(margin, name="margin")
    method = "equivalence, paired t (TOST)"
    above = _mean_test(differences, margin, "greater", method)
    below = _mean_test(differences, -margin, "less", method)
    return _harder(above, below)


def noninferiority_proportion(lost: int, gained: int, n: int, *, margin: float) -> SignificanceTest:
    """Tango's score test that cand's share of right answers is at most ``margin`` lower.

    Assumptions: n independent pairs (items, or one item a prompt).

    Args:
        lost: Pairs right on ref and wrong on cand.
        gained: Pairs wrong on ref and right on cand.
        n: All pairs, concordant ones too.
        margin: Largest drop that is accepted, in (0, 1): 0.01 is one point.

    Returns:
        The test of ``p_cand - p_ref <= -margin`` against greater; p-value None for n = 0.

    Raises:
        InputError: Counts do not fit into n, or the margin is outside (0, 1).

    Level:
        Within a point of nominal from about 100 pairs; by exact enumeration in the tests.

    Power:
        ``power_paired_proportion``.

    Source:
        Tango, Statist. Med. 17 (1998) 891; its value at margin 0 is McNemar's statistic.
    """
    check_share(margin, name="margin")
    return _share_test(lost, gained, n, -margin, "greater")


def equivalence_proportion(lost: int, gained: int, n: int, *, margin: float) -> SignificanceTest:
    """Two one-sided Tango tests that both shares differ by less than ``margin``.

    Args, Raises, Level, Source:
        As ``noninferiority_proportion``; the p-value is the greater of the two.
    """
    check_share(margin, name="margin")
    below = _share_test(lost, gained, n, -margin, "greater")
    above = _share_test(lost, gained, n, margin, "less")
    return _harder(below, above)


def paired_proportion_limits(lost: int, gained: int, n: int, *, levels: Levels) -> Interval:
    """Tango's score limits for ``p_cand - p_ref``.

    Args:
        lost: Pairs right on ref and wrong on cand.
        gained: Pairs wrong on ref and right on cand.
        n: All pairs.
        levels: One-sided confidence levels of the two limits.

    Returns:
        The limits, in [-1, 1]; both None for n = 0.

    Raises:
        InputError: Counts do not fit into n, or a level is outside (0, 1).

    Level, Source:
        As ``noninferiority_proportion``.
    """
    check_levels(levels)
    _check_counts(lost, gained, n)
    low = high = None
    if n > 0:
        low = _invert(lost, gained, n, level=levels.low)
        high = -_invert(gained, lost, n, level=levels.high)
    return Interval(
        low=low, low_level=levels.low, high=high, high_level=levels.high, method="Tango score"
    )


def tango_z(lost: int, gained: int, n: int, *, difference: float) -> float:
    """Score statistic of ``p_cand - p_ref = difference``, in (-1, 1); positive above it."""
    a = 2.0 * n
    b = -(gained + lost) + (2.0 * n - gained + lost) * difference
    c = -lost * difference * (1.0 - difference)
    inside = b * b - 4.0 * a * c
    rate = (math.sqrt(inside if inside > 0.0 else 0.0) - b) / (2.0 * a)
    variance = n * (2.0 * rate + difference * (1.0 - difference))
    off = gained - lost - n * difference
    if not variance > 0.0:
        return 0.0 if off == 0.0 else math.copysign(math.inf, off)
    return off / math.sqrt(variance)


def _invert(lost: int, gained: int, n: int, *, level: float) -> float:
    """Lower limit: the least difference that the score test at ``level`` does not reject."""
    need = float(special.ndtri(level))
    low, high = -1.0, (gained - lost) / n
    if not need > 0.0:
        high = 1.0
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        rejected = tango_z(lost, gained, n, difference=middle) > need
        low, high = (middle, high) if rejected else (low, middle)
    return low


def _share_test(
    lost: int, gained: int, n: int, difference: float, alternative: Alternative
) -> SignificanceTest:
    _check_counts(lost, gained, n)
    method = "Tango score"
    if n == 0:
        return _undefined(0, "pairs", method, alternative, "no pairs")
    z = tango_z(lost, gained, n, difference=difference)
    return SignificanceTest(
        p_value=float(special.ndtr(-z if alternative == "greater" else z)),
        statistic=z,
        n=n,
        n_of="pairs",
        method=method,
        alternative=alternative,
        estimate=(gained - lost) / n,
    )


def _mean_test(
    differences: Numbers, shift: float, alternative: Alternative, method: str
) -> SignificanceTest:
    array = finite(differences, name="differences")
    if array.size < MIN_UNITS:
        why = f"{array.size} of {MIN_UNITS} units"
        return _undefined(array.size, "units", method, alternative, why)
    if (array == array[0]).all():
        return _undefined(array.size, "units", method, alternative, "all differences equal")
    error = float(array.std(ddof=1)) / math.sqrt(array.size)
    t = (float(array.mean()) + shift) / error
    return SignificanceTest(
        p_value=float(special.stdtr(array.size - 1, -t if alternative == "greater" else t)),
        statistic=t,
        n=array.size,
        n_of="units",
        method=method,
        alternative=alternative,
        estimate=float(array.mean()),
    )


def _harder(one: SignificanceTest, other: SignificanceTest) -> SignificanceTest:
    if one.p_value is None or other.p_value is None:
        return one
    return one if one.p_value >= other.p_value else other


def _check_counts(lost: int, gained: int, n: int) -> None:
    check_count(lost, n, name="lost")
    check_count(gained, n, name="gained")
    if lost + gained > n:
        msg = f"`lost` and `gained` add up to {lost + gained}, more than n={n}"
        raise InputError(msg)


def _undefined(
    n: int, n_of: str, method: str, alternative: Alternative, why: str
) -> SignificanceTest:
    return SignificanceTest(
        p_value=None,
        statistic=None,
        n=n,
        n_of=n_of,
        method=method,
        alternative=alternative,
        why_undefined=why,
    )
