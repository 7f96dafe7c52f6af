"""AITER's MLA decode and flash attention behind the contracts; imported when called, unrun so far.

Read off aiter at e404860: ``aiter/mla.py`` (``mla_decode_fwd`` without persistent metadata) and
``aiter/ops/mha.py``. The kernels take 512 + 64 and certain head counts alone; what they
refuse is a finding of the clause ``returns``.
"""

import importlib
from typing import Any

import torch
from torch import Tensor

from validate.conformance.records import Implementation

__all__ = ["IMPLEMENTATIONS", "available", "decode", "prefill"]


def available() -> str | None:
    """Why AITER cannot be used; None when it can be imported."""
    try:
        importlib.import_module("aiter.mla")
    except Exception as error:  # noqa: BLE001  a foreign package may fail in any way
        return f"not installed ({type(error).__name__}: {error})"
    return None


def _indices(block_table: Tensor, lengths: Tensor, page: int) -> tuple[Tensor, Tensor]:
    """Slots of every request one after another, and where each begins: pages of one slot."""
    slot = torch.arange(block_table.shape[1] * page, device=lengths.device)
    places = block_table.long().repeat_interleave(page, dim=1) * page + slot % page
    flat = places[slot < lengths.unsqueeze(1)].to(torch.int32)
    starts = torch.zeros(len(lengths) + 1, dtype=torch.int32, device=lengths.device)
    starts[1:] = lengths.cumsum(0)
    return flat, starts


def decode(
    q: Tensor,
    kv_cache: Tensor,
    block_table: Tensor,
    query_starts: Tensor,
    lengths: Tensor,
    latent: int,
    scale: float,
    num_splits: int,  # noqa: ARG001  AITER chooses
    kv_scale: float,
) -> tuple[Tensor, Tensor]:
    """``aiter.mla.mla_decode_fwd`` over pages of one slot; a float8 cache takes float8 queries."""
    kernel: Any = importlib.import_module("aiter.mla").mla_decode_fwd
    indices, starts = _indices(block_table, lengths, kv_cache.shape[1])
    out = torch.empty((*q.shape[:2], latent), dtype=q.dtype, device=q.device)
    scales: dict[str, Tensor] = {}
    if kv_cache.element_size() == 1:
        one = torch.ones(1, dtype=torch.float32, device=q.device)
        scales = {"q_scale": one, "kv_scale": one * kv_scale}
        q = q.to(kv_cache.dtype)
    _logits, lse = kernel(
        q,
        kv_cache.reshape(-1, 1, 1, kv_cache.shape[2]),
        out,
        query_starts,
        starts,
        indices,
        torch.ones_like(lengths),
        int((query_starts[1:] - query_starts[:-1]).max()),
        sm_scale=scale,
        return_lse=True,
        **scales,
    )
    return out, lse


def prefill(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    query_starts: Tensor,
    key_starts: Tensor,
    scale: float,
    causal: bool,  # noqa: FBT001  the contract's own argument
    q_scale: float,
    k_scale: float,
    v_scale: float,
) -> tuple[Tensor, Tensor]:
    """``aiter.flash_attn_varlen_func``, the fallback of engines; float8 operands are widened."""
    kernel: Any = importlib.import_module("aiter").flash_attn_varlen_func
    if q.element_size() == 1:
        q, k, v = (
            (x.float() * s).bfloat16() for x, s in ((q, q_scale), (k, k_scale), (v, v_scale))
        )
    found = kernel(
        q,
        k,
        v,
        query_starts,
        key_starts,
        int((query_starts[1:] - query_starts[:-1]).max()),
        int((key_starts[1:] - key_starts[:-1]).max()),
        softmax_scale=scale,
        causal=causal,
        return_lse=True,
    )
    return found[0], found[1].transpose(0, 1).contiguous()


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    Implementation(
        name="aiter:mla_decode_fwd",
        op="mla_decode",
        function=decode,
        title="AITER MLA decode, pages of one slot",
        devices=("cuda",),
        settings={"widths": "k3"},
    ),
    Implementation(
        name="aiter:flash_attn_varlen",
        op="mla_prefill",
        function=prefill,
        title="AITER flash attention, ragged",
        devices=("cuda",),
        settings={"widths": "k3"},
    ),
)
"""AITER implementations; ``cuda`` is also the name torch gives a ROCm device."""
