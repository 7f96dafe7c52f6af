"""sgl_kernel's merge of attention states behind the contract; imported when called, unrun so far."""

import importlib
from typing import Any

import torch
from torch import Tensor

from validate.conformance.records import Implementation

__all__ = ["IMPLEMENTATIONS", "available", "merge"]


def available() -> str | None:
    """Why sgl_kernel cannot be used; None when it can be imported and a GPU is there."""
    try:
        importlib.import_module("sgl_kernel")
    except Exception as error:  # noqa: BLE001  a foreign package may fail in any way
        return f"not installed ({error})"
    return None if torch.cuda.is_available() else "sgl_kernel needs a GPU; there is none here"


def merge(outs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
    """``sgl_kernel.merge_state_v2``, two parts at a time; natural-log LSE [tokens, heads].

    More than two parts are merged in float32: the contract rounds once.
    """
    kernel: Any = importlib.import_module("sgl_kernel").merge_state_v2
    dtype = outs.dtype
    outs = outs if len(outs) <= 2 else outs.float()  # noqa: PLR2004  one merge rounds once
    out = torch.zeros_like(outs[0])  # an empty part, so that every part passes the kernel
    lse = torch.full_like(lses[0], -torch.inf)
    for part in range(len(outs)):
        out, lse = kernel(out, lse, outs[part].contiguous(), lses[part].contiguous())
    return out.to(dtype), lse


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    Implementation(
        name="sgl_kernel:merge_state_v2",
        op="lse_merge",
        function=merge,
        title="sgl_kernel merge of attention states, two at a time",
        devices=("cuda",),
    ),
)
"""sgl_kernel attention implementations."""
