"""Inputs between guard bands, poisoned fresh memory, and who owns an output's bytes.

Every input tensor lies inside a larger buffer whose bands hold a poison pattern
(NaN for floating formats): a read past the end brings NaN into the result, a write
past the end changes a band. ``torch.empty`` and its kin are poisoned while an
implementation runs, so memory that it forgot to write shows.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from validate.conformance.arrays import to_torch

__all__ = ["Banded", "bytes_of", "overlaps", "place_inputs", "poison", "poisoned_memory", "span"]

BAND, WIDEST, ALIGNMENT = 1024, 1 << 20, 256
"""Bytes of poison before and after an input: as many as it has, within these bounds."""
NAN_BYTE = 0xFF
"""All ones is NaN in float64, float32, bfloat16, float16, float8_e4m3fn and float8_e8m0fnu."""
FNUZ_NAN_BYTE = 0x80
OTHER_BYTE = 0xA5
"""Poison of integers: neither -1, which marks unused slots, nor a plausible index."""
_FNUZ = torch.float8_e4m3fnuz


class Banded:
    """One input tensor inside its buffer, with a copy of every byte as it was given."""

    def __init__(self, array: np.ndarray, *, device: str) -> None:
        held = to_torch(array, device=device)
        size = held.numel() * held.element_size()
        rounded = -(-size // ALIGNMENT) * ALIGNMENT
        self.band = min(max(BAND, rounded), WIDEST)
        self.buffer = torch.full(
            (size + 2 * self.band,), _poison_byte(held.dtype), dtype=torch.uint8, device=device
        )
        inside = self.buffer[self.band : self.band + size]
        self.tensor = inside.view(held.dtype).view(held.shape)
        self.tensor.copy_(held)
        self._before = self.buffer.clone()
        self._size = size

    def written(self) -> str | None:
        """Where the implementation wrote, in words; None when every byte is as it was."""
        changed = torch.nonzero(self.buffer != self._before).flatten()
        if changed.numel() == 0:
            return None
        start, end = self.band, self.band + self._size
        first, last = int(changed[0]), int(changed[-1])
        count = changed.numel()
        if last < start:
            return f"{count} bytes before its start were written, the first {start - first} before"
        if first >= end:
            return f"{count} bytes past its end were written, the last {last - end + 1} past"
        own = changed[(changed >= start) & (changed < end)]
        if own.numel() == 0:
            return f"{count} bytes before its start and past its end were written"
        element = (int(own[0]) - start) // self.tensor.element_size()
        place = np.unravel_index(element, tuple(self.tensor.shape)) if self.tensor.ndim else ()
        more = "" if own.numel() == count else " and bytes outside it"
        where = f" at {tuple(int(i) for i in place)}" if self.tensor.ndim else ""
        return f"{own.numel()} of its {self._size} bytes were written, the first{where}{more}"


def place_inputs(
    inputs: Mapping[str, Any], *, device: str
) -> tuple[dict[str, Any], dict[str, Banded]]:
    """Arguments for one call (tensors and scalars) and the guarded memory behind them."""
    guarded = {
        name: Banded(value, device=device)
        for name, value in inputs.items()
        if isinstance(value, np.ndarray)
    }
    arguments = {
        name: guarded[name].tensor if name in guarded else value for name, value in inputs.items()
    }
    return arguments, guarded


def span(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte address and the one past the last that a strided tensor reaches; equal if empty."""
    start = tensor.data_ptr()
    if tensor.numel() == 0:
        return start, start
    reach = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return start, start + (reach + 1) * tensor.element_size()


def overlaps(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors reach common bytes."""
    if one.device != other.device:
        return False
    (a, b), (c, d) = span(one), span(other)
    return a < d and c < b and a < b and c < d


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes that a tensor spans, as a view of its memory."""
    start, end = span(tensor)
    storage = tensor.untyped_storage()
    whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
    first = start - storage.data_ptr()
    return whole[first : first + end - start]


def poison(tensor: torch.Tensor) -> None:
    """Fill a tensor with what nobody computes: NaN, or a far-out integer."""
    if tensor.dtype is torch.bool or tensor.layout is not torch.strided or tensor.is_meta:
        return
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        if tensor.element_size() > 1:
            tensor.fill_(float("nan"))
        elif tensor.is_contiguous():
            tensor.view(torch.uint8).fill_(_poison_byte(tensor.dtype))
        return
    info = torch.iinfo(tensor.dtype)
    tensor.fill_(info.max - 0x5A)


def _poison_byte(dtype: torch.dtype) -> int:
    if dtype is _FNUZ:
        return FNUZ_NAN_BYTE
    if dtype is torch.bool:
        return 1
    return NAN_BYTE if dtype.is_floating_point else OTHER_BYTE


@contextlib.contextmanager
def poisoned_memory() -> Iterator[None]:
    """Make what ``torch.empty`` and its kin give NaN (or a far-out integer) for a while."""
    places = [
        (torch, name) for name in ("empty", "empty_like", "empty_strided", "empty_permuted")
    ] + [(torch.Tensor, name) for name in ("new_empty", "new_empty_strided")]
    kept = [(owner, name, getattr(owner, name)) for owner, name in places]
    try:
        for owner, name, original in kept:
            setattr(owner, name, _poisoning(original))
        yield
    finally:
        for owner, name, original in kept:
            setattr(owner, name, original)


def _poisoning(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def fresh(*args: Any, **kwargs: Any) -> torch.Tensor:
        tensor = original(*args, **kwargs)
        poison(tensor)
        return tensor

    return fresh
