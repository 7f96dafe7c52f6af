"""Several tasks in one measurement: each its own limits, the gate's risk split over them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from validate.schema import Interval, Levels, Measurement, Worst
from validate.stats import (
    DROP_METHOD,
    betting_limits,
    drop_limits,
    holm,
    least_drop,
    mcnemar_counts,
    mde_drop,
    trusted,
)

__all__ = ["POINTS", "Part", "binary_part", "bounded_part", "combine", "shared_levels"]

POINTS = 100.0
"""Points in a share of 1."""
MDE_ALPHA, MDE_POWER = 0.05, 0.8
"""At which the smallest effect is told that McNemar's test sees, as peers tell theirs."""
BETTING = "betting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One task of a measurement, in points; positive is worse."""

    name: str
    value: float
    n: int
    low: float | None
    high: float | None
    method: str
    p_value: float | None = None
    """Of the hypothesis that cand is not worse at all (exact McNemar)."""
    shown: Mapping[str, float] = field(default_factory=dict)
    detail: str | None = None
    blind: str | None = None
    """Why no PASS can rest on it; then ``high`` is None."""


def shared_levels(levels: Levels, parts: int) -> Levels:
    """Levels of each part: the first step of Holm's rule below, the full level above.

    The gate FAILs where any part does, so its risk is split; it PASSes where all do, so each part
    alone keeps the chance of a false PASS.
    """
    return Levels(low=1.0 - (1.0 - levels.low) / parts, high=levels.high)


def binary_part(name: str, lost: int, gained: int, n: int, *, levels: Levels) -> Part:
    """A part of right and wrong answers: exact and Tango's limits, McNemar's p, the MDE at this n.

    Where too few items differ to tell how many will, the MDE is that of items that are only lost.
    """
    found = drop_limits(lost, gained, n, levels=levels)
    test = mcnemar_counts(lost, gained)
    mde = mde_drop((lost + gained) / n, n=n, alpha=MDE_ALPHA, power=MDE_POWER)
    if mde is None:  # too few items differ to go by
        mde = least_drop(n=n, alpha=MDE_ALPHA, power=MDE_POWER)
    shown = {"lost": float(lost), "gained": float(gained)}
    if mde is not None:
        shown["mde"] = POINTS * mde
    part = Part(
        name=name,
        value=POINTS * (lost - gained) / n,
        n=n,
        low=_points(found.low),
        high=_points(found.high),
        method=found.method,
        p_value=1.0 if test.p_value is None else test.p_value,
        shown=shown,
        detail=f"{lost} lost and {gained} gained of {n}",
    )
    if trusted(found.method, n=n, heavy=True):
        return part
    why = f"{name}: {n} items are too few for the upper limit (100 needed)"
    return replace(part, high=None, blind=why)


def bounded_part(name: str, drops: NDArray[np.float64], *, levels: Levels) -> Part:
    """A part of scores in [0, 1] that are not only 0 and 1: betting limits over documents."""
    found = betting_limits((1.0 + drops) / 2.0, levels=levels)
    worse, better = int((drops > 0).sum()), int((drops < 0).sum())
    value = float(np.mean(drops))
    equal = not (worse or better)
    return Part(
        name=name,
        value=POINTS * value,
        n=int(drops.size),
        low=0.0 if equal or found.low is None else POINTS * (2.0 * found.low - 1.0),
        high=None if found.high is None else POINTS * (2.0 * found.high - 1.0),
        method=BETTING,
        shown={"worse": float(worse), "better": float(better)},
        detail=f"{worse} worse and {better} better of {drops.size} documents",
    )


def combine(
    metric: str,
    parts: Sequence[Part],
    *,
    levels: Levels,
    breakdown: Mapping[str, float],
    pattern: str | None = None,
) -> Measurement:
    """One measurement of all parts: the greatest drop, the greatest of the limits.

    ``n`` and ``worst_value`` are of the part whose upper limit decides; the breakdown holds each
    part's drop, counts, exact p, its Holm-adjusted one and the MDE.
    """
    worst = max(parts, key=lambda part: (_shown(part), part.value))
    blind = next((part for part in parts if part.high is None), None)
    decides = blind or max(parts, key=lambda part: _or_least(part.high))
    lows = [part.low for part in parts if part.low is not None]
    methods = {part.method for part in parts}
    return Measurement(
        metric=metric,
        value=max(part.value for part in parts),
        unit="points",
        n=decides.n,
        n_of=f"items of {decides.name}",
        interval=Interval(
            low=max(lows, default=None),
            low_level=levels.low,
            high=None if blind is not None else decides.high,
            high_level=levels.high,
            method=DROP_METHOD if DROP_METHOD in methods else BETTING,
        ),
        worst=Worst(place=worst.name, value=worst.value, detail=worst.detail),
        worst_value=decides.value,
        pattern=pattern,
        breakdown={**_table(parts, levels), **breakdown},
        why_open=None if blind is None else blind.blind,
    )


def _table(parts: Sequence[Part], levels: Levels) -> dict[str, float]:
    p_values = {part.name: part.p_value for part in parts if part.p_value is not None}
    adjusted = holm(p_values, alpha=1.0 - levels.low) if p_values else {}
    found: dict[str, float] = {}
    for part in parts:
        found[f"{part.name}: drop"] = part.value
        found |= {f"{part.name}: {key}": value for key, value in part.shown.items()}
        if part.p_value is not None:
            found[f"{part.name}: p"] = part.p_value
            found[f"{part.name}: p (Holm)"] = adjusted[part.name]
    return found


def _shown(part: Part) -> float:
    """The drop that is shown; 0 where none is."""
    return part.low if part.low is not None and part.low > 0.0 else 0.0


def _or_least(value: float | None) -> float:
    return -math.inf if value is None else value


def _points(share: float | None) -> float | None:
    return None if share is None else POINTS * share
