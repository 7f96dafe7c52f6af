"""``speculative.replay``: do a request's tokens depend on its batchmates?"""

import numpy as np

from validate.metrics._reason import Reason, without_value
from validate.metrics._spec_inside import KIND, REPLAYED, cut
from validate.metrics._spec_tests import judged_side
from validate.schema import Levels, Measurement, Pair, Worst
from validate.stats import proportion_limits

__all__ = ["speculative_replay"]

NAME = "speculative.replay"
TENSOR = f"spec.{KIND}.replay"
UNDRAWN = Reason("no stream was drawn twice")


def speculative_replay(pair: Pair, levels: Levels) -> Measurement:
    """Share of prompts whose first tokens differ when drawn again among other batchmates.

    The same request, seed and all, run in another batch gives the same tokens but for rounding: a
    draw within a rounding of the edge between two ids. A seed that is ignored, or shared, moves
    nearly every stream.

    Args:
        pair: The candidate's ``spec.spec-sampled.replay`` and stream.
        levels: Of the Clopper-Pearson limits.

    Returns:
        Share; ``n`` = prompts drawn twice. Undefined without them.
    """
    side = judged_side(pair)
    if isinstance(side, Reason):
        return without_value(NAME, side, unit="share", n_of="prompts")
    drawn = side.kinds.get(KIND)
    if drawn is None or not _any(pair):
        return without_value(NAME, UNDRAWN, unit="share", n_of="prompts")
    n = parted = 0
    worst: Worst | None = None
    for place, prompt in enumerate(pair.prompts):
        own = drawn.tokens_of(place).token
        if not len(own):
            continue
        again = _again(pair, prompt)
        shared = min(len(own), len(again))
        n += 1
        unlike = np.flatnonzero(own[:shared] != again[:shared])
        if not unlike.size and (why := _cut(pair, prompt, len(own), len(again))):
            return without_value(NAME, why, unit="share", n_of="prompts")
        if unlike.size:
            parted += 1
            if worst is None or int(unlike[0]) < (worst.value or 0.0):
                worst = Worst(
                    prompt=prompt,
                    position=pair.cand.prompts[prompt].prompt_length + int(unlike[0]),
                    place=f"token {int(unlike[0])} of the stream",
                    value=float(unlike[0]),
                )
    if not n:
        return without_value(NAME, UNDRAWN, unit="share", n_of="prompts")
    return Measurement(
        metric=NAME,
        value=parted / n,
        unit="share",
        n=n,
        n_of="prompts",
        interval=proportion_limits(parted, n, levels=levels),
        worst=worst,
    )


def _any(pair: Pair) -> bool:
    """Whether cand drew any stream twice; all of them must then be."""
    return any(TENSOR in pair.cand.names(prompt) for prompt in pair.prompts)


def _again(pair: Pair, prompt: str) -> np.ndarray:
    held = TENSOR in pair.cand.names(prompt)
    return np.asarray(pair.cand.tensor(prompt, TENSOR) if held else (), np.int64)


def _cut(pair: Pair, prompt: str, own: int, again: int) -> Reason | None:
    """Why two streams that agree as far as both go are not the same request, drawn to its end."""
    if again > own:
        return Reason(
            f"{pair.cand.label}: {prompt}/{TENSOR} holds {again} tokens, its stream {own}, and they "
            "agree: the stream was cut; capture the prompt again, whole",
            "unlike",
        )
    return cut(pair, prompt, TENSOR, wanted=min(REPLAYED, own), of="tokens")
