"""``attention.head_rel_l2``: the one head, of one layer and mode, that is worst."""

import numpy as np

from validate.metrics._heads import measure_heads
from validate.metrics._structure import ErrorMap
from validate.metrics._words import ratio
from validate.schema import Levels, Measurement, Pair

__all__ = ["attention_head_rel_l2"]


def attention_head_rel_l2(pair: Pair, _levels: Levels) -> Measurement:
    """Largest ``sqrt(sum (cand - ref)^2 / sum ref^2)`` of one head over all prompts and rows.

    A mean over heads hides a wrong one: 1 of 12 heads contributes 1/12 of the energy.
    Rows that a router tie set apart are left out.

    Args:
        pair: Ref and cand.
        _levels: Not used: a maximum over all that was compared has no interval.

    Returns:
        Deterministic measurement; n = heads over modes and layers; ``worst.place`` names mode,
        layer and head, ``pattern`` the heads, batch rows or positions that are wrong.
        Undefined when an output holds NaN or infinities, when there are none, when ties left
        no row of a layer, or when a head of ref is all zero and cand's is not.

    Source:
        Public faults that are exact on all but some heads or rows: vllm-project/vllm#46997
        (HD-01), fla-org/flash-linear-attention#1029 (HD-04), vllm-project/vllm-omni#5716 (HD-05).
    """
    return measure_heads(pair, metric="attention.head_rel_l2", unit="rel-L2", measure=_errors)


def _errors(errors: ErrorMap) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return ratio(errors.err2, errors.ref2)
