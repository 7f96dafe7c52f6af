"""``speculative.uniform``: is where a token fell in its law uniform?"""

import dataclasses
import math

import numpy as np

from validate.metrics._reason import Reason, without_value
from validate.metrics._spec_read import spec_side
from validate.metrics._spec_streams import (
    ACCEPTED,
    BONUS,
    FALLING_P,
    FALLING_RATIO,
    OWN,
    P_LAW,
    PLAIN,
    RESAMPLED,
    Column,
    Drawn,
    SpecSide,
    Tokens,
)
from validate.metrics._spec_tests import Named, Seen, family, settled, sound_side, strata_of
from validate.schema import Levels, Measurement, Pair
from validate.stats import SignificanceTest, cvm_shift_needed, cvm_test

__all__ = ["INFORMATIVE", "speculative_uniform"]

NAME = "speculative.uniform"
N_OF = "sampled tokens"
INFORMATIVE = 0.05
"""Entropy of p in nats; tokens below it could hardly have been others. It is known before the draw."""
POOLED, BY_STRATA = 0.6, 0.4
"""How a kind's level is split."""
PLAIN_SHARE, ORDER_SHARE = 0.5, 0.5
"""Of ``POOLED``, with drafts: p in falling order, on which power rests; all other laws and orders."""
GREEDY_MIN = 20
Tests = list[tuple[str, SignificanceTest]]


def speculative_uniform(pair: Pair, levels: Levels) -> Measurement:
    """P-value that every sampled token fell uniformly in the law it had to follow.

    U = F(x-) + V p(x) is uniform and independent where the sampler is right, under any order of
    the ids fixed before the draw. Under the requested law p and under the law of each token's
    outcome, in falling order of p and of q / p, pooled and by strata that are known before the
    draw; Cramer-von Mises; weighted Bonferroni over all of them.

    Args:
        pair: The candidate's drawn streams; the reference's tell the power.
        levels: 1 - alpha of all tests together, and the power asked for.

    Returns:
        The p-value, ``n`` = tokens at T > 0 of the kind that sees least. ``detection.effect`` is the
        share of tokens drawn from the argmax instead. Unlike (INCOMPARABLE) with equal seeds,
        a stripped stop token, dropped positions, or simulated acceptance; undefined without
        streams.

    Source:
        Rosenblatt 1952 and, for discrete laws, Brockwell 2007 (randomised transform);
        ``validate.stats.lossless``.
    """
    side = sound_side(pair)
    if isinstance(side, Reason):
        return without_value(NAME, side, unit="p-value", n_of=N_OF)
    kinds = side.sampled()
    found: list[Named] = []
    seen: list[Seen] = []
    shown: dict[str, float] = {}
    reference = {drawn.kind: drawn for drawn in spec_side(pair, pair.ref).sampled()}
    for drawn in kinds:
        weight = 1.0 / len(kinds)
        parts = _informative(drawn)
        found += _tests(side, parts, weight)
        share = POOLED * (1.0 if drawn.steps is None else PLAIN_SHARE)
        alpha = (1.0 - levels.low) * weight * share
        information = _information(_informative(reference.get(drawn.kind, drawn)).tokens)
        shift = cvm_shift_needed(alpha=alpha, power=levels.high)
        scale = math.sqrt(len(parts.tokens)) * information
        effect = shift / scale if scale > 0 else math.inf
        seen.append(Seen(kind=drawn.kind, n=len(drawn.tokens), effect=effect))
        shown |= _shown(side, drawn.kind, parts.tokens)
    measured = settled(
        NAME,
        found,
        seen,
        levels=levels,
        n_of=N_OF,
        method="first component of Cramer-von Mises",
        breakdown=shown,
    )
    if measured.value is None or measured.value >= 1.0 - levels.low:
        return measured
    return _told(measured, kinds)


def _informative(drawn: Drawn) -> Drawn:
    held = (drawn.tokens.entropy >= INFORMATIVE) & (drawn.tokens.p > 0)
    return Drawn(
        kind=drawn.kind, tokens=drawn.tokens.where(held), steps=drawn.steps, groups=drawn.groups
    )


