"""``speculative.serial``: are the random numbers behind the tokens independent of each other?"""

import math

import numpy as np

from validate.metrics._reason import Reason, without_value
from validate.metrics._spec_streams import (
    ACCEPTED,
    FALLING_P,
    OWN,
    Column,
    Drawn,
    SpecSide,
    Steps,
    Tokens,
)
from validate.metrics._spec_tests import Named, Seen, family, settled, sound_side
from validate.metrics.speculative_uniform import INFORMATIVE
from validate.schema import Levels, Measurement, Pair
from validate.stats import SignificanceTest, group_dispersion, lag_products, z_shift_needed

__all__ = ["speculative_serial"]

NAME = "speculative.serial"
N_OF = "sampled tokens"
NEIGHBOURS, OTHERS = 0.4, 0.6
"""How a kind's level is split: the lag of one, on which power rests, and all other pairings."""
CERTAIN = 1e-6
"""A coin whose outcome was this near to certain says nothing of the coin."""
Tests = list[tuple[str, SignificanceTest]]


def speculative_serial(pair: Pair, levels: Levels) -> Measurement:
    """P-value that no two tokens share a random number.

    U of each token, and W of each coin that judged a draft (uniform where the coin is: an accepted
    draft's coin lies below its chance, a rejected one's above), are independent of their
    neighbours in the stream, of those in the same row of the next step, and of those at the same
    position or step of other streams.

    Args:
        pair: The candidate's drawn streams.
        levels: 1 - alpha of all tests together, and the power asked for.

    Returns:
        The p-value, ``n`` = tokens at T > 0 of the kind that sees least. ``detection.effect`` is the
        correlation of neighbouring U. Undefined and unlike as ``speculative.uniform``.

    Source:
        Knuth, TAOCP 2, 3.3.2 (serial correlation); ``validate.stats.lossless``.
    """
    side = sound_side(pair)
    if isinstance(side, Reason):
        return without_value(NAME, side, unit="p-value", n_of=N_OF)
    kinds = side.sampled()
    found: list[Named] = []
    seen: list[Seen] = []
    for drawn in kinds:
        weight = 1.0 / len(kinds)
        tokens = drawn.tokens.where((drawn.tokens.entropy >= INFORMATIVE) & (drawn.tokens.p > 0))
        u = tokens.uniforms(side.key, law=OWN, order=FALLING_P)
        tokens, u = tokens.where(np.isfinite(u)), u[np.isfinite(u)]
        first = _lag(tokens, u, drawn.kind, 1)
        found += family(weight * NEIGHBOURS, [first])
        others = [_lag(tokens, u, drawn.kind, 2), *_shared(tokens, u, drawn.kind)]
        if drawn.steps is not None:
            others += _finals(tokens, u, drawn.kind)
            others += _coins(side, drawn)
        found += family(weight * OTHERS, others)
        shift = z_shift_needed(alpha=(1.0 - levels.low) * weight * NEIGHBOURS, power=levels.high)
        pairs = first[1].n
        effect = shift / math.sqrt(pairs) if first[1].p_value is not None else math.inf
        seen.append(Seen(kind=drawn.kind, n=len(drawn.tokens), effect=effect))
    return settled(
        NAME,
        found,
        seen,
        levels=levels,
        n_of=N_OF,
        method="normal law of the serial correlation",
    )


def _lag(tokens: Tokens, u: Column, kind: str, lag: int) -> tuple[str, SignificanceTest]:
    """Neighbours in one stream, both of which could have been others."""
    here = (tokens.prompt[lag:] == tokens.prompt[:-lag]) & (
        tokens.index[lag:] == tokens.index[:-lag] + lag
    )
    name = f"{kind}, neighbours at distance {lag}"
    return name, lag_products(u[lag:][here], u[:-lag][here], what=f"lag {lag}")


def _shared(tokens: Tokens, u: Column, kind: str) -> Tests:
    return [
        (f"{kind}, tokens of one stream", group_dispersion(u, tokens.prompt, what="by stream")),
        (
            f"{kind}, streams at one position",
            group_dispersion(u, tokens.position, what="by position"),
        ),
        (f"{kind}, streams at one token", group_dispersion(u, tokens.index, what="by token")),
    ]


def _finals(tokens: Tokens, u: Column, kind: str) -> Tests:
    """Tokens that ended a step: one number of their own each."""
    held = (tokens.outcome != ACCEPTED) & (tokens.step >= 0)
    ends, values = tokens.where(held), u[held]
    near = (ends.prompt[1:] == ends.prompt[:-1]) & (ends.step[1:] == ends.step[:-1] + 1)
    return [
        (
            f"{kind}, final tokens of one step and the next",
            lag_products(values[1:][near], values[:-1][near], what="final tokens"),
        ),
        (
            f"{kind}, final tokens of streams at one step",
            group_dispersion(values, ends.step, what="by step"),
        ),
    ]


def _coins(side: SpecSide, drawn: Drawn) -> Tests:
    steps, kind = drawn.steps, drawn.kind
    if steps is None or not len(steps):
        return []
    coins, told = steps.coins(side.key, side.rule), _told(steps, side.rule)
    row = np.arange(coins.shape[1])
    places = steps.place[:, None] + 1 + row
    streams = np.broadcast_to(steps.prompt[:, None], coins.shape)
    within = told[:, 1:] & told[:, :-1]
    follows = (steps.prompt[1:] == steps.prompt[:-1]) & (steps.step[1:] == steps.step[:-1] + 1)
    across = told[1:] & told[:-1] & follows[:, None]
    aligned = steps.step[:, None] * len(row) + row
    return [
        (
            f"{kind}, coins of one draft and the next",
            lag_products(coins[:, 1:][within], coins[:, :-1][within], what="coins in a step"),
        ),
        (
            f"{kind}, coins of one row in a step and the next",
            lag_products(coins[1:][across], coins[:-1][across], what="coins across steps"),
        ),
        (
            f"{kind}, coins of one stream",
            group_dispersion(coins[told], streams[told], what="coins by stream"),
        ),
        (
            f"{kind}, coins of streams at one position",
            group_dispersion(coins[told], places[told], what="coins by position"),
        ),
        (
            f"{kind}, coins of streams at one step and row",
            group_dispersion(coins[told], aligned[told], what="coins by step"),
        ),
    ]


def _told(steps: Steps, rule: str) -> Column:
    """Rows that were reached and verified, and whose coin could have fallen either way."""
    chance = steps.chances(rule)
    return np.asarray(steps.judged & (chance > CERTAIN) & (chance < 1.0 - CERTAIN))
