"""``state.kda_rel_l2``: the recurrent state of the worst head."""

from validate.metrics._peaks import measure_across
from validate.metrics._states import state_scan, state_structure
from validate.schema import Levels, Measurement, Pair

__all__ = ["state_kda_rel_l2"]


def state_kda_rel_l2(pair: Pair, _levels: Levels) -> Measurement:
    """Largest ``||cand - ref|| / ||ref||`` of one head's KDA state after the last token.

    Over prompts, layers, heads and the ways a state is made: one-shot prefill, chunked
    prefill, decode. A head that is all zero in ref is held to the RMS norm of the others.

    Args:
        pair: Ref and cand.
        _levels: Not used: a maximum over all that was compared has no interval.

    Returns:
        Deterministic measurement; n = heads over prompts, layers and ways; ``worst`` names
        prompt, way, layer and head; ``pattern`` the heads or batch rows that are wrong, or that
        keys and values are swapped. Undefined when a state holds NaN or infinities, when there
        are none, or when all of a state is zero in ref and not in cand.

    Source:
        vllm-project/vllm#41292 (LA-01): serving kernels store the state value-first, so a wrong
        flag reads it transposed, with equal shape and norm.
    """
    return measure_across(
        pair,
        "kda",
        metric="state.kda_rel_l2",
        n_of="heads over prompts, layers and ways",
        pattern=state_structure(pair, state_scan(pair)),
    )
