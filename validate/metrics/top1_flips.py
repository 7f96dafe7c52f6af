"""``logits.top1_flips``: positions whose first choice changed across a gap that no rounding spans."""

import numpy as np

from validate.metrics._flips import KEEP_MORE, widest_flip
from validate.metrics._logit_rows import logit_rows
from validate.metrics._near_tie import hard_cap
from validate.metrics._reason import without_value
from validate.schema import Levels, Measurement, Pair
from validate.stats import quantile

__all__ = ["top1_flips"]

NAME = "logits.top1_flips"
PER = 1000.0
QUARTILE = 0.75


def top1_flips(pair: Pair, levels: Levels) -> Measurement:
    """Count of positions whose sets of maxima are disjoint with a ref gap above the hard cap.

    The gap is ref's logprob of its own first choice over cand's: what a reader of ref would have to
    be wrong by. It is no wider than the change of those two logits' difference, so gaps within
    ``pair.near_tie`` are near-ties; those between it and the hard cap of eight limits are
    judged by their rate over prompts (``logits.flip_rate``), for a model can be chaotic on a prompt.
    Looked at are the same rows as in ``logits.kl_max``. In the breakdown ``margin_shift.max``
    is the greatest change of the logprob between ref's first two choices at any row, and
    ``margin_shift.p75`` the third quartile over prompts of the prompt's greatest: the
    quantity that the near-tie limit bounds.

    Args:
        pair: Both sides' logits, and the near-tie limit.
        levels: Not used: a count over all that was compared is deterministic.

    Returns:
        Measurement in positions, ``n`` = positions; ``worst`` is the flip with the greatest gap
        (nats) beyond the near-tie limit. Undefined when a logit is not finite, when tensors, shapes or positions
        differ, or without logits.

    Source:
        ``validate.numerics.row_statistics``; tie-aware top-1 as in the glossary.
    """
    del levels
    rows = logit_rows(pair)
    if rows.reason is not None:
        return without_value(NAME, rows.reason, unit="positions", n_of="positions")
    capped = sum(part.capped for part in rows.sections)
    maybe = sum(
        part.capped if part.capped_high is None else part.capped_high for part in rows.sections
    )
    flips = sum(part.flips for part in rows.sections)
    disagreements = sum(part.disagreements for part in rows.sections)
    positions = sum(part.kl.size for part in rows.sections)
    shifts = [
        float(np.max([part.margin_shift_max for part in parts]))
        for parts in rows.by_prompt.values()
    ]
    shown = {
        "beyond_near_tie": float(flips),
        "near_ties": float(disagreements - flips),
        "near_ties.predicted": sum(part.near_ties_predicted for part in rows.sections),
        "flips_per_1000": PER * flips / positions,
        "top1_agreement": (positions - disagreements) / positions,
        "tied_rows": float(sum(part.ties for part in rows.sections)),
        "hard_cap": hard_cap(pair.near_tie),
        "margin_shift.max": float(np.max(shifts)),
    }
    quartile = quantile(shifts, q=QUARTILE) if np.isfinite(shifts).all() else None
    if quartile is not None:
        shown["margin_shift.p75"] = quartile
    for section in dict.fromkeys(part.section for part in rows.sections):
        chosen = [part.flips for part in rows.sections if part.section == section]
        shown[f"{section}.flips"] = float(sum(chosen))
    worst = widest_flip(rows.sections)
    return Measurement(
        metric=NAME,
        value=float(capped),
        unit="positions",
        n=positions,
        n_of="positions",
        worst=worst,
        worst_value=0.0 if worst is None else worst.value,
        breakdown=shown,
        upper=None if rows.exact else float(maybe),
        why_open=KEEP_MORE if maybe > capped else None,
    )
