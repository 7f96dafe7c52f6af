"""``speculative.health``: ailments of the drafter and of the books that are kept of it."""

import math
from collections.abc import Iterator

import numpy as np

from validate.metrics._reason import Reason, without_value
from validate.metrics._spec_figures import acceptance_figures
from validate.metrics._spec_streams import ACCEPTED, Column, Drawn, SpecSide, Steps, Tokens
from validate.metrics._spec_tests import judged_side
from validate.schema import Levels, Measurement, Pair

__all__ = ["speculative_health"]

NAME = "speculative.health"
MIN_STEPS = 20
SIGMAS = 4.0


def speculative_health(pair: Pair, levels: Levels) -> Measurement:
    """Count of ailments: nothing accepted, constant drafts, drafts shifted by one, books that do not add up.

    Shifted: drafts agree with the stream one place earlier or later more often than in their own
    place, by more than four standard errors. Books: a step commits as many drafts as its own
    decisions and limit allow, and what it commits are its drafts.

    Args:
        pair: The candidate's speculative streams.
        levels: Not used: a count is deterministic.

    Returns:
        Ailments; ``n`` = verify steps. The breakdown holds the agreement at each shift and, of both
        sides, acceptance and the mean of confidence minus acceptance. A confidence that is one
        number throughout is told and not counted: without a cut nothing rests on it. Undefined for
        fewer than 20 steps of every kind.
    """
    del levels
    side = judged_side(pair)
    if isinstance(side, Reason):
        return without_value(NAME, side, unit="ailments", n_of="steps")
    ailing: list[str] = []
    shown: dict[str, float] = {}
    n = 0
    for drawn in side.kinds.values():
        if drawn.steps is None or len(drawn.steps) < MIN_STEPS:
            continue
        n += len(drawn.steps)
        agreement = _agreement(drawn, drawn.steps)
        shown |= {f"{drawn.kind}.agreement_{s:+d}": mean for s, (mean, _) in agreement.items()}
        ailing += [f"{drawn.kind}: {words}" for words in _ailments(drawn, drawn.steps, agreement)]
    if not n:
        reason = Reason(f"no kind of {side.label} has {MIN_STEPS} verify steps")
        return without_value(NAME, reason, unit="ailments", n_of="steps")
    return Measurement(
        metric=NAME,
        value=float(len(ailing)),
        unit="ailments",
        n=n,
        n_of="steps",
        pattern="; ".join((*ailing, *_remarks(side))) or None,
        breakdown={**shown, **acceptance_figures(pair)},
    )


def _remarks(side: SpecSide) -> Iterator[str]:
    """What no gate rests on and a reader should know."""
    for drawn in side.kinds.values():
        steps = drawn.steps
        if steps is None or len(steps) < MIN_STEPS:
            continue
        first = float(steps.confidence.flat[0])
        if (steps.confidence == first).all():
            yield f"not counted: every confidence of {drawn.kind} is {first:.4g}"


def _ailments(drawn: Drawn, steps: Steps, agreement: dict[int, tuple[float, int]]) -> Iterator[str]:
    judged = steps.judged
    if judged.any() and not (steps.accepts[judged] > 0).any():
        yield f"nothing was accepted in {len(steps)} steps"
    if (steps.drafts == steps.drafts.flat[0]).all():
        yield f"every draft is token {int(steps.drafts.flat[0])}"
    own, n = agreement[0]
    for shift in (-1, 1):
        other, count = agreement[shift]
        if not min(n, count):  # nothing stands there to agree with
            continue
        error = math.sqrt(max(own * (1 - own), other * (1 - other)) / min(n, count))
        if other - own > SIGMAS * error and other > own:
            yield f"drafts agree with the stream shifted by {shift:+d} ({other:.2f} against {own:.2f})"
    leading = np.minimum(np.cumprod(steps.accepts > 0, axis=1).sum(axis=1), steps.limit)
    off = int(np.count_nonzero(steps.count != leading))
    if off:
        yield f"{off} of {len(steps)} steps commit other than the drafts they accepted"
    strange = _strange(drawn.tokens, steps)
    if strange:
        yield f"{strange} accepted tokens are not the drafts of their step"


def _places(tokens: Tokens, steps: Steps) -> tuple[Column, Column]:
    """Emitted token at each (stream, position), and a key of each: a table to look tokens up in."""
    width = int(max(tokens.position.max(), steps.place.max())) + steps.drafts.shape[1] + 3
    table = np.full((int(tokens.prompt.max()) + 1) * width, -1)
    table[tokens.prompt * width + tokens.position] = tokens.token
    return table, steps.prompt[:, None] * width + steps.place[:, None] + 1


def _agreement(drawn: Drawn, steps: Steps) -> dict[int, tuple[float, int]]:
    """Share of drafts equal to the token that the stream has at their place, shifted."""
    table, first = _places(drawn.tokens, steps)
    rows = np.arange(steps.drafts.shape[1])
    found = {}
    for shift in (-1, 0, 1):
        there = table[first + rows + shift]
        held = there >= 0
        same = (steps.drafts == there) & held
        n = int(np.count_nonzero(held))
        found[shift] = (float(np.count_nonzero(same)) / n if n else 0.0, n)
    return found


def _strange(tokens: Tokens, steps: Steps) -> int:
    """Accepted tokens that differ from the draft in their row."""
    held = tokens.where(tokens.outcome == ACCEPTED)
    key = steps.prompt * (int(steps.step.max()) + 1) + steps.step
    order = np.argsort(key)
    at = order[np.searchsorted(key[order], held.prompt * (int(steps.step.max()) + 1) + held.step)]
    return int(np.count_nonzero(steps.drafts[at, held.row] != held.token))
