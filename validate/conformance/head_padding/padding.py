"""The padding strategies in the wild, and the one unpad rule of each for output and LSE."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["HEADS", "PADDINGS", "Padding"]

HEADS = 12
"""Heads of one K3 rank at tensor parallel 8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """One way from 12 heads to a count that the kernels take, and back."""

    name: str
    count: int
    source: tuple[int, ...]
    """Real head of each padded one; -1 for a head of zeros, -2 for NaN."""
    real: tuple[int, ...]
    """Where the real heads stand."""

    def pad(self, x: Tensor, *, axis: int) -> Tensor:
        """``x`` with its head axis filled up; contiguous, a copy, as engines make it."""
        extra = self.count - x.shape[axis]
        if min(self.source) < 0:
            shape = list(x.shape)
            shape[axis] = extra
            fill = 0.0 if -1 in self.source else float("nan")
            return torch.cat([x, x.new_full(shape, fill)], dim=axis)
        if self.real == tuple(range(x.shape[axis])):
            return torch.cat([x, x.narrow(axis, 0, extra)], dim=axis)
        return x.repeat_interleave(self.count // x.shape[axis], dim=axis)

    def unpad(self, x: Tensor, *, axis: int) -> Tensor:
        """Real heads, contiguous."""
        step = self.real[1] - self.real[0]
        index = [slice(None)] * x.ndim
        index[axis] = slice(0, self.real[-1] + 1, step)
        return x[tuple(index)].contiguous()


_OWN = tuple(range(HEADS))

PADDINGS: Mapping[str, Padding] = {
    "zero": Padding(name="zero", count=16, source=(*_OWN, -1, -1, -1, -1), real=_OWN),
    "tile": Padding(name="tile", count=16, source=(*_OWN, 0, 1, 2, 3), real=_OWN),
    "repeat": Padding(
        name="repeat",
        count=48,
        source=tuple(h // 4 for h in range(48)),
        real=tuple(range(0, 48, 4)),
    ),
    "nan": Padding(name="nan", count=16, source=(*_OWN, -2, -2, -2, -2), real=_OWN),
}
"""``nan`` is no strategy: it shows whether what a padded head holds can reach a real one."""
