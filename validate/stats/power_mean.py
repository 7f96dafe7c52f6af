"""Power of t limits: of a mean, of an absolute mean, of a ratio; smallest effect; n needed."""

import math

import numpy as np
from scipy import special

from validate.stats._check import check_positive, check_share
from validate.stats._search import least_effect, least_n

__all__ = [
    "mde_abs_mean",
    "mde_mean_t",
    "mde_ratio_t",
    "n_needed_equivalence_mean",
    "n_needed_mean_t",
    "n_needed_ratio_t",
    "power_abs_mean_fail",
    "power_equivalence_mean",
    "power_mean_t",
    "power_ratio_t",
]

MIN_UNITS = 2
NODES = 2000
"""Quantiles of the sample deviation over which power is averaged."""
FARTHEST = 1e6
"""Standard deviations searched for an effect."""


def power_mean_t(effect: float, *, sd: float, n: int, alpha: float) -> float:
    """Chance that a one-sided t limit at level 1 - alpha clears a mean ``effect`` away.

    For a FAIL, ``effect`` is the true mean minus the limit and alpha the gate's share; for a
    PASS it is the limit minus the true mean and alpha 0.05; for non-inferiority the
    margin plus the true difference.

    Assumptions: independent units, normal differences.

    Args:
        effect: Distance between true mean and limit, positive on the side to be shown.
        sd: Standard deviation over units, same unit, positive.
        n: Units (prompts).
        alpha: One-sided error rate, in (0, 1).

    Returns:
        A probability; 0 for fewer than two units, which never decide.

    Raises:
        InputError: ``sd`` is not positive and finite, or ``alpha`` is outside (0, 1).

    Source:
        Noncentral t; R ``power.t.test(type="one.sample", alternative="one.sided")``.

    Example:
        >>> f"{power_mean_t(0.5, sd=1.0, n=27, alpha=0.05):.3f}"
        '0.812'
    """
    check_positive(sd, name="sd")
    check_share(alpha, name="alpha")
    if n < MIN_UNITS:
        return 0.0
    return _tail(effect * math.sqrt(n) / sd, n - 1, float(special.stdtrit(n - 1, 1.0 - alpha)))


def mde_mean_t(*, sd: float, n: int, alpha: float, power: float) -> float | None:
    """Smallest effect that ``power_mean_t`` sees with ``power``; None for fewer than two units.

    Raises:
        InputError: As ``power_mean_t``, or ``power`` is outside (0, 1).

    Source:
        Inverse of ``power_mean_t``.
    """
    check_share(power, name="power")
    return least_effect(
        lambda effect: power_mean_t(effect, sd=sd, n=n, alpha=alpha),
        power,
        low=-FARTHEST * sd,
        high=FARTHEST * sd,
    )


def n_needed_mean_t(effect: float, *, sd: float, alpha: float, power: float) -> int | None:
    """Smallest n at which ``power_mean_t`` is ``power``; None where no n will do.

    Raises:
        InputError: As ``power_mean_t``, or ``power`` is outside (0, 1).

    Source:
        Inverse of ``power_mean_t``.

    Example:
        >>> n_needed_mean_t(0.5, sd=1.0, alpha=0.05, power=0.8)
        27
    """
    check_share(power, name="power")
    check_positive(sd, name="sd")
    check_share(alpha, name="alpha")
    if not effect > 0.0:
        return None
    return least_n(lambda n: power_mean_t(effect, sd=sd, n=n, alpha=alpha), power, start=MIN_UNITS)


def power_ratio_t(ratio: float, *, log_sd: float, n: int, alpha: float) -> float:
    """Chance that a t limit on the logarithm clears a geometric mean ``ratio`` times away.

    Args:
        ratio: True ratio over the limit (for a PASS the limit over the true ratio), positive.
        log_sd: Standard deviation over units of the log ratio.
        n: Units (prompts).
        alpha: One-sided error rate.

    Raises:
        InputError: ``ratio`` or ``log_sd`` is not positive, or ``alpha`` is outside (0, 1).

    Source:
        ``power_mean_t`` of the logarithm.
    """
    check_positive(ratio, name="ratio")
    return power_mean_t(math.log(ratio), sd=log_sd, n=n, alpha=alpha)


def mde_ratio_t(*, log_sd: float, n: int, alpha: float, power: float) -> float | None:
    """Smallest ratio seen with ``power``: ``exp`` of ``mde_mean_t``; None where it overflows."""
    effect = mde_mean_t(sd=log_sd, n=n, alpha=alpha, power=power)
    if effect is None or effect > math.log(FARTHEST):
        return None
    return math.exp(effect)


