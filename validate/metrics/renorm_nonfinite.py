"""``renorm.nonfinite``: entries of the renorm rows that are no probabilities."""

import numpy as np

from validate.metrics._reason import Reason, without_value
from validate.metrics._renorm import both, where
from validate.schema import Levels, Measurement, Pair, Worst

__all__ = ["renorm_nonfinite"]

METRIC, UNIT, N_OF = "renorm.nonfinite", "values", "rows"


def renorm_nonfinite(pair: Pair, _levels: Levels) -> Measurement:
    """Count cand's entries, before and after the op, that are NaN, infinite or negative.

    Args:
        pair: Ref and cand.
        _levels: Not used: a count over all that was captured has no interval.

    Returns:
        Deterministic count; n = rows. Undefined when a side holds no renorm rows, declares no
        tie rule, or holds rows of other prompts than the other, and when ref breaks its own.

    Source:
        vllm-project/vllm#40376 and flashinfer-ai/flashinfer#2456: a NaN in a probability row
        makes top-p read out of bounds.
    """
    found = both(pair)
    if isinstance(found, Reason):
        return without_value(METRIC, found, unit=UNIT, n_of=N_OF)
    rows = found.cand.rows
    counts = [row.judged.bad for row in rows]
    top = rows[int(np.argmax(counts))]
    worst = Worst(prompt=top.prompt, position=top.position, place=where(top))
    return Measurement(
        metric=METRIC,
        value=float(sum(counts)),
        unit=UNIT,
        n=len(rows),
        n_of=N_OF,
        worst=worst if any(counts) else None,
        breakdown={"rows that hold one": float(np.count_nonzero(counts))},
    )
