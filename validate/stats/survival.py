"""When do greedy streams part? Kaplan-Meier, and the prompt-paired ratio of divergence hazards."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from validate.errors import InputError
from validate.schema import Interval, Levels
from validate.stats._check import check_levels, check_positive
from validate.stats.proportion import proportion_limits
from validate.stats.result import SignificanceTest

__all__ = [
    "Survival",
    "hazard_noninferiority",
    "hazard_ratio_limits",
    "kaplan_meier",
    "poisson_rate_limits",
    "rate_excess_test",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survival:
    """Kaplan-Meier curve: one entry per distinct time at which a stream parted."""

    times: tuple[int, ...]
    """Positions of first divergence, rising."""
    at_risk: tuple[int, ...]
    """Streams that had agreed up to just before each time."""
    events: tuple[int, ...]
    """Streams that parted at each time."""
    survival: tuple[float, ...]
    """Share still in agreement after each time."""
    error: tuple[float | None, ...]
    """Greenwood's standard error; None where the curve has reached 0."""
    n: int
    """Streams (prompts)."""


def kaplan_meier(times: Sequence[int], diverged: Sequence[bool]) -> Survival:
    """Kaplan-Meier curve of agreement with Greenwood's standard error.

    Assumptions: prompts are independent; a stream that ended without parting is censored
    at its length for reasons that have nothing to do with when it would have parted.

    Args:
        times: Per prompt the position of first divergence, or the length where there is none.
        diverged: Per prompt whether the streams parted at that time.

    Returns:
        The curve; without entries where no stream parted.

    Raises:
        InputError: Lengths differ, or a time is negative.

    Source:
        Kaplan and Meier, JASA 53 (1958) 457; Greenwood (1926); as R ``survival::survfit``.

    Example:
        >>> kaplan_meier([6, 6, 10], [True, False, True]).survival
        (0.6666666666666666, 0.0)
    """
    if len(times) != len(diverged):
        msg = f"`times` holds {len(times)} streams and `diverged` {len(diverged)}"
        raise InputError(msg)
    when = np.asarray(times, dtype=np.int64)
    parted = np.asarray(diverged, dtype=bool)
    if (when < 0).any():
        first = int(np.argmax(when < 0))
        msg = f"`times` must not be negative, got {when[first]} at {first}"
        raise InputError(msg)
    moments = np.unique(when[parted])
    risk = [int(np.count_nonzero(when >= moment)) for moment in moments]
    events = [int(np.count_nonzero(parted & (when == moment))) for moment in moments]
    curve: list[float] = []
    errors: list[float | None] = []
    left, spread = 1.0, 0.0
    for at, gone in zip(risk, events, strict=True):
        left *= (at - gone) / at
        if at > gone:
            spread += gone / (at * (at - gone))
        curve.append(left)
        errors.append(left * math.sqrt(spread) if at > gone else None)
    return Survival(
        times=tuple(int(moment) for moment in moments),
        at_risk=tuple(risk),
        events=tuple(events),
        survival=tuple(curve),
        error=tuple(errors),
        n=when.size,
    )


def hazard_ratio_limits(cand_first: int, floor_first: int, *, levels: Levels) -> Interval:
    """Exact conditional limits for the prompt-paired ratio of divergence hazards.

    Each prompt has two streams set against ref's: cand's, and a repeat of ref's (the floor).
    Where hazards are proportional with ratio r inside a prompt, the one that parts first is
    cand's with chance r / (1 + r), whatever the prompt; prompts where neither parts, or both
    at one position, say nothing. So r comes from a binomial share (a stratified Cox
    model with pairs as strata has the same estimate).

    Args:
        cand_first: Prompts where cand parted first (the floor's stream later or not at all).
        floor_first: Prompts where the repeat of ref parted first.
        levels: One-sided confidence levels of the two limits.

    Returns:
        Limits of cand's hazard over the floor's; both None without such prompts; ``high`` None
        where no floor stream parted first (no data bound a ratio to 0 events).

    Raises:
        InputError: A count is negative, or a level is outside (0, 1).

    Level:
        At least the stated one (Clopper-Pearson).

    Power:
        ``power_binomial(r / (1 + r), n=..., p=m / (1 + m), alpha=...)``.

    Source:
        Holt and Prentice, Biometrika 61 (1974) 17 (paired proportional hazards).

    Example:
        >>> found = hazard_ratio_limits(5, 5, levels=Levels(low=0.975, high=0.975))
        >>> f"{found.low:.3f} {found.high:.3f}"
        '0.230 4.345'
    """
    _check_events(cand_first, floor_first)
    inner = proportion_limits(cand_first, cand_first + floor_first, levels=levels)
    return Interval(
        low=None if inner.low is None else inner.low / (1.0 - inner.low),
        low_level=levels.low,
        high=None if inner.high is None or not inner.high < 1.0 else _odds(inner.high),
        high_level=levels.high,
        method="paired hazard ratio (Clopper-Pearson on which parts first)",
    )


