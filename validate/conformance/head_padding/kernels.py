"""The kernels that are measured, each behind one signature; one that fails is listed as failed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["DECODE", "LATENT", "PREFILL", "ROPE", "SCALE", "VALUE", "WIDTH", "Kernel"]

WIDTH, VALUE = 192, 128
"""Prefill: width of q and k, and of v."""
LATENT, ROPE = 512, 64
"""Absorbed decode: width of the values, and of the rest of a key."""
SCALE = 192**-0.5
SPLITS = 64

Result = tuple[Tensor, Tensor | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel of one phase."""

    name: str
    title: str
    devices: tuple[str, ...]
    run: Callable[[Tensor, Tensor, Tensor], Result]
    """Prefill: q, k, v [tokens, heads, width] of one causal request -> out [tokens, heads, value],
    LSE [tokens, heads]. Decode: q [queries, heads, 576], the cache [keys, 576] twice (keys, values
    in its first 512) -> out [queries, heads, 512], LSE. The last query sees every key."""
    most: int = 1 << 62
    """Longest context that it is run at."""
    most_queries: int = 1 << 62
    float8: bool = False
    """Whether it reads a float8 cache itself; else operands are rounded and widened before."""


def _heads_first(*tensors: Tensor) -> list[Tensor]:
    return [x.transpose(0, 1).unsqueeze(0) for x in tensors]


def _tokens_first(out: Tensor, lse: Tensor | None, rows: int) -> Result:
    """[1, heads, tokens, value] and [1, heads, >= tokens] to tokens first, real rows only."""
    logs = None if lse is None else lse[0, :, :rows].transpose(0, 1)
    return out[0].transpose(0, 1), logs


def _widened(v: Tensor, width: int) -> Tensor:
    """Zero columns behind v, for kernels that want one width; they are cut off again."""
    return torch.nn.functional.pad(v, (0, width - v.shape[-1]))


def flash(q: Tensor, k: Tensor, v: Tensor) -> Result:
    """The operator behind SDPA's flash backend; v widened from 128 to 192 columns."""
    wide = _heads_first(q, k, _widened(v, q.shape[-1]))
    found = torch.ops.aten._scaled_dot_product_flash_attention(
        *wide, 0.0, is_causal=True, return_debug_mask=False, scale=SCALE
    )
    return _tokens_first(found[0][..., : v.shape[-1]], found[1], len(q))


def cudnn(q: Tensor, k: Tensor, v: Tensor) -> Result:
    """The operator behind SDPA's cuDNN backend; 192 / 128 as they are."""
    found = torch.ops.aten._scaled_dot_product_cudnn_attention(
        *_heads_first(q, k, v),
        None,
        compute_log_sumexp=True,
        dropout_p=0.0,
        is_causal=True,
        return_debug_mask=False,
        scale=SCALE,
    )
    lse = found[1].squeeze(-1) if found[1].ndim == 4 else found[1]  # noqa: PLR2004
    return _tokens_first(found[0], lse, len(q))


def efficient(q: Tensor, k: Tensor, v: Tensor) -> Result:
    """The operator behind SDPA's memory-efficient backend; 192 / 128 as they are."""
    found = torch.ops.aten._scaled_dot_product_efficient_attention(
        *_heads_first(q, k, v),
        None,
        compute_log_sumexp=True,
        dropout_p=0.0,
        is_causal=True,
        scale=SCALE,
    )
    return _tokens_first(found[0], found[1], len(q))


def cpu_flash(q: Tensor, k: Tensor, v: Tensor) -> Result:
    """SDPA's CPU flash operator, to try this program without a GPU."""
    wide = _heads_first(q, k, _widened(v, q.shape[-1]))
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        *wide, 0.0, is_causal=True, scale=SCALE
    )
    return _tokens_first(out[..., : v.shape[-1]], lse, len(q))


def eager(q: Tensor, k: Tensor, v: Tensor) -> Result:
    """Two batched matrix products and a float32 softmax, causal, all scores in memory."""
    scores = torch.einsum("qhd,khd->hqk", q.float(), k.float()) * SCALE
    row = torch.arange(len(q), device=q.device)
    scores = scores.masked_fill(row.unsqueeze(0) > row.unsqueeze(1), -torch.inf)
    lse = torch.logsumexp(scores, dim=-1)
    weights = (scores - lse.unsqueeze(-1)).exp_().to(q.dtype)
    return torch.einsum("hqk,khd->qhd", weights, v), lse.transpose(0, 1)


