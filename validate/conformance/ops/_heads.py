"""Padded heads as relations: what a kernel that takes more heads must give for the real ones."""

from collections.abc import Iterator
from dataclasses import dataclass

import ml_dtypes
import numpy as np

__all__ = ["ACCEPTED", "PaddedHeads", "paddings"]

Array = np.ndarray

ACCEPTED = (4, 8, *range(16, 129, 16))
"""Head counts that AITER's MLA decode takes (sglang#36356)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedHeads:
    """One way to fill heads up, and where the real ones then stand."""

    rule: str
    """``zero``, ``tile``, ``repeat`` or ``garbage``."""
    count: int
    source: tuple[int, ...]
    """For each padded head the real head it copies; -1 for zeros, -2 for garbage."""
    real: tuple[int, ...]
    """Where real head h stands."""

    def pad(self, x: Array, *, axis: int, garbage: float) -> Array:
        """``x`` with its head axis filled up."""
        heads = x.shape[axis]
        if len(self.real) != heads:
            msg = f"pad rule {self.rule} was made for {len(self.real)} heads, the array has {heads}"
            raise ValueError(msg)
        picked = np.take(x, [max(s, 0) for s in self.source], axis=axis)
        moved = np.moveaxis(picked, axis, 0).copy()
        for place, source in enumerate(self.source):
            if source < 0:
                moved[place] = 0.0 if source == -1 else np.float32(garbage).astype(x.dtype)
        return np.ascontiguousarray(np.moveaxis(moved, 0, axis))

    def unpad(self, x: Array) -> Array:
        """Real heads of an output [rows, heads, ...]."""
        return np.ascontiguousarray(x[:, list(self.real)])


def paddings(heads: int) -> Iterator[PaddedHeads]:
    """Zero, garbage and tile to the next accepted count, repeat to the next accepted multiple."""
    above = [count for count in ACCEPTED if count > heads]
    if not above:
        return
    count, extra = above[0], above[0] - heads
    own = tuple(range(heads))
    yield PaddedHeads(rule="zero", count=count, source=own + (-1,) * extra, real=own)
    yield PaddedHeads(rule="garbage", count=count, source=own + (-2,) * extra, real=own)
    tile = tuple(h % heads for h in range(count))
    yield PaddedHeads(rule="tile", count=count, source=tile, real=own)
    multiples = [count for count in above if count % heads == 0]
    if multiples:
        each = multiples[0] // heads
        yield PaddedHeads(
            rule="repeat",
            count=multiples[0],
            source=tuple(h // each for h in range(multiples[0])),
            real=tuple(h * each for h in range(heads)),
        )


def poison_for(dtype: np.dtype, poison: str) -> float:
    """What lies in heads and slots that do not count: NaN, or the largest tame number."""
    if poison == "any":
        return float("nan")
    return 240.0 if dtype == ml_dtypes.float8_e4m3fn else 1000.0
