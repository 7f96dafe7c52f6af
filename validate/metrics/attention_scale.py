"""``attention.scale``: the head whose output is most nearly ref's times a factor that is not 1."""

import numpy as np

from validate.metrics._heads import measure_heads
from validate.metrics._structure import ErrorMap
from validate.schema import Levels, Measurement, Pair

__all__ = ["attention_scale"]


def attention_scale(pair: Pair, _levels: Levels) -> Measurement:
    """Largest ``|alpha - 1|`` of one head, alpha the least-squares factor of cand on ref.

    ``alpha - 1 = sum (cand - ref) ref / sum ref^2`` over all prompts and rows of one mode,
    layer and head: exactly 0 for equal sides. Cosine is blind to it.

    Args:
        pair: Ref and cand.
        _levels: Not used: a maximum over all that was compared has no interval.

    Returns:
        Deterministic measurement; n = heads over modes and layers; ``worst.place`` names mode,
        layer and head. Undefined as ``attention_head_rel_l2``.

    Source:
        Normal equation of one-parameter least squares. kendryte/nncase#1110 (TV-02) and
        vllm-project/vllm#45562 (QU-01) keep a cosine of 1.
    """
    return measure_heads(pair, metric="attention.scale", unit="|alpha - 1|", measure=_scale)


def _scale(errors: ErrorMap) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    with np.errstate(divide="ignore", invalid="ignore"):
        made: np.ndarray[tuple[int], np.dtype[np.float64]] = np.where(
            errors.err2 == 0, 0.0, np.abs(errors.along) / errors.ref2
        )
    return made
