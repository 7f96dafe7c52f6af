"""Power of exact tests and limits on counts: shares, quantiles, discordant pairs."""

import math
from typing import Literal

import numpy as np
from scipy import special

from validate.stats._check import check_count, check_positive, check_share
from validate.stats._search import least_effect, least_n
from validate.stats.exceedance import most_allowed

__all__ = [
    "Decision",
    "mde_proportion",
    "mde_quantile",
    "n_needed_proportion",
    "n_needed_quantile",
    "power_binomial",
    "power_mcnemar",
    "power_paired_proportion",
    "power_proportion",
    "power_quantile",
]

Decision = Literal["FAIL", "PASS"]
"""FAIL: the lower limit at 1 - alpha exceeds the limit. PASS: the upper one is inside it."""


def power_proportion(
    share: float, *, n: int, limit: float, alpha: float, decision: Decision = "FAIL"
) -> float:
    """Chance that Clopper-Pearson limits decide about a share, against a limit.

    Assumptions: independent units with one common share. Exact, no approximation.

    Args:
        share: The true share, in [0, 1].
        n: Units (prompts).
        limit: Largest share that the gate accepts, in (0, 1).
        alpha: One-sided error rate of the limit that decides (FAIL: the gate's share of
            alpha; PASS: 0.05).
        decision: Which decision.

    Returns:
        A probability; 0 for n = 0.

    Raises:
        InputError: A rate is out of range or ``n`` is negative.

    Source:
        Binomial tails beyond the critical count; a lower limit exceeds ``limit`` exactly when
        P(B(n, limit) >= count) < alpha.

    Example:
        >>> f"{power_proportion(0.0, n=59, limit=0.05, alpha=0.05, decision='PASS'):.3f}"
        '1.000'
    """
    check_count(0, n, name="n")
    check_share(alpha, name="alpha")
    _check_probability(share, "share")
    check_share(limit, name="limit")
    if decision == "PASS":
        allowed = most_allowed(n, limit=limit, level=1.0 - alpha)
        return 0.0 if allowed is None else float(special.bdtr(float(allowed), n, share))
    return _beyond(_critical(n, limit, alpha), n, share)


def mde_proportion(
    *, n: int, limit: float, alpha: float, power: float, decision: Decision = "FAIL"
) -> float | None:
    """Share nearest to the limit that is decided with ``power``; None where there is none.

    For FAIL the smallest share above the limit, for PASS the greatest below it.

    Raises:
        InputError: As ``power_proportion``, or ``power`` is outside (0, 1).
    """
    check_share(power, name="power")
    return least_effect(
        lambda share: power_proportion(share, n=n, limit=limit, alpha=alpha, decision=decision),
        power,
        low=limit,
        high=1.0 if decision == "FAIL" else 0.0,
    )


def n_needed_proportion(
    share: float, *, limit: float, alpha: float, power: float, decision: Decision = "FAIL"
) -> int | None:
    """Units at which ``power_proportion`` is ``power``; None where no n will do.

    Raises:
        InputError: As ``power_proportion``, or ``power`` is outside (0, 1).
    """
    check_share(power, name="power")
    _check_probability(share, "share")
    check_share(limit, name="limit")
    if not (share > limit if decision == "FAIL" else share < limit):
        return None
    return least_n(
        lambda n: power_proportion(share, n=n, limit=limit, alpha=alpha, decision=decision),
        power,
        start=1,
    )


def power_quantile(
    beyond: float, *, n: int, q: float, alpha: float, decision: Decision = "FAIL"
) -> float:
    """Chance that order-statistic limits decide that a q-quantile is above or below a limit.

    The quantile exceeds the limit exactly when more than 1 - q of all prompts do, so the
    gate is one on the share of prompts beyond the limit.

    Args:
        beyond: True share of prompts whose value exceeds the limit, in [0, 1].
        n: Prompts.
        q: Which quantile, in (0, 1).
        alpha: One-sided error rate of the limit that decides.
        decision: ``FAIL``: the quantile is above the limit; ``PASS``: it is not.

    Raises:
        InputError: A rate is out of range or ``n`` is negative.

    Source:
        Hahn and Meeker, Statistical Intervals, chapter 5; equal to ``power_proportion`` with
        limit 1 - q.

    Example:
        >>> f"{power_quantile(0.0, n=28, q=0.9, alpha=0.05, decision='PASS'):.1f}"
        '0.0'
    """
    check_share(q, name="q")
    return power_proportion(beyond, n=n, limit=1.0 - q, alpha=alpha, decision=decision)


