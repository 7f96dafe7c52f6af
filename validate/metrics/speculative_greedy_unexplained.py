"""``speculative.greedy_unexplained``: does speculation at T = 0 leave the greedy stream?"""

import numpy as np

from validate.metrics._reason import Reason, without_value
from validate.metrics._spec_tests import judged_side
from validate.schema import Levels, Measurement, Pair, Worst

__all__ = ["speculative_greedy_unexplained"]

NAME = "speculative.greedy_unexplained"
KIND = "spec-greedy"


def speculative_greedy_unexplained(pair: Pair, levels: Levels) -> Measurement:
    """Count of prompts whose stream at T = 0 leaves plain greedy decoding by more than a near-tie.

    At the first token that differs, the gap of the two in the teacher-forced row behind their common
    prefix is held against ``near_tie``: batched verification may flip a near-tie, nothing else.

    Args:
        pair: The candidate's ``spec-greedy`` streams, greedy streams and ``stream.logits``.
        levels: Not used: a count is deterministic.

    Returns:
        Prompts; ``n`` = prompts with both streams. The breakdown counts prompts that part, and
        compared tokens. Undefined without both streams.
    """
    del levels
    side = judged_side(pair)
    if isinstance(side, Reason):
        return without_value(NAME, side, unit="prompts", n_of="prompts")
    drawn = side.kinds.get(KIND)
    worst: Worst | None = None
    n = total = parted = compared = 0
    for place, prompt in enumerate(pair.prompts):
        plain = pair.cand.streams.get(prompt)
        if drawn is None or plain is None or "stream.logits" not in pair.cand.names(prompt):
            continue
        own = drawn.tokens.token[drawn.tokens.prompt == place]
        if not len(own):
            continue
        n += 1
        shared = min(len(own), len(plain.token_ids))
        unlike = np.flatnonzero(own[:shared] != np.asarray(plain.token_ids[:shared]))
        compared += int(unlike[0]) + 1 if unlike.size else shared
        if not unlike.size:
            continue
        parted += 1
        at = int(unlike[0])
        row = np.asarray(pair.cand.tensor(prompt, "stream.logits")[at], np.float64)
        gap = float(row[plain.token_ids[at]] - row[int(own[at])])
        if gap <= pair.near_tie:
            continue
        total += 1
        if worst is None or not gap <= (worst.value or 0.0):
            worst = Worst(
                prompt=prompt,
                position=side_position(pair, prompt, at),
                place=f"token {at} of the stream",
                value=gap,
                detail=f"greedy {plain.token_ids[at]}, speculative {int(own[at])}",
            )
    if not n:
        reason = Reason(f"{side.label} holds no {KIND} stream beside a greedy one")
        return without_value(NAME, reason, unit="prompts", n_of="prompts")
    return Measurement(
        metric=NAME,
        value=float(total),
        unit="prompts",
        n=n,
        n_of="prompts",
        worst=worst,
        breakdown={"parted": float(parted), "tokens": float(compared)},
    )


def side_position(pair: Pair, prompt: str, at: int) -> int:
    """Position in the whole sequence of the ``at``-th emitted token."""
    return pair.cand.prompts[prompt].prompt_length + at