def _tests(side: SpecSide, drawn: Drawn, weight: float) -> list[Named]:
    tokens, kind = drawn.tokens, drawn.kind
    first = _one(side, tokens, f"{kind}, p falling", law=P_LAW, order=FALLING_P)
    made: list[Named] = []
    pooled, strata = weight * POOLED, weight * BY_STRATA
    if drawn.steps is None:
        made += family(pooled, [first])
        others: Tests = []
    else:
        made += family(pooled * PLAIN_SHARE, [first])
        others = _by_law(side, tokens, kind)
        made += family(pooled * ORDER_SHARE, others)
    ways = [way for way in strata_of(drawn) if way.groups]
    for way in ways:
        part: Tests = []
        for name, mask in way.groups:
            held = tokens.where(mask)
            part.append(_one(side, held, f"{kind}, {name}, p falling", law=OWN, order=FALLING_P))
            if others:
                part.append(
                    _one(side, held, f"{kind}, {name}, q/p falling", law=OWN, order=FALLING_RATIO)
                )
        made += family(strata / len(ways), part)
    return made


def _by_law(side: SpecSide, tokens: Tokens, kind: str) -> Tests:
    """All tokens under both laws in both orders, and each outcome under its own law."""
    made = [_one(side, tokens, f"{kind}, q/p falling", law=P_LAW, order=FALLING_RATIO)]
    for words, outcome in (("accepted", ACCEPTED), ("resampled", RESAMPLED), ("bonus", BONUS)):
        held = tokens.where(tokens.outcome == outcome)
        made.append(
            _one(side, held, f"{kind}, {words}, own law, p falling", law=OWN, order=FALLING_P)
        )
        if outcome != BONUS:
            made.append(
                _one(
                    side,
                    held,
                    f"{kind}, {words}, own law, q/p falling",
                    law=OWN,
                    order=FALLING_RATIO,
                )
            )
    return made


def _one(
    side: SpecSide, tokens: Tokens, name: str, *, law: int, order: int
) -> tuple[str, SignificanceTest]:
    values = tokens.uniforms(side.key, law=law, order=order)
    return name, cvm_test(values[np.isfinite(values)])


def _greedy_hits(tokens: Tokens) -> Column:
    return np.asarray(tokens.falls[:, P_LAW, FALLING_P, 0] <= 0.0)


def _information(tokens: Tokens) -> float:
    """Shift of the first component per root token, for tokens drawn from the argmax."""
    if not len(tokens):
        return 0.0
    top = tokens.top.astype(np.float64)
    return float(np.mean(math.sqrt(2.0) * np.sin(math.pi * top) / (math.pi * top)))


def _shown(side: SpecSide, kind: str, tokens: Tokens) -> dict[str, float]:
    if not len(tokens):
        return {f"{kind}.tokens": 0.0}
    u = tokens.uniforms(side.key, law=P_LAW, order=FALLING_P)
    return {
        f"{kind}.tokens": float(len(tokens)),
        f"{kind}.mean_u": float(np.mean(u)),
        f"{kind}.argmax_share": float(np.mean(_greedy_hits(tokens))),
    }


def _told(measured: Measurement, kinds: list[Drawn]) -> Measurement:
    """The finding in words; with drafts, of the tokens that verification emitted."""
    greedy = []
    for drawn in kinds:
        tokens = _informative(drawn).tokens
        if drawn.steps is not None:
            tokens = tokens.where(tokens.outcome != PLAIN)
        if len(tokens) >= GREEDY_MIN and _greedy_hits(tokens).all():
            greedy.append(f"{drawn.kind}, {len(tokens)} tokens that could have been others")
    if not greedy:
        return measured
    words = f"sampling is greedy: every token at T > 0 is the argmax ({'; '.join(greedy)})"
    return dataclasses.replace(measured, pattern=words)
