"""``state.chunked_oneshot``: cand's chunked prefill leaves the state that one-shot leaves."""

from validate.metrics._peaks import measure_inside
from validate.schema import Levels, Measurement, Pair

__all__ = ["state_chunked_oneshot"]


def state_chunked_oneshot(pair: Pair, _levels: Levels) -> Measurement:
    """Largest relative L2 distance, inside cand, of a chunked state from the one-shot one.

    Units as in ``state_kda_rel_l2``, ``state_conv_rel_l2`` and ``state_kv_rel_l2``; the
    denominator is the one-shot state. Needs no agreement with ref; ref's own distances
    stand in the breakdown.

    Args:
        pair: Ref and cand.
        _levels: Not used: a maximum over all that was compared has no interval.

    Returns:
        Deterministic measurement; n = heads, taps and caches over prompts and layers.
        Undefined when a state on either side holds NaN or infinities, or when no prompt holds
        both states.

    Source:
        vllm-project/vllm#41292 (LA-01): the state is read transposed at a chunk boundary;
        sgl-project/sglang#35045 (LC-01): parts are merged with the wrong base.
    """
    return measure_inside(pair, "chunked", metric="state.chunked_oneshot")
