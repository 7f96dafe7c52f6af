"""``speculative.nonfinite``: numbers of drawn streams that are no numbers, chances or ids."""

import math
from collections.abc import Iterator

import numpy as np

from validate.metrics._reason import Reason, without_value
from validate.metrics._spec_read import spec_side
from validate.metrics._spec_streams import (
    ACCEPTED,
    BONUS,
    FALLING_P,
    P_LAW,
    PLAIN,
    RESAMPLED,
    Column,
    Drawn,
    SpecSide,
    Tokens,
)
from validate.schema import Levels, Measurement, Pair, Worst

__all__ = ["damage", "speculative_nonfinite"]

NAME = "speculative.nonfinite"
ROUNDING = 1e-5
"""Of a probability and its moments in float32."""
TESTED = (
    "outcome",
    "p",
    "q",
    "top",
    "falls",
    "entropy",
    "variance",
    "expected",
    "drafted_p",
    "drafted_q",
)
"""Numbers that tests of the sampler rest on."""


def speculative_nonfinite(pair: Pair, levels: Levels) -> Measurement:
    """Count of values on either side that cannot be.

    NaN or infinity in p, q or what is made of them, a chance outside [0, 1], moments that no law over
    the vocabulary has, a distance below 0, a place in the law that contradicts the token's own chance
    or the largest of its row, an outcome that contradicts what its step accepted, an id outside the vocabulary, at T = 0 also one that the tokenizer does not have. q may be NaN where
    a row had no draft; acceptance may be NaN in all rows at once, where a server gives no draft
    probabilities. At T > 0 a model may give mass to ids above its tokenizer's: they are shown, not
    counted.

    Args:
        pair: Drawn streams of both sides.
        levels: Not used: a count is deterministic.

    Returns:
        Values; ``n`` = values looked at. Undefined without streams on cand.
    """
    del levels
    ref, cand = spec_side(pair, pair.ref), spec_side(pair, pair.cand)
    for side in (ref, cand):
        if side.refusal is not None and not side.kinds:
            reason = Reason(side.refusal, "unlike")
            return without_value(NAME, reason, unit="values", n_of="values")
    if not cand.kinds:
        reason = Reason(
            f"{cand.label} holds no drawn streams; capture prompts tagged 'speculative'"
        )
        return without_value(NAME, reason, unit="values", n_of="values")
    shown: dict[str, float] = {}
    beyond: dict[str, float] = {}
    total = n = 0
    for role, side in (("ref", ref), ("cand", cand)):
        length = (pair.ref if role == "ref" else pair.cand).manifest.model.tokenizer_length
        beyond |= _beyond(side, role, length)
        for name, wrong in (*_wrong(side), *_cold(side, length)):
            n += wrong.size
            count = int(np.count_nonzero(wrong))
            total += count
            if count:
                shown[f"{role}.{name}"] = float(count)
    first = next(iter(shown), None)
    return Measurement(
        metric=NAME,
        value=float(total),
        unit="values",
        n=n,
        n_of="values",
        worst=None if first is None else Worst(place=first, value=shown[first]),
        pattern=_words(beyond),
        breakdown={**shown, **beyond},
    )


def damage(side: SpecSide) -> str | None:
    """The first kind of numbers behind a test of the sampler that cannot be, in words."""
    for name, wrong in _wrong(side):
        count = int(np.count_nonzero(wrong))
        if count and name.rpartition(".")[2] in TESTED:
            at = int(np.flatnonzero(wrong.reshape(len(wrong), -1).any(axis=1))[0])
            kind, _, column = name.rpartition(".")
            drawn = side.kinds[kind]
            rows = drawn.steps if drawn.steps is not None and hasattr(drawn.steps, column) else None
            owner = (drawn.tokens if rows is None else rows).prompt[at]
            unit = "token" if rows is None else "verify step"
            first = int((drawn.tokens.index if rows is None else rows.step)[at])
            return (
                f"{side.label}: {count} of {wrong.size} values of {name} are no chances, no "
                f"numbers or contradict others, the first in {unit} {first} of {side.prompts[int(owner)]}; "
                "speculative.nonfinite counts them: capture again without, then this can be tested"
            )
    return None


def _words(beyond: dict[str, float]) -> str | None:
    told = [f"{int(count)} {name}" for name, count in beyond.items()]
    return f"not counted: {', '.join(told)}" if told else None


