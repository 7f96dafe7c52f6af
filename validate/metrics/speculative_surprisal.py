"""``speculative.surprisal``: are sampled tokens as surprising as their law says?"""

import math

import numpy as np

from validate.metrics._reason import Reason, without_value
from validate.metrics._spec_streams import Drawn, Tokens
from validate.metrics._spec_tests import Named, Seen, family, settled, sound_side, strata_of
from validate.schema import Levels, Measurement, Pair
from validate.stats import SignificanceTest, skewed_z, z_shift_needed

__all__ = ["speculative_surprisal"]

NAME = "speculative.surprisal"
N_OF = "sampled tokens"
POOLED, BY_STRATA = 0.6, 0.4
FLAT = 1e-9
"""Variance of surprisal below which a token could not have been another."""


def speculative_surprisal(pair: Pair, levels: Levels) -> Measurement:
    """P-value that surprisal has the mean that each token's law gives it.

    Given the past, log p(x) + H has mean 0 and the variance of surprisal, so that
    z = sum(log p + H) / sqrt(sum Var) is near normal; corrected for skewness. A sampler that is too
    cold, too greedy or filters too much makes z positive. Pooled, and by strata that are known
    before the draw.

    Args:
        pair: The candidate's drawn streams.
        levels: 1 - alpha of all tests together, and the power asked for.

    Returns:
        The p-value, ``n`` = tokens at T > 0 of the kind that sees least. ``detection.effect`` is the
        relative error of the inverse temperature: tokens drawn from p^(1 + e) have a mean of
        e Var. Undefined and unlike as ``speculative.uniform``.

    Source:
        Brown 1971 (martingale central limit theorem); ``validate.stats.lossless``.
    """
    side = sound_side(pair)
    if isinstance(side, Reason):
        return without_value(NAME, side, unit="p-value", n_of=N_OF)
    kinds = side.sampled()
    found: list[Named] = []
    seen: list[Seen] = []
    shown: dict[str, float] = {}
    for drawn in kinds:
        weight = 1.0 / len(kinds)
        held = _held(drawn)
        pooled = _one(held.tokens, drawn.kind)
        found += family(weight * POOLED, [pooled])
        ways = [way for way in strata_of(held) if way.groups]
        for way in ways:
            parts = [
                _one(held.tokens.where(mask), f"{drawn.kind}, {name}") for name, mask in way.groups
            ]
            found += family(weight * BY_STRATA / len(ways), parts)
        shift = z_shift_needed(alpha=(1.0 - levels.low) * weight * POOLED, power=levels.high)
        total = math.fsum(held.tokens.variance)
        seen.append(
            Seen(
                kind=drawn.kind,
                n=len(drawn.tokens),
                effect=shift / math.sqrt(total) if total > 0 else math.inf,
            )
        )
        shown |= _shown(drawn, pooled[1], total)
    return settled(
        NAME,
        found,
        seen,
        levels=levels,
        n_of=N_OF,
        method="normal law of the martingale z",
        breakdown=shown,
        pattern=_words(found),
    )


def _held(drawn: Drawn) -> Drawn:
    """Tokens that could have been others; one outside the support is counted by another metric."""
    tokens = drawn.tokens
    held = (tokens.variance > FLAT) & (tokens.p > 0)
    return Drawn(kind=drawn.kind, tokens=tokens.where(held), steps=drawn.steps, groups=drawn.groups)


def _one(tokens: Tokens, name: str) -> tuple[str, SignificanceTest]:
    moved = np.log(tokens.p) + tokens.entropy
    return name, skewed_z(moved, tokens.variance, float(np.sum(moved**3)))


def _shown(drawn: Drawn, test: SignificanceTest, total: float) -> dict[str, float]:
    if test.statistic is None or not total > 0:
        return {}
    return {
        f"{drawn.kind}.z": test.statistic,
        f"{drawn.kind}.inverse_temperature": 1.0 + test.statistic / math.sqrt(total),
        f"{drawn.kind}.outside_support": float(np.count_nonzero(~(drawn.tokens.p > 0))),
    }


def _words(found: list[Named]) -> str | None:
    """Which way the worst test points."""
    held = [one for one in found if one.test.statistic is not None]
    if not held:
        return None
    worst = min(held, key=lambda one: float(one.test.p_value or 0.0) / one.weight)
    too = "probable" if (worst.test.statistic or 0.0) > 0 else "surprising"
    cold = "a lower" if too == "probable" else "a higher"
    return f"tokens are too {too}, as at {cold} temperature; most in {worst.name}"
