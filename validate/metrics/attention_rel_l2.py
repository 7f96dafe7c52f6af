"""``attention.rel_l2``: how far cand's attention outputs are from ref's, in the bulk."""

from validate.metrics._bulk import measure_bulk
from validate.metrics._tensors import first_structure, scan
from validate.schema import Levels, Measurement, Pair

__all__ = ["attention_rel_l2"]


def attention_rel_l2(pair: Pair, levels: Levels) -> Measurement:
    """Mean over prompts of ``sqrt(sum (cand - ref)^2 / sum ref^2)`` over all attention outputs.

    The sums run over rows, heads and values of every MLA and KDA output, prefill
    and decode, of one prompt. Rows that a router tie set apart are left out and counted.

    Args:
        pair: Ref and cand.
        levels: Confidence levels of the interval.

    Returns:
        Measurement with n = prompts and a t interval; ``breakdown`` by mode and layer.
        Undefined when an output holds NaN or infinities, when no prompt holds outputs, when
        ties set more than half of all rows apart, or when ref is all zero where cand is not.

    Source:
        ``get_err_ratio`` of fla-org/flash-linear-attention, pooled by prompt because rows of one
        prompt are not independent.
    """
    return measure_bulk(
        pair,
        levels,
        metric="attention.rel_l2",
        group="out",
        what="attention outputs",
        pattern=first_structure(pair, scan(pair).outputs),
    )
