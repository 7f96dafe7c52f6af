"""Exact binomial and McNemar tests."""

import numpy as np
from scipy import special

from validate.errors import InputError
from validate.stats._check import Numbers, check_count, check_pairs, check_share, finite
from validate.stats.result import Alternative, SignificanceTest

__all__ = ["binomial_test", "mcnemar_counts", "mcnemar_test"]

TIE = 1.0 + 1e-7
"""Outcomes this close in probability count as equally likely, as in R's ``binom.test``."""


def binomial_test(
    count: int, n: int, *, p: float, alternative: Alternative = "greater"
) -> SignificanceTest:
    """Exact binomial test of a share against ``p``.

    Assumptions: n independent units with one common probability.

    Args:
        count: Units that have the property.
        n: Units looked at.
        p: The share under the null hypothesis, in (0, 1).
        alternative: Which departure counts; ``two-sided`` sums all outcomes at most as likely.

    Returns:
        The test; its p-value is None for n = 0.

    Raises:
        InputError: ``count`` is not between 0 and ``n``, or ``p`` is outside (0, 1).

    Level:
        At most the stated one at every n.

    Power:
        ``power_binomial``.

    Source:
        Clopper and Pearson, Biometrika 26 (1934) 404; two-sided as ``scipy.stats.binomtest``
        and R ``binom.test``.

    Example:
        >>> f"{binomial_test(3, 15, p=0.1).p_value:.4f}"
        '0.1841'
    """
    check_count(count, n)
    check_share(p, name="p")
    if n == 0:
        return SignificanceTest(
            p_value=None,
            statistic=None,
            n=0,
            n_of="units",
            method="exact binomial",
            alternative=alternative,
            why_undefined="no units",
        )
    if alternative == "greater":
        value = _upper_tail(count, n, p)
    elif alternative == "less":
        value = float(special.bdtr(float(count), n, p))
    else:
        value = _two_sided(count, n, p)
    return SignificanceTest(
        p_value=value if value < 1.0 else 1.0,
        statistic=float(count),
        n=n,
        n_of="units",
        method="exact binomial",
        alternative=alternative,
        estimate=count / n,
    )


def mcnemar_counts(
    lost: int, gained: int, *, alternative: Alternative = "greater"
) -> SignificanceTest:
    """Exact McNemar test from the two discordant counts.

    Assumptions: independent pairs; concordant pairs carry no information on the
    direction, so the test is binomial with p = 1/2 on the discordant ones.

    Args:
        lost: Pairs right on ref and wrong on cand.
        gained: Pairs wrong on ref and right on cand.
        alternative: ``greater``: more lost than gained (cand is worse).

    Returns:
        The test; ``n`` = discordant pairs, p-value None where there is none.

    Raises:
        InputError: A count is negative.

    Level:
        At most the stated one, at every number of pairs.

    Power:
        ``power_mcnemar``.

    Source:
        McNemar, Psychometrika 12 (1947) 153; exact form as R ``exact2x2::mcnemar.exact``.

    Example:
        >>> f"{mcnemar_counts(9, 1, alternative='two-sided').p_value:.6f}"
        '0.021484'
    """
    check_count(lost, lost + gained, name="lost")
    inner = binomial_test(lost, lost + gained, p=0.5, alternative=alternative)
    missing = "no discordant pairs: the two sides agree on every one"
    return SignificanceTest(
        p_value=inner.p_value,
        statistic=inner.statistic,
        n=inner.n,
        n_of="discordant pairs",
        method="exact McNemar",
        alternative=alternative,
        estimate=inner.estimate,
        why_undefined=None if inner.p_value is not None else missing,
    )


def mcnemar_test(
    ref: Numbers, cand: Numbers, *, alternative: Alternative = "greater"
) -> SignificanceTest:
    """Exact McNemar test on paired right (1) and wrong (0) answers.

    Args:
        ref: 0 or 1 per item.
        cand: 0 or 1 for the same items in the same order.
        alternative: ``greater``: cand loses more than it gains.

    Returns:
        As ``mcnemar_counts``.

    Raises:
        InputError: Lengths differ, or a value is neither 0 nor 1.

    Level, Power, Source:
        ``mcnemar_counts``.
    """
    lost, gained = discordant(ref, cand)
    return mcnemar_counts(lost, gained, alternative=alternative)


def discordant(ref: Numbers, cand: Numbers) -> tuple[int, int]:
    """Pairs (lost, gained) of two 0/1 sequences.

    Raises:
        InputError: Lengths differ, or a value is neither 0 nor 1.
    """
    a, b = finite(ref, name="ref"), finite(cand, name="cand")
    check_pairs(a, b)
    for name, side in (("ref", a), ("cand", b)):
        odd = (side != 0) & (side != 1)
        if odd.any():
            first = int(np.argmax(odd))
            msg = f"`{name}` must hold 0 and 1 alone, got {side[first]} at {first}"
            raise InputError(msg)
    return int(np.count_nonzero(a > b)), int(np.count_nonzero(a < b))


def _upper_tail(count: int, n: int, p: float) -> float:
    return 1.0 if count == 0 else float(special.bdtrc(float(count - 1), n, p))


def _two_sided(count: int, n: int, p: float) -> float:
    k = np.arange(n + 1.0)
    log_mass = (
        special.gammaln(n + 1.0)
        - special.gammaln(k + 1.0)
        - special.gammaln(n - k + 1.0)
        + special.xlogy(k, p)
        + special.xlog1py(n - k, -p)
    )
    mass = np.exp(log_mass)
    return float(mass[mass <= mass[count] * TIE].sum())
