"""``state.prefill_decode``: cand's decode path leaves the state that its prefill leaves."""

from validate.metrics._peaks import measure_inside
from validate.schema import Levels, Measurement, Pair

__all__ = ["state_prefill_decode"]


def state_prefill_decode(pair: Pair, _levels: Levels) -> Measurement:
    """Largest relative L2 distance, inside cand, of a decoded state from the one-shot one.

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
        sgl-project/sglang#19324 (HD-08): a decode kernel is lossy where prefill is good.
    """
    return measure_inside(pair, "decode", metric="state.prefill_decode")
