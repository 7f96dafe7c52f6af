"""``speculative.nonfinite``: numbers of drawn streams that are no numbers, chances or ids."""

from collections.abc import Iterator

import numpy as np

from validate.metrics._reason import Reason, without_value
from validate.metrics._spec_read import spec_side
from validate.metrics._spec_streams import ACCEPTED, P_LAW, RESAMPLED, Column, SpecSide
from validate.schema import Levels, Measurement, Pair, Worst

__all__ = ["speculative_nonfinite"]

NAME = "speculative.nonfinite"
ROUNDING = 1e-5
"""Of a probability and its moments in float32."""


def speculative_nonfinite(pair: Pair, levels: Levels) -> Measurement:
    """Count of values on either side that cannot be.

    NaN in p or q, a chance outside [0, 1], a negative variance, an id outside the vocabulary. q may be NaN where a row had no draft; acceptance may be NaN in all rows at once, where a server
    gives no draft probabilities.

    Args:
        pair: Drawn streams of both sides.
        levels: Not used: a count is deterministic.

    Returns:
        Values; ``n`` = values looked at. Undefined without streams on cand.
    """
    del levels
    cand = spec_side(pair, pair.cand)
    if not cand.kinds:
        reason = Reason(
            f"{cand.label} holds no drawn streams; capture prompts tagged 'speculative'"
        )
        return without_value(NAME, reason, unit="values", n_of="values")
    shown: dict[str, float] = {}
    total = n = 0
    for role, side in (("ref", spec_side(pair, pair.ref)), ("cand", cand)):
        for name, wrong in _wrong(side):
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
        breakdown=shown,
    )


def _wrong(side: SpecSide) -> Iterator[tuple[str, Column]]:
    for kind, drawn in side.kinds.items():
        tokens, steps = drawn.tokens, drawn.steps
        drafted = (tokens.outcome == ACCEPTED) | (tokens.outcome == RESAMPLED)
        yield f"{kind}.tokens", (tokens.token < 0) | (tokens.token >= side.vocab)
        yield f"{kind}.p", _no_chance(tokens.p)
        yield f"{kind}.falls", np.isnan(tokens.falls[:, P_LAW, 0].sum(axis=1))
        yield f"{kind}.entropy", ~(tokens.entropy >= -ROUNDING)
        yield f"{kind}.variance", ~(tokens.variance >= -ROUNDING)
        yield f"{kind}.logprob", ~(tokens.logprob <= ROUNDING) | ~np.isfinite(tokens.logprob)
        if steps is None:
            continue
        yield f"{kind}.drafts", (steps.drafts < 0) | (steps.drafts >= side.vocab)
        if not np.isnan(steps.expected).all():
            yield f"{kind}.q", drafted & _no_chance(tokens.q)
            for name in ("expected", "drafted_p", "drafted_q", "confidence"):
                yield f"{kind}.{name}", _no_chance(getattr(steps, name))


def _no_chance(values: Column) -> Column:
    return ~((values >= 0.0) & (values <= 1.0 + ROUNDING))