def hazard_noninferiority(cand_first: int, floor_first: int, *, margin: float) -> SignificanceTest:
    """Exact test that the paired hazard ratio is below ``margin``.

    A small p-value shows that cand parts from ref less than ``margin`` times as often as a
    repeat of ref does. Under the null hypothesis cand parts first with chance margin/(1+margin).

    Args:
        cand_first: Prompts where cand parted first.
        floor_first: Prompts where the repeat of ref parted first.
        margin: Largest ratio that is accepted, above 1.

    Returns:
        The test; p-value None where no prompt tells the two apart.

    Raises:
        InputError: A count is negative, or ``margin`` is not above 1 and finite.

    Level, Power, Source:
        As ``hazard_ratio_limits``.
    """
    check_positive(margin, name="margin")
    if not margin > 1.0:
        msg = f"`margin` must be above 1 (1 asks cand to be better than ref itself), got {margin}"
        raise InputError(msg)
    _check_events(cand_first, floor_first)
    n = cand_first + floor_first
    method = "paired hazard ratio, exact binomial"
    if n == 0:
        why = "no prompt on which one of the two streams parted first"
        return SignificanceTest(
            p_value=None, statistic=None, n=0, n_of="prompts", method=method, alternative="less",
            why_undefined=why,
        )  # fmt: skip
    return SignificanceTest(
        p_value=float(special.bdtr(float(cand_first), n, margin / (1.0 + margin))),
        statistic=float(cand_first),
        n=n,
        n_of="prompts",
        method=method,
        alternative="less",
        estimate=cand_first / floor_first if floor_first else None,
    )


def poisson_rate_limits(events: int, *, exposure: float, levels: Levels) -> Interval:
    """Exact Poisson limits for events per unit of exposure, for few events.

    Assumptions: events are independent and rare, at most one a prompt (count first divergences,
    never each differing token).

    Args:
        events: Prompts whose streams parted.
        exposure: What they were exposed to, e.g. thousands of tokens up to divergence or end.
        levels: One-sided confidence levels of the two limits.

    Returns:
        Limits of the rate, events per unit of ``exposure``.

    Raises:
        InputError: ``events`` is negative, ``exposure`` not positive, or a level out of range.

    Level:
        At least the stated one.

    Source:
        Garwood, Biometrika 28 (1936) 437: chi-squared quantiles.

    Example:
        >>> f"{poisson_rate_limits(0, exposure=1.0, levels=Levels(low=0.95)).high:.4f}"
        '2.9957'
    """
    check_levels(levels)
    check_positive(exposure, name="exposure")
    _check_events(events, 0)
    low = float(special.gammaincinv(events, 1.0 - levels.low)) if events else 0.0
    high = float(special.gammaincinv(events + 1, levels.high))
    return Interval(
        low=low / exposure,
        low_level=levels.low,
        high=high / exposure,
        high_level=levels.high,
        method="exact Poisson",
    )


def rate_excess_test(
    cand_events: int, floor_events: int, *, cand_exposure: float, floor_exposure: float
) -> SignificanceTest:
    """Exact conditional test that cand's event rate exceeds the floor's.

    Given all events, cand's are binomial with cand's part of the exposure.

    Args:
        cand_events: Events of cand.
        floor_events: Events of the repeat of ref.
        cand_exposure: Exposure of cand, positive.
        floor_exposure: Exposure of the repeat, same unit, positive.

    Returns:
        The test against greater; p-value None without events.

    Raises:
        InputError: A count is negative or an exposure not positive.

    Level:
        At most the stated one.

    Source:
        Przyborowski and Wilenski, Biometrika 31 (1940) 313; R ``poisson.test`` of two samples.
    """
    _check_events(cand_events, floor_events)
    check_positive(cand_exposure, name="cand_exposure")
    check_positive(floor_exposure, name="floor_exposure")
    n = cand_events + floor_events
    share = cand_exposure / (cand_exposure + floor_exposure)
    tail = 1.0 if cand_events == 0 else float(special.bdtrc(float(cand_events - 1), n, share))
    return SignificanceTest(
        p_value=tail if n else None,
        statistic=float(cand_events) if n else None,
        n=n,
        n_of="events",
        method="two Poisson rates, exact conditional",
        alternative="greater",
        why_undefined=None if n else "no events on either side",
    )


def _odds(share: float) -> float:
    return share / (1.0 - share)


def _check_events(one: int, other: int) -> None:
    for count in (one, other):
        if count < 0:
            msg = f"an event count must not be negative, got {count}"
            raise InputError(msg)
