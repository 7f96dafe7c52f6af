"""``logits.top1_flips``: positions where the first choice changed and it was no near-tie."""

import numpy as np

from validate.metrics._logit_rows import WorstRow, logit_rows
from validate.metrics._reason import without_value
from validate.schema import Levels, Measurement, Pair, Worst

__all__ = ["top1_flips"]

NAME = "logits.top1_flips"
PER = 1000.0


def top1_flips(pair: Pair, levels: Levels) -> Measurement:
    """Count of positions whose sets of maxima are disjoint with a ref gap above the near-tie limit.

    The gap is ref's logprob of its own first choice over cand's: what a reader of ref would have to
    be wrong by. Gaps within ``pair.near_tie`` are counted in the breakdown alone. Looked at
    are the same rows as in ``logits.kl_max``. ``margin_shift.max`` in the breakdown is the
    greatest change of the logprob between ref's first two choices at any row: the
    quantity that the near-tie limit bounds.

    Args:
        pair: Both sides' logits, and the near-tie limit.
        levels: Not used: a count over all that was compared is deterministic.

    Returns:
        Measurement in positions, ``n`` = positions; ``worst`` is the flip with the greatest gap
        (nats). Undefined when a logit is not finite, when tensors, shapes or positions
        differ, or without logits.

    Source:
        ``validate.numerics.row_statistics``; tie-aware top-1 as in the glossary.
    """
    del levels
    rows = logit_rows(pair)
    if rows.reason is not None:
        return without_value(NAME, rows.reason, unit="positions", n_of="positions")
    flips = sum(part.flips for part in rows.sections)
    disagreements = sum(part.disagreements for part in rows.sections)
    positions = sum(part.kl.size for part in rows.sections)
    shown = {
        "near_ties": float(disagreements - flips),
        "flips_per_1000": PER * flips / positions,
        "top1_agreement": (positions - disagreements) / positions,
        "tied_rows": float(sum(part.ties for part in rows.sections)),
        "margin_shift.max": float(np.max([part.margin_shift_max for part in rows.sections])),
    }
    for section in dict.fromkeys(part.section for part in rows.sections):
        chosen = [part.flips for part in rows.sections if part.section == section]
        shown[f"{section}.flips"] = float(sum(chosen))
    found = [
        (part.prompt, part.section, part.flip_worst)
        for part in rows.sections
        if part.flip_worst is not None
    ]
    worst = max(found, key=lambda place: place[2].value, default=None)
    return Measurement(
        metric=NAME,
        value=float(flips),
        unit="positions",
        n=positions,
        n_of="positions",
        worst=None if worst is None else _worst(*worst),
        worst_value=0.0 if worst is None else worst[2].value,
        breakdown=shown,
    )


def _worst(prompt: str, section: str, row: WorstRow) -> Worst:
    return Worst(
        prompt=prompt,
        position=row.position,
        place=f"{section} row {row.row}",
        value=row.value,
        detail=f"ref gap {row.value:.4g} nats; {row.detail}",
    )
