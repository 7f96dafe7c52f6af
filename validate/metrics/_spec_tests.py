"""Several tests of one hypothesis as one p-value, and what they would have seen."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from validate.metrics._reason import Reason
from validate.metrics._spec_read import spec_side
from validate.metrics._spec_streams import (
    Column,
    Drawn,
    SpecSide,
    missing_streams,
    other_parameters,
)
from validate.metrics.speculative_nonfinite import damage
from validate.schema import Levels, Measurement, Pair, Worst
from validate.schema.measurement import Detection
from validate.stats import SignificanceTest, combined_p
from validate.stats.uniformity import MIN_PAIRS

__all__ = [
    "MIN_STRATUM",
    "Named",
    "Seen",
    "Strata",
    "family",
    "judged_side",
    "settled",
    "sound_side",
    "strata_of",
]

MIN_STRATUM = 50
"""Fewer tokens make no stratum of their own; the pooled tests hold them all the same."""
QUARTERS = (0.25, 0.5, 0.75)


class Named(NamedTuple):
    """One test, and its share of the measurement's level."""

    name: str
    test: SignificanceTest
    weight: float


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one kind of streams would have seen."""

    kind: str
    n: int
    effect: float
    """Smallest effect that is seen; infinite where none would be."""


def judged_side(pair: Pair) -> SpecSide | Reason:
    """The candidate's drawn streams, or why they may not be judged."""
    side = spec_side(pair, pair.cand)
    if side.refusal is not None:
        return Reason(side.refusal, "unlike")
    if not side.kinds:
        return Reason(f"{side.label} holds no drawn streams; capture prompts tagged 'speculative'")
    why = pair.once("spec parameters", lambda: _unlike(spec_side(pair, pair.ref), side))
    return side if why is None else Reason(why, "unlike")


def _unlike(ref: SpecSide, cand: SpecSide) -> str | None:
    return missing_streams(ref, cand) or other_parameters(ref, cand)


def sound_side(pair: Pair) -> SpecSide | Reason:
    """``judged_side``, or why its numbers are none that a test can be made of."""
    side = judged_side(pair)
    if isinstance(side, Reason):
        return side
    why = pair.once("spec damage", lambda: damage(side))
    return side if why is None else Reason(why)


def family(weight: float, tests: Sequence[tuple[str, SignificanceTest]]) -> Iterator[Named]:
    """Tests that share ``weight`` evenly, those without a result too; they are then left out."""
    for name, test in tests:
        if test.p_value is not None:
            yield Named(name, test, weight / len(tests))


class Strata(NamedTuple):
    """One way to divide tokens, fixed before each was drawn."""

    name: str
    groups: Sequence[tuple[str, Column]]
    """Name and mask of each part that is large enough."""


def strata_of(drawn: Drawn) -> list[Strata]:
    """Parts of a kind's tokens by index in the block, depth, parameters and entropy.

    All are known before the token is drawn; never is it the token that decides.
    """
    tokens = drawn.tokens
    by_row = [(f"row {r}", tokens.row == r) for r in np.unique(tokens.row)]
    by_params = [
        (f"parameters {drawn.groups[g]}", tokens.group == g) for g in np.unique(tokens.group)
    ]
    made = [
        Strata("row", by_row if drawn.steps is not None else []),
        Strata("depth", _quarters(tokens.position, "depth")),
        Strata("parameters", by_params),
        Strata("entropy", _quarters(tokens.entropy, "entropy")),
    ]
    return [
        Strata(one.name, [(n, m) for n, m in one.groups if np.count_nonzero(m) >= MIN_STRATUM])
        for one in made
    ]


def _quarters(values: Column, name: str) -> list[tuple[str, Column]]:
    if not len(values):
        return []
    edges = [-math.inf, *np.quantile(values, QUARTERS).tolist(), math.inf]
    return [
        (f"{name} {low:.3g} to {high:.3g}", (values > low) & (values <= high))
        for low, high in itertools.pairwise(edges)
        if low < high
    ]


def settled(
    metric: str,
    found: Sequence[Named],
    seen: Sequence[Seen],
    *,
    levels: Levels,
    n_of: str,
    method: str,
    pattern: str | None = None,
    breakdown: Mapping[str, float] | None = None,
) -> Measurement:
    """One p-value of all tests by weighted Bonferroni, and the effect that the weakest kind sees.

    Args:
        metric: Name of the metric.
        found: Tests with a result; weights add up to at most 1.
        seen: One a kind of streams.
        levels: Levels that ``seen`` was computed for.
        n_of: What the units are.
        method: How power was computed.
        pattern: What was found, in words; None: the name of the worst test.
        breakdown: Companions.
    """
    if not found:
        n = sum(one.n for one in seen)
        return Measurement(
            metric=metric,
            value=None,
            unit="p-value",
            n=n,
            n_of=n_of,
            why_undefined=f"too few units for any of its tests: {n} {n_of}, at least {MIN_PAIRS} "
            "that could have been others are needed",
            n_needed=MIN_PAIRS if n < MIN_PAIRS else None,
            breakdown=dict(breakdown or {}),
        )
    p_values = [float(one.test.p_value or 0.0) for one in found]
    value = combined_p(p_values, [one.weight for one in found])
    worst = found[int(np.argmin([p / one.weight for p, one in zip(p_values, found, strict=True)]))]
    certain = Seen(kind=worst.name, n=worst.test.n, effect=math.inf)
    weakest = max(seen, key=lambda one: one.effect, default=certain)
    return Measurement(
        metric=metric,
        value=value,
        unit="p-value",
        n=weakest.n,
        n_of=f"{n_of} ({weakest.kind})",
        worst=_worst(worst),
        pattern=pattern or f"most in {worst.name}",
        breakdown=dict(breakdown or {}),
        detection=Detection(
            effect=weakest.effect, alpha=1.0 - levels.low, power=levels.high, method=method
        ),
    )


def _worst(named: Named) -> Worst:
    test = named.test
    shown = "" if test.estimate is None else f", estimate {test.estimate:.4g}"
    statistic = "" if test.statistic is None else f"{test.statistic:.4g}"
    return Worst(
        place=named.name,
        value=test.p_value,
        detail=f"{test.method} {statistic} over {test.n} {test.n_of}{shown}".replace("  ", " "),
    )
