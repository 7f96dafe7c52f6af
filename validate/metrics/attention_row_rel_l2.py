"""``attention.row_rel_l2``: the one row, of one prompt and tensor, that is worst."""

import math

import numpy as np

from validate.metrics._heads import no_rows
from validate.metrics._tensors import first_structure, scan
from validate.metrics._unmeasured import not_finite, undefined
from validate.schema import Levels, Measurement, Pair

__all__ = ["attention_row_rel_l2"]

METRIC, UNIT, N_OF = "attention.row_rel_l2", "rel-L2", "rows over tensors"


def attention_row_rel_l2(pair: Pair, _levels: Levels) -> Measurement:
    """Largest relative L2 error of one row of any attention output or hidden state.

    For row r of one prompt's tensor: ``||cand_r - ref_r|| / max(||ref_r||, RMS row norm)``,
    where the RMS row norm is that of ref over all rows of the same tensor and prompt. A tiny
    row is thus held to what its neighbours carry and does not explode; a huge one to itself.
    Rows that a router tie set apart are left out.

    Args:
        pair: Ref and cand.
        _levels: Not used: a maximum over all that was compared has no interval.

    Returns:
        Deterministic measurement; n = rows over tensors; ``worst`` names prompt, position and
        tensor, ``pattern`` the heads, batch rows or positions that are wrong. Undefined when an
        output or hidden state holds NaN or infinities, when there are none, when ties left no
        row of a layer, or when ref is all zero and cand is not.

    Source:
        Arithmetic: a global ratio cannot see one lost row of N, whose share of the energy is 1/N.
    """
    found = scan(pair)
    layers = {**found.outputs, **found.hiddens}
    why = not_finite(found.bad, "out", "hidden") or no_rows(
        layers, "attention outputs or hidden states"
    )
    n = sum(sums.bulk.rows for sums in layers.values())
    if why is not None:
        return undefined(METRIC, why, unit=UNIT, n_of=N_OF, n=n)
    ordered = [sums for _, sums in sorted(layers.items())]
    top = ordered[int(np.argmax([sums.worst_row for sums in ordered]))]
    if not math.isfinite(top.worst_row) or top.worst is None:
        why = f"ref is all zero and cand is not in {top.place.name}"
        return undefined(METRIC, why, unit=UNIT, n_of=N_OF, n=n)
    return Measurement(
        metric=METRIC,
        value=top.worst_row,
        unit=UNIT,
        n=n,
        n_of=N_OF,
        worst=top.worst,
        worst_value=top.worst_row,
        pattern=first_structure(pair, found.outputs),
        breakdown={sums.place.name.removesuffix(".out"): sums.worst_row for sums in ordered},
    )