def _beyond(side: SpecSide, role: str, length: int) -> dict[str, float]:
    """Ids that the vocabulary has and the tokenizer has not: tokens at T > 0, and drafts."""
    shown = {}
    for kind, drawn in side.kinds.items():
        ids = {"tokens": drawn.tokens.token[drawn.tokens.temperature > 0]}
        if (steps := drawn.steps) is not None:
            cold = steps.temperature == 0
            ids |= {"drafts": steps.drafts[~cold], "greedy_drafts": steps.drafts[cold]}
        for name, held in ids.items():
            count = int(np.count_nonzero((held >= length) & (held < side.vocab)))
            if count:
                shown[f"{role}.{kind}.{name}_beyond_tokenizer"] = float(count)
    return shown


def _cold(side: SpecSide, length: int) -> Iterator[tuple[str, Column]]:
    for kind, drawn in side.kinds.items():
        tokens = drawn.tokens.token[drawn.tokens.temperature == 0]
        yield f"{kind}.greedy_tokens_beyond_tokenizer", (tokens >= length) & (tokens < side.vocab)


def _wrong(side: SpecSide) -> Iterator[tuple[str, Column]]:
    for kind, drawn in side.kinds.items():
        tokens, steps = drawn.tokens, drawn.steps
        drafted = (tokens.outcome == ACCEPTED) | (tokens.outcome == RESAMPLED)
        yield f"{kind}.outcome", tokens.outcome != _outcomes(drawn)
        yield f"{kind}.tokens", (tokens.token < 0) | (tokens.token >= side.vocab)
        yield f"{kind}.p", _no_chance(tokens.p)
        yield f"{kind}.top", _no_chance(tokens.top)
        yield f"{kind}.falls", _misplaced(tokens)
        yield f"{kind}.edge", ~(tokens.edge >= 0.0)
        most = math.log(side.vocab)
        yield f"{kind}.entropy", _no_size(tokens.entropy) | ~(tokens.entropy <= most + ROUNDING)
        # -log p lies between 0 and what the entropy weighs; its variance is below (ln V)^2 + 1.
        yield f"{kind}.variance", _no_size(tokens.variance) | ~(tokens.variance <= most**2 + 1.0)
        yield f"{kind}.logprob", ~(tokens.logprob <= ROUNDING) | ~np.isfinite(tokens.logprob)
        if steps is None:
            continue
        yield f"{kind}.drafts", (steps.drafts < 0) | (steps.drafts >= side.vocab)
        if not np.isnan(steps.expected).all():
            yield f"{kind}.q", drafted & _no_chance(tokens.q)
            for name in ("expected", "drafted_p", "drafted_q", "confidence"):
                yield f"{kind}.{name}", _no_chance(getattr(steps, name))


def _outcomes(drawn: Drawn) -> Column:
    """What each token must be, by its row and what its step accepted and verified."""
    tokens, steps = drawn.tokens, drawn.steps
    must = np.full(len(tokens), PLAIN)
    if steps is None or not len(steps):
        return must
    most = 1 + int(max(steps.step.max(), tokens.step.max()))
    keys = steps.prompt * most + steps.step
    order = np.argsort(keys)
    mine = tokens.prompt * most + tokens.step
    place = order[np.minimum(np.searchsorted(keys[order], mine), len(keys) - 1)]
    drafted = (tokens.step >= 0) & (keys[place] == mine)
    count, limit = steps.count[place], steps.limit[place]
    own = np.where(tokens.row < count, ACCEPTED, np.where(count < limit, RESAMPLED, BONUS))
    return np.where(drafted, own, must)


def _misplaced(tokens: Tokens) -> Column:
    """Where a token's place in falling order of p contradicts its own p or its row's largest."""
    below, mass = (tokens.falls[:, P_LAW, FALLING_P, part] for part in (0, 1))
    known = ~_no_chance(tokens.p) & ~_no_chance(tokens.top)
    agrees = np.abs(mass - tokens.p) <= ROUNDING
    first = (below <= 0.0) & (np.abs(tokens.p - tokens.top) <= ROUNDING)
    later = (below >= tokens.top - ROUNDING) & (below + mass <= 1.0 + ROUNDING)
    right = agrees & (first | later) & (tokens.p <= tokens.top + ROUNDING)
    return np.asarray(~np.isfinite(below + mass) | (known & ~right))


def _no_size(values: Column) -> Column:
    return ~((values >= -ROUNDING) & np.isfinite(values))


def _no_chance(values: Column) -> Column:
    return ~((values >= 0.0) & (values <= 1.0 + ROUNDING))
