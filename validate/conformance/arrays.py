"""Between NumPy arrays of a sweep point and torch tensors of an implementation, bit for bit."""

from typing import Any

import ml_dtypes
import numpy as np
import torch

__all__ = ["dtype_name", "to_numpy", "to_torch"]

_BITS: dict[str, tuple[Any, torch.dtype]] = {
    "bfloat16": (np.int16, torch.bfloat16),
    "float8_e4m3fn": (np.uint8, torch.float8_e4m3fn),
    "float8_e4m3fnuz": (np.uint8, torch.float8_e4m3fnuz),
    "float8_e8m0fnu": (np.uint8, torch.float8_e8m0fnu),
}
"""Formats that NumPy knows only by ml_dtypes: carried over as bits."""
_CARRIER: dict[torch.dtype, tuple[torch.dtype, Any]] = {
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e4m3fnuz: (torch.uint8, ml_dtypes.float8_e4m3fnuz),
    torch.float8_e8m0fnu: (torch.uint8, ml_dtypes.float8_e8m0fnu),
}


def to_torch(array: np.ndarray, *, device: str = "cpu") -> torch.Tensor:
    """A tensor of its own memory with the bits and the shape of ``array``."""
    carried = _BITS.get(array.dtype.name)
    if carried is None:
        return torch.from_numpy(np.array(array, order="C", copy=True)).to(device)
    bits, dtype = carried
    copy = np.array(array, order="C", copy=True).view(bits)
    return torch.from_numpy(copy).view(dtype).to(device)


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """An array of its own memory with the bits and the shape of ``tensor``."""
    held = tensor.detach().contiguous().cpu()
    carried = _CARRIER.get(held.dtype)
    if carried is None:
        return np.array(held.numpy(), copy=True)
    bits, dtype = carried
    return np.array(held.view(bits).numpy(), copy=True).view(dtype)


def dtype_name(tensor: torch.Tensor) -> str:
    """NumPy name of a tensor's dtype."""
    return str(tensor.dtype).removeprefix("torch.")
