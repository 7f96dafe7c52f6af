"""``state.kv_rel_l2``: the latent KV cache that is worst."""

from validate.metrics._peaks import measure_across
from validate.schema import Levels, Measurement, Pair

__all__ = ["state_kv_rel_l2"]


def state_kv_rel_l2(pair: Pair, _levels: Levels) -> Measurement:
    """Largest ``||cand - ref|| / ||ref||`` of one prompt's latent KV cache of one layer.

    Over prompts, layers and the ways a cache is filled; tokens and latent channels
    together. The worst single token row stands in the breakdown: its denominator is the
    larger of its own and the RMS row norm.

    Args:
        pair: Ref and cand.
        _levels: Not used: a maximum over all that was compared has no interval.

    Returns:
        Deterministic measurement; n = caches over prompts, layers and ways; ``worst`` names
        prompt, way and layer. Undefined when a cache holds NaN or infinities, when there are
        none, or when all of a cache is zero in ref and not in cand.

    Source:
        vllm-project/vllm#52516 (HD-06): the cache of the prompt was not handed over.
    """
    return measure_across(
        pair, "kv", metric="state.kv_rel_l2", n_of="caches over prompts, layers and ways"
    )