def _wide_product(a: Tensor, b: Tensor) -> Tensor:
    """A b with a float32 result: the vendor's GEMM on CUDA, float32 operands elsewhere."""
    if a.device.type == "cpu":
        return a.float() @ b.float()
    return torch.mm(a, b, out_dtype=torch.float32)


def gemm_decode(q: Tensor, k: Tensor, v: Tensor) -> Result:
    """Two GEMMs with queries times heads rows (cuBLAS or hipBLAS) and a float32 softmax."""
    queries, heads, width = q.shape
    scores = _wide_product(q.reshape(-1, width), k.T) * SCALE
    last = len(k) - queries + torch.arange(queries, device=q.device)
    hidden = torch.arange(len(k) - queries, len(k), device=q.device) > last.unsqueeze(1)
    tail = scores[:, len(k) - queries :].view(queries, heads, queries)
    tail.masked_fill_(hidden.unsqueeze(1), -torch.inf)
    lse = torch.logsumexp(scores, dim=1)
    weights = scores.sub_(lse.unsqueeze(1)).exp_().to(q.dtype)
    out = _wide_product(weights, v[:, :LATENT])
    return out.to(q.dtype).view(queries, heads, LATENT), lse.view(queries, heads)


def efficient_decode(q: Tensor, k: Tensor, v: Tensor) -> Result:
    """SDPA's memory-efficient operator with the one key head expanded to all; one query."""
    heads = q.shape[1]
    keys = k.unsqueeze(1).expand(-1, heads, -1)
    values = v[:, :LATENT].unsqueeze(1).expand(-1, heads, -1)
    found = torch.ops.aten._scaled_dot_product_efficient_attention(
        *_heads_first(q, keys, values),
        None,
        compute_log_sumexp=True,
        dropout_p=0.0,
        is_causal=False,
        scale=SCALE,
    )
    return _tokens_first(found[0], found[1], len(q))


def triton_decode(q: Tensor, k: Tensor, v: Tensor) -> Result:  # noqa: ARG001  values lie in the keys
    """Our Triton split-KV decode: 16 heads a block, 64 parts, float8 caches read as they are."""
    from validate.conformance.engines import _triton_mla

    queries, device = len(q), q.device
    seen = torch.arange(len(k) - queries + 1, len(k) + 1, device=device, dtype=torch.int32)
    nobody = torch.zeros(queries, dtype=torch.int32, device=device)
    return _triton_mla.decode(
        q,
        k,
        torch.zeros((1, 1), dtype=torch.int32, device=device),
        nobody,
        seen,
        page=len(k),
        latent=LATENT,
        scale=SCALE,
        splits=SPLITS,
        kv_scale=1.0,
    )


PREFILL: Mapping[str, Kernel] = {
    one.name: one
    for one in (
        Kernel(name="sdpa-flash", title=flash.__doc__ or "", devices=("cuda",), run=flash),
        Kernel(name="sdpa-cudnn", title=cudnn.__doc__ or "", devices=("cuda",), run=cudnn),
        Kernel(
            name="sdpa-efficient", title=efficient.__doc__ or "", devices=("cuda",), run=efficient
        ),
        Kernel(name="sdpa-cpu", title=cpu_flash.__doc__ or "", devices=("cpu",), run=cpu_flash),
        Kernel(
            name="eager", title=eager.__doc__ or "", devices=("cpu", "cuda"), run=eager, most=8192
        ),
    )
}
"""Prefill kernels by name."""

DECODE: Mapping[str, Kernel] = {
    one.name: one
    for one in (
        Kernel(
            name="triton-split",
            title=triton_decode.__doc__ or "",
            devices=("cuda",),
            run=triton_decode,
            float8=True,
        ),
        Kernel(
            name="gemm", title=gemm_decode.__doc__ or "", devices=("cpu", "cuda"), run=gemm_decode
        ),
        Kernel(
            name="sdpa-efficient",
            title=efficient_decode.__doc__ or "",
            devices=("cuda",),
            run=efficient_decode,
            most_queries=1,
        ),
    )
}
"""Decode kernels by name."""
