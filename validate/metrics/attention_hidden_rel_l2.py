"""``attention.hidden_rel_l2``: how far cand's hidden states are from ref's, in the bulk."""

from validate.metrics._bulk import measure_bulk
from validate.schema import Levels, Measurement, Pair

__all__ = ["attention_hidden_rel_l2"]


def attention_hidden_rel_l2(pair: Pair, levels: Levels) -> Measurement:
    """Mean over prompts of ``sqrt(sum (cand - ref)^2 / sum ref^2)`` over all hidden states.

    The sums run over rows and channels of every layer's output, prefill and decode, of one
    prompt. Rows that a router tie set apart are left out and counted.

    Args:
        pair: Ref and cand.
        levels: Confidence levels of the interval.

    Returns:
        Measurement with n = prompts and a t interval; ``breakdown`` by mode and layer.
        Undefined when a hidden state holds NaN or infinities, when no prompt holds any, when
        ties set more than half of all rows apart, or when ref is all zero where cand is not.

    Source:
        As ``attention_rel_l2``.
    """
    return measure_bulk(
        pair, levels, metric="attention.hidden_rel_l2", group="hidden", what="hidden states"
    )
