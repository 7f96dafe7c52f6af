"""Non-finite logits: what is a fault and what is masked vocabulary."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BadLogits", "bad_logits"]

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLogits:
    """Values of one side of one tensor that are no logits."""

    side: str
    """``ref`` or ``cand``."""
    nan: int
    positive: int
    """Count of +inf."""
    negative: int
    """Count of -inf that the other side does not have at the same place."""
    row: int
    """Row of the first one."""
    token: int
    """Token id of the first one."""

    @property
    def total(self) -> int:
        """All kinds together."""
        return self.nan + self.positive + self.negative

    def text(self) -> str:
        """Kinds and first place, e.g. ``2 NaN, 1 +inf, first at row 3 id 17``."""
        kinds = [
            f"{count} {kind}"
            for count, kind in ((self.nan, "NaN"), (self.positive, "+inf"), (self.negative, "-inf"))
            if count
        ]
        return f"{', '.join(kinds)}, first at row {self.row} id {self.token}"


def bad_logits(
    ref: NDArray[Any], cand: NDArray[Any], *, shared: int | None = None
) -> list[BadLogits]:
    """Find values that are not logits, on both sides.

    -inf at the same row and id on both sides is masked vocabulary, unless a row
    holds nothing else. Rows from ``shared`` on have other prefixes on the two sides: there
    -inf is allowed at the ids that both sides mask in the last shared row.

    Args:
        ref: Logits, any float dtype, shape (rows, vocab).
        cand: Logits of the same vocabulary; the number of rows may differ beyond ``shared``.
        shared: Leading rows with identical prefixes; None: all, and the shapes are equal.

    Returns:
        One finding per side that holds any; empty when all values are logits.
    """
    if _all_finite(ref) and _all_finite(cand):
        return []
    rows = len(ref) if shared is None else shared
    masked = np.isneginf(ref[:rows]) & np.isneginf(cand[:rows])
    return [
        found
        for side, values in (("ref", ref), ("cand", cand))
        if (found := _bad(side, values, _allowed(values, masked))) is not None
    ]


def _allowed(values: NDArray[Any], masked: Mask) -> Mask:
    """Places where -inf is masked vocabulary."""
    rows = len(masked)
    allowed = np.zeros(values.shape, dtype=np.bool_)
    allowed[:rows] = masked
    if rows:
        allowed[rows:] = masked[-1]
    allowed[np.isneginf(values).all(axis=1)] = False
    return allowed


def _bad(side: str, values: NDArray[Any], allowed: Mask) -> BadLogits | None:
    nan, positive = np.isnan(values), np.isposinf(values)
    negative = np.isneginf(values) & ~allowed
    any_bad = nan | positive | negative
    if not any_bad.any():
        return None
    row, token = (int(index[0]) for index in np.nonzero(any_bad))
    return BadLogits(
        side=side,
        nan=int(np.count_nonzero(nan)),
        positive=int(np.count_nonzero(positive)),
        negative=int(np.count_nonzero(negative)),
        row=row,
        token=token,
    )


def _all_finite(values: NDArray[Any]) -> bool:
    """Quick look without a widened copy; a float64 sum is finite only if every value is."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.sum(values, dtype=np.float64)))
