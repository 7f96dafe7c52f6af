"""Convolution taps whose token a router's tie may have moved.

The state of a convolution is its last inputs, one token a tap. A tie at layer L sends that
token to another expert, which moves its taps from layer L + 1 on, as it moves its rows of
every other tensor. Of the passes that leave the states only some have their routers captured:

- decode: the decode routers at these positions; a tie is one that was seen;
- one-shot: the prefill routers, where both sides' prefill was one pass; as above;
- else a tie is one that can't be ruled out: ref's own scores leave no more than the gap
  between the last expert taken and the first left out.
"""

import numpy as np
from numpy.typing import NDArray

from validate.metrics._places import Place
from validate.metrics._routing import NEVER, near_ties, routing
from validate.schema import Pair, Side

__all__ = ["taps_apart"]

SEEN_IN = {"decode": "decode", "oneshot": "prefill"}
"""Whose routers are those of the pass that left the state."""
CHUNKED = "inside.prefill.chunked"
"""Branch of captures whose prefill routers are of several passes, and so of no one-shot state."""


def taps_apart(
    pair: Pair, prompt: str, place: Place, *, taps: int, seen: bool = True
) -> NDArray[np.bool_] | None:
    """Which taps of a convolution state a tie may have moved.

    Args:
        pair: Ref and cand.
        prompt: Prompt id.
        place: The state.
        taps: How many it has; the last is the last token's.
        seen: Ref is held against cand, so that ties between them were looked for.

    Returns:
        (taps,) mask; None for states of other kinds, which hold many tokens.
    """
    if place.kind != "conv":
        return None
    tokens = len(pair.ref.prompts[prompt].token_ids)
    found = near_ties(pair, prompt)
    first = np.full(tokens, NEVER, dtype=np.int32) if found is None else found.copy()
    mode = SEEN_IN.get(place.mode)
    tied = routing(pair).ties.get((prompt, mode)) if seen and mode is not None else None
    if tied is not None and (mode == "decode" or all(map(_in_one_pass, (pair.ref, pair.cand)))):
        positions = pair.ref.tensor(prompt, f"{mode}.positions")
        first[positions] = tied
    last = np.arange(tokens - taps, tokens)
    # A tap before the first token is nobody's: it must be zero whatever the routers did.
    layers = np.where(last < 0, NEVER, first[np.maximum(last, 0)])
    mask: NDArray[np.bool_] = layers < place.layer
    return mask


def _in_one_pass(side: Side) -> bool:
    return not side.manifest.path_proof.branches.get(CHUNKED, 0)
