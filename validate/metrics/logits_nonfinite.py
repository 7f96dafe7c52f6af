"""``logits.nonfinite``: NaN, +inf, and -inf on one side alone."""

from validate.metrics._logit_rows import Bad, logit_rows
from validate.metrics._reason import without_value
from validate.schema import Levels, Measurement, Pair, Worst

__all__ = ["logits_nonfinite"]

NAME = "logits.nonfinite"
SHOWN = 3


def logits_nonfinite(pair: Pair, levels: Levels) -> Measurement:
    """Count of values on either side that are no logits: NaN, +inf, and -inf without counterpart.

    -inf at the same row and id on both sides is masked vocabulary and does not count, unless it
    fills its row. All logits tensors are looked at (``logits``, ``decode.logits``,
    ``stream.logits``), streams to their ends.

    Args:
        pair: Both sides' logits.
        levels: Not used: a count is deterministic.

    Returns:
        Measurement in values, ``n`` = values looked at on both sides together; the breakdown
        counts each kind on each side. Undefined when tensors, shapes or positions differ,
        or without logits.

    Source:
        IEEE 754; the sign of an infinity counts (``style.md``, silent pass 4).
    """
    del levels
    rows = logit_rows(pair)
    if rows.unpaired is not None:
        return without_value(NAME, rows.unpaired, unit="values", n_of="values")
    shown = {
        f"{side}.{kind}": float(
            sum(getattr(bad.found, kind) for bad in rows.bad if bad.found.side == side)
        )
        for side in ("ref", "cand")
        for kind in ("nan", "positive", "negative")
    }
    total = sum(bad.found.total for bad in rows.bad)
    return Measurement(
        metric=NAME,
        value=float(total),
        unit="values",
        n=rows.values,
        n_of="values",
        worst=_worst(rows.bad) if rows.bad else None,
        worst_value=float(total),
        breakdown=shown,
    )


def _worst(bad: tuple[Bad, ...]) -> Worst:
    first = max(bad, key=lambda one: one.found.total)
    more = f" | and {len(bad) - SHOWN} more places" if len(bad) > SHOWN else ""
    return Worst(
        prompt=first.prompt,
        position=first.position,
        place=f"{first.section} row {first.found.row} id {first.found.token}, {first.found.side}",
        value=float(first.found.total),
        detail=" | ".join(one.text() for one in bad[:SHOWN]) + more,
    )