def n_needed_ratio_t(ratio: float, *, log_sd: float, alpha: float, power: float) -> int | None:
    """Smallest n at which ``power_ratio_t`` is ``power``; None where no n will do."""
    check_positive(ratio, name="ratio")
    return n_needed_mean_t(math.log(ratio), sd=log_sd, alpha=alpha, power=power)


def power_abs_mean_fail(mean: float, *, limit: float, sd: float, n: int, alpha: float) -> float:
    """Chance that ``abs_mean_limits`` FAILs a true mean: its lower limit exceeds ``limit``.

    Args:
        mean: True mean difference, either sign.
        limit: Largest absolute mean that the gate accepts, not negative.
        sd: Standard deviation over units.
        n: Units (prompts).
        alpha: One-sided error rate, split between the two directions.

    Raises:
        InputError: ``sd`` is not positive and finite, or ``alpha`` is outside (0, 1).

    Source:
        Sum of two noncentral t tails.
    """
    return power_mean_t(mean - limit, sd=sd, n=n, alpha=alpha / 2) + power_mean_t(
        -mean - limit, sd=sd, n=n, alpha=alpha / 2
    )


def power_equivalence_mean(mean: float, *, margin: float, sd: float, n: int, alpha: float) -> float:
    """Chance that two one-sided t tests show ``|mean| < margin``, or ``abs_mean_limits`` PASSes.

    Args:
        mean: True mean difference.
        margin: Largest absolute mean accepted, positive.
        sd: Standard deviation over units.
        n: Units (prompts).
        alpha: Error rate of each side, 0.05 for a PASS.

    Raises:
        InputError: ``margin`` or ``sd`` is not positive, or ``alpha`` is outside (0, 1).

    Source:
        Phillips, J. Pharmacokinet. Biopharm. 18 (1990) 137: the normal probability of the
        mean, averaged over the law of the sample deviation.
    """
    check_positive(margin, name="margin")
    check_positive(sd, name="sd")
    check_share(alpha, name="alpha")
    if n < MIN_UNITS:
        return 0.0
    error = sd / math.sqrt(n)
    upper = (np.arange(NODES) + 0.5) / NODES
    spread = error * np.sqrt(special.chdtri(n - 1, upper) / (n - 1))
    room = margin - special.stdtrit(n - 1, 1.0 - alpha) * spread
    inside = special.ndtr((room - mean) / error) - special.ndtr((-room - mean) / error)
    return float(np.where(room > 0, inside, 0.0).mean())


def mde_abs_mean(*, limit: float, sd: float, n: int, alpha: float, power: float) -> float | None:
    """Smallest absolute mean that ``power_abs_mean_fail`` sees with ``power``; None: none.

    Raises:
        InputError: As ``power_abs_mean_fail``, or ``power`` is outside (0, 1).
    """
    check_share(power, name="power")
    check_positive(sd, name="sd")
    return least_effect(
        lambda mean: power_abs_mean_fail(mean, limit=limit, sd=sd, n=n, alpha=alpha),
        power,
        low=0.0,
        high=limit + FARTHEST * sd,
    )


def n_needed_equivalence_mean(
    mean: float, *, margin: float, sd: float, alpha: float, power: float
) -> int | None:
    """Smallest n at which ``power_equivalence_mean`` is ``power``; None where no n will do.

    Raises:
        InputError: As ``power_equivalence_mean``, or ``power`` is outside (0, 1).
    """
    check_share(power, name="power")
    check_positive(margin, name="margin")
    check_positive(sd, name="sd")
    check_share(alpha, name="alpha")
    if not abs(mean) < margin:
        return None
    return least_n(
        lambda n: power_equivalence_mean(mean, margin=margin, sd=sd, n=n, alpha=alpha),
        power,
        start=MIN_UNITS,
    )


def _tail(noncentrality: float, freedom: int, critical: float) -> float:
    """P(T > critical); beyond 37 deviations SciPy's law is 0 or 1 to the last bit."""
    if abs(noncentrality - critical) > 1e3 + abs(critical):
        return 1.0 if noncentrality > critical else 0.0
    below = float(special.nctdtr(freedom, noncentrality, critical))
    if math.isnan(below):  # at some points, such as 159 degrees, 37.947 and 0.676, where it is 0
        from scipy.stats import nct  # takes half a second to import

        return float(nct.sf(critical, freedom, noncentrality))
    return 1.0 - below
