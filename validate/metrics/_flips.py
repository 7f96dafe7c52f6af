"""The flip with the greatest gap, for the two metrics that judge flips."""

from collections.abc import Sequence

import numpy as np

from validate.metrics._logit_rows import SectionRows
from validate.schema import Worst

__all__ = ["KEEP_MORE", "may_flip", "widest_flip"]

KEEP_MORE = (
    "top-k logits leave gaps open: keep more ids, ref's row minimum (row_min), or full logits"
)


def may_flip(part: SectionRows) -> bool:
    """Whether the stored logits do not rule out a flip beyond the near-tie limit."""
    return (part.flips if part.flips_high is None else part.flips_high) > 0


def widest_flip(sections: Sequence[SectionRows]) -> Worst | None:
    """The flip beyond the near-tie limit with the greatest gap; the first among equals."""
    found = [(part, part.flip_worst) for part in sections if part.flip_worst is not None]
    if not found:
        return None
    part, row = found[int(np.argmax([one.value for _, one in found]))]
    return Worst(
        prompt=part.prompt,
        position=row.position,
        place=f"{part.section} row {row.row}",
        value=row.value,
        detail=f"ref gap {row.value:.4g} nats; {row.detail}",
    )
