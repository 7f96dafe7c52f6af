"""vLLM's Triton MLA decode and its LSE merge behind the contracts; imported when called, unrun so far.

Read off vLLM ``v1/attention/ops/triton_decode_attention.py`` and ``merge_attn_states.py``.
"""

import importlib
import importlib.util
from typing import Any

import torch
from torch import Tensor

from validate.conformance.engines.triton_attention import rows_of_requests
from validate.conformance.records import Implementation

__all__ = ["IMPLEMENTATIONS", "available", "decode", "merge"]

_OPS = "vllm.v1.attention.ops"


def available() -> str | None:
    """Why vLLM cannot be used; None when it can be imported and a GPU is there."""
    if importlib.util.find_spec("vllm") is None:
        return "not installed (No module named 'vllm')"
    if not torch.cuda.is_available():
        return "vLLM's kernels need a GPU; there is none here"
    try:
        importlib.import_module(f"{_OPS}.triton_decode_attention")
    except Exception as error:  # noqa: BLE001  a foreign package may fail in any way
        return f"importing {_OPS} failed: {type(error).__name__}: {error}"
    return None


def decode(
    q: Tensor,
    kv_cache: Tensor,
    block_table: Tensor,
    query_starts: Tensor,
    lengths: Tensor,
    latent: int,
    scale: float,
    num_splits: int,
    kv_scale: float,
) -> tuple[Tensor, Tensor]:
    """``decode_attention_fwd``: one query a request, so every token becomes a request."""
    kernel: Any = importlib.import_module(f"{_OPS}.triton_decode_attention").decode_attention_fwd
    request, visible = rows_of_requests(query_starts, lengths)
    tokens, heads = q.shape[:2]
    keys = kv_cache.unsqueeze(2)
    out = torch.empty((tokens, heads, latent), dtype=q.dtype, device=q.device)
    lse = torch.empty((tokens, heads), dtype=torch.float32, device=q.device)
    parts = torch.empty(
        (tokens, heads, num_splits, latent + 1), dtype=torch.float32, device=q.device
    )
    factor = torch.full((1,), kv_scale, dtype=torch.float32, device=q.device)
    scales = {"k_scale": factor, "v_scale": factor} if kv_cache.element_size() == 1 else {}
    kernel(
        q,
        keys,
        keys[..., :latent],
        out,
        lse,
        block_table[request.long()],
        visible,
        parts,
        num_splits,
        scale,
        kv_cache.shape[1],
        **scales,
    )
    return out, lse


def merge(outs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
    """``merge_attn_states``, two parts at a time; it takes LSE as [heads, tokens].

    More than two parts are merged in float32: the contract rounds once.
    """
    kernel: Any = importlib.import_module(f"{_OPS}.merge_attn_states").merge_attn_states
    dtype = outs.dtype
    outs = outs if len(outs) <= 2 else outs.float()  # noqa: PLR2004  one merge rounds once
    out = torch.zeros_like(outs[0])  # an empty part, so that every part passes the kernel
    lse = torch.full_like(lses[0].transpose(0, 1).contiguous(), -torch.inf)
    for part in range(len(outs)):
        given, logs = torch.empty_like(out), torch.empty_like(lse)
        other = lses[part].transpose(0, 1).contiguous()
        kernel(given, out, lse, outs[part].contiguous(), other, logs)
        out, lse = given, logs
    return out.to(dtype), lse.transpose(0, 1).contiguous()


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    Implementation(
        name="vllm:triton_decode",
        op="mla_decode",
        function=decode,
        title="vLLM Triton decode, a request a token",
        devices=("cuda",),
        settings={"widths": "k3"},
    ),
    Implementation(
        name="vllm:merge_attn_states",
        op="lse_merge",
        function=merge,
        title="vLLM merge of attention states, two at a time",
        devices=("cuda",),
    ),
)
"""vLLM attention implementations."""