def mde_quantile(
    *, n: int, q: float, alpha: float, power: float, decision: Decision = "FAIL"
) -> float | None:
    """Share beyond the limit, nearest to 1 - q, that is decided with ``power``; None: none."""
    check_share(q, name="q")
    return mde_proportion(n=n, limit=1.0 - q, alpha=alpha, power=power, decision=decision)


def n_needed_quantile(
    beyond: float, *, q: float, alpha: float, power: float, decision: Decision = "FAIL"
) -> int | None:
    """Prompts at which ``power_quantile`` is ``power``; None where no number will do."""
    check_share(q, name="q")
    return n_needed_proportion(beyond, limit=1.0 - q, alpha=alpha, power=power, decision=decision)


def power_binomial(share: float, *, n: int, p: float, alpha: float) -> float:
    """Power of ``binomial_test(..., alternative="greater")`` at level ``alpha``.

    Raises:
        InputError: A rate is out of range or ``n`` is negative.
    """
    check_count(0, n, name="n")
    check_share(p, name="p")
    check_share(alpha, name="alpha")
    _check_probability(share, "share")
    return _beyond(_critical(n, p, alpha), n, share)


def power_mcnemar(lost: float, gained: float, *, n: int, alpha: float) -> float:
    """Power of one-sided exact McNemar (more lost than gained), unconditional on discordance.

    Args:
        lost: Share of pairs right on ref and wrong on cand, in [0, 1].
        gained: Share of pairs the other way round.
        n: Pairs (eval items).
        alpha: Level of the test.

    Raises:
        InputError: A share is out of range, they add up to more than 1, or n is negative.

    Source:
        Binomial power averaged over the number of discordant pairs (Duffy, Biometrics 40
        (1984) 1005).
    """
    check_count(0, n, name="n")
    check_share(alpha, name="alpha")
    _check_probability(lost, "lost")
    _check_probability(gained, "gained")
    rate = lost + gained
    _check_probability(rate, "lost + gained")
    if rate == 0.0:
        return 0.0
    middle, reach = n * rate, 8.0 * math.sqrt(n * rate * (1.0 - rate)) + 8.0
    first, last = max(0, math.floor(middle - reach)), min(n, math.ceil(middle + reach))
    total = 0.0
    for count in range(first, last + 1):
        below = float(special.bdtr(float(count - 1), n, rate)) if count else 0.0
        chance = float(special.bdtr(float(count), n, rate)) - below
        total += chance * _beyond(_critical(count, 0.5, alpha), count, lost / rate)
    return total if total < 1.0 else 1.0


def power_paired_proportion(
    drop: float, *, discordant: float, margin: float, n: int, alpha: float
) -> float:
    """Power of ``noninferiority_proportion``, by the normal approximation.

    Args:
        drop: True ``p_ref - p_cand``; 0 for an equal candidate.
        discordant: Share of pairs that differ, in (0, 1).
        margin: Largest drop accepted.
        n: Pairs.
        alpha: Level of the test.

    Raises:
        InputError: A rate is out of range, or ``margin`` is not positive.

    Source:
        Lu and Bean, Statist. Med. 14 (1995) 1831; from about 20 discordant pairs.
    """
    check_count(0, n, name="n")
    check_share(discordant, name="discordant")
    check_share(alpha, name="alpha")
    check_positive(margin, name="margin")
    spread = discordant - drop * drop
    check_positive(spread, name="discordant - drop^2")
    return float(special.ndtr((margin - drop) * math.sqrt(n / spread) + special.ndtri(alpha)))


def _critical(n: int, p: float, alpha: float) -> int:
    """Smallest count with P(B(n, p) >= count) < alpha; n + 1 where there is none."""
    counts = np.arange(1, n + 1)
    rejects = special.bdtrc(counts - 1.0, n, p) < alpha
    return int(counts[np.argmax(rejects)]) if rejects.any() else n + 1


def _beyond(count: int, n: int, share: float) -> float:
    """P(B(n, share) >= count); 0 for a count above n."""
    if count > n:
        return 0.0
    return float(special.bdtrc(float(count - 1), n, share)) if count > 0 else 1.0


def _check_probability(value: float, name: str) -> None:
    if value not in (0.0, 1.0):
        check_share(value, name=name)
