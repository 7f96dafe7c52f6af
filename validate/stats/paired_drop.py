"""By how much did the share of right answers drop: limits for paired binary items."""

import math

from scipy import special

from validate.schema import Interval, Levels
from validate.stats._check import check_levels
from validate.stats.noninferior import paired_proportion_limits

__all__ = ["DROP_METHOD", "drop_limits", "drop_n_needed", "least_drop", "mde_drop"]

DROP_METHOD = "Tango score (lower limit exact, conditional)"
NUISANCE = 0.1
"""Part of the lower limit's risk that is spent on the share of discordant pairs."""
STEPS = 50
MOST_UNITS = 10_000_000


def drop_limits(lost: int, gained: int, n: int, *, levels: Levels) -> Interval:
    """Limits for ``p_ref - p_cand`` from paired right and wrong answers.

    The lower limit, on which a FAIL rests at small risks, is exact: given the discordant pairs the
    lost ones are binomial, and the share of discordant pairs is only known to lie in its exact
    interval at a tenth of the risk. The upper limit, on which a PASS rests, is Tango's.

    Args:
        lost: Items right on ref and wrong on cand.
        gained: Items wrong on ref and right on cand.
        n: All items.
        levels: One-sided confidence levels of the two limits.

    Returns:
        The limits, in [-1, 1]; both None for n = 0. Positive is worse.

    Raises:
        InputError: Counts do not fit into n, or a level is outside (0, 1).

    Level:
        Lower limit: at least the stated one at every n. Upper limit: within a point of 95 %
        from 100 items, by exact enumeration (``docs/statistics.md``).

    Power:
        ``mde_drop``.

    Source:
        Berger and Boos, JASA 89 (1994) 1012 (a nuisance parameter in its confidence interval);
        Tango, Statist. Med. 17 (1998) 891.

    Example:
        >>> found = drop_limits(30, 2, 500, levels=Levels(low=0.99))
        >>> f"{found.low:.4f} {found.high:.4f}"
        '0.0182 0.0764'
    """
    check_levels(levels)
    score = paired_proportion_limits(lost, gained, n, levels=Levels(low=levels.high, high=0.5))
    return Interval(
        low=_exact_low(lost, gained, n, 1.0 - levels.low) if n else None,
        low_level=levels.low,
        high=None if score.low is None else -score.low,
        high_level=levels.high,
        method=DROP_METHOD,
    )


def drop_n_needed(lost: int, gained: int, n: int, *, limit: float, levels: Levels) -> int | None:
    """Items that would bring the upper limit inside ``limit`` at the rates that were seen.

    None where the drop itself is not below the limit. By bisection on Tango's limit of scaled counts.

    Raises:
        InputError: As ``drop_limits``.
    """
    if n == 0 or not (lost - gained) / n < limit:
        return None
    low, high = 1.0, 2.0
    while not _high(lost, gained, n, high, levels) <= limit:
        low, high = high, 2.0 * high
        if high * n > MOST_UNITS:
            return None
    for _ in range(20):
        middle = 0.5 * (low + high)
        inside = _high(lost, gained, n, middle, levels) <= limit
        low, high = (low, middle) if inside else (middle, high)
    return math.ceil(high * n)


def mde_drop(discordant: float, *, n: int, alpha: float, power: float) -> float | None:
    """Smallest true drop that exact McNemar rejects with ``power``, by the normal law.

    Args:
        discordant: Share of items on which the two sides differ, in [0, 1].
        n: Items.
        alpha: One-sided level.
        power: In (0, 1).

    Returns:
        A share; None where nothing differs or the drop would exceed ``discordant``.

    Source:
        Lu and Bean, Statist. Med. 14 (1995) 1831.

    Example:
        >>> f"{mde_drop(0.02, n=1319, alpha=0.05, power=0.8):.4f}"
        '0.0097'
    """
    if n == 0 or not discordant > 0.0:
        return None
    reach = float(special.ndtri(1.0 - alpha) + special.ndtri(power))
    found = reach * math.sqrt(discordant / n)
    return found if found <= discordant else None


def least_drop(*, n: int, alpha: float, power: float) -> float | None:
    """Smallest drop that exact McNemar rejects with ``power`` where no item is ever gained.

    No discordance makes it smaller, so it stands in where ``mde_drop`` has too few discordant items
    to go by: of ``m`` lost items and none gained the p-value is 0.5 to the power m.

    Args:
        n: Items.
        alpha: One-sided level.
        power: In (0, 1).

    Returns:
        A share; None where not even all items lost would be rejected.

    Source:
        McNemar, Psychometrika 12 (1947) 153; the binomial law of the lost items.

    Example:
        >>> f"{least_drop(n=500, alpha=0.05, power=0.8):.4f}"
        '0.0134'
    """
    needed = math.ceil(math.log(alpha) / math.log(0.5))
    if needed > n:
        return None
    return float(special.betaincinv(needed, n - needed + 1, power))


def _high(lost: int, gained: int, n: int, factor: float, levels: Levels) -> float:
    size = math.ceil(n * factor)
    scaled = round(lost * factor), round(gained * factor)
    found = drop_limits(*scaled, size, levels=Levels(low=0.5, high=levels.high))
    return 1.0 if found.high is None else found.high


def _exact_low(lost: int, gained: int, n: int, alpha: float) -> float:
    """Least drop that is not rejected as too small."""
    discordant = lost + gained
    spent = NUISANCE * alpha
    rate_low = (
        float(special.betaincinv(discordant, n - discordant + 1, spent)) if discordant else 0.0
    )
    rate_high = (
        float(special.betaincinv(discordant + 1, n - discordant, 1.0 - spent))
        if discordant < n
        else 1.0
    )
    low, high = -1.0, (lost - gained) / n
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        rejected = _p_value(middle, lost, discordant, (rate_low, rate_high)) < alpha - spent
        low, high = (middle, high) if rejected else (low, middle)
    return low


def _p_value(drop: float, lost: int, discordant: int, rates: tuple[float, float]) -> float:
    """Chance of so many lost items at the least favourable share of discordant pairs."""
    if drop >= 0.0:
        rate = rates[0]
        share = 1.0 if rate <= drop else 0.5 * (1.0 + drop / rate)
    else:
        rate = rates[1]
        if rate < -drop:
            return 0.0
        share = 0.5 * (1.0 + drop / rate)
    return 1.0 if lost == 0 else float(special.bdtrc(float(lost - 1), discordant, share))
