"""Triton MLA decode and LSE merge behind the contracts; triton is imported when called."""

import importlib.util

import torch
from torch import Tensor

from validate.conformance.records import Implementation

__all__ = ["IMPLEMENTATIONS", "available", "mla_decode", "rows_of_requests", "triton_merge"]


def available() -> str | None:
    """Why triton cannot be used; None when it can be imported."""
    return None if importlib.util.find_spec("triton") else "triton is not installed"


def rows_of_requests(query_starts: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """For each token its request and how many keys it sees, int32; no host synchronisation.

    Query i of n of a request of length m sees m - n + 1 + i keys, none when m is 0.
    """
    counts = query_starts[1:] - query_starts[:-1]
    batch = torch.arange(len(lengths), device=lengths.device, dtype=torch.int32)
    request = torch.repeat_interleave(batch, counts)
    token = torch.arange(len(request), device=lengths.device, dtype=torch.int32)
    index = request.long()
    seen = lengths[index] - (query_starts[1:][index] - token) + 1
    return request, seen.clamp(min=0).to(torch.int32)


def mla_decode(
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
    """Split-KV decode in two kernels; float8 entries are widened exactly and scaled in float32."""
    from validate.conformance.engines import _triton_mla

    request, visible = rows_of_requests(query_starts, lengths)
    quantised = kv_cache.element_size() == 1
    return _triton_mla.decode(
        q,
        kv_cache.flatten(0, 1),
        block_table,
        request,
        visible,
        page=kv_cache.shape[1],
        latent=latent,
        scale=scale,
        splits=num_splits,
        kv_scale=kv_scale if quantised else 1.0,
    )


def triton_merge(outs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
    """Merge by LSE, one program a row and head."""
    from validate.conformance.engines import _triton_mla

    return _triton_mla.merge(outs, lses)


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    Implementation(
        name="triton:split",
        op="mla_decode",
        function=mla_decode,
        title="Triton split-KV MLA decode, 16 heads a block (written for ROCm too, unrun there)",
        devices=("cuda",),
    ),
    Implementation(
        name="triton:merge",
        op="lse_merge",
        function=triton_merge,
        title="Triton merge by LSE (written for ROCm too, unrun there)",
        devices=("cuda",),
    ),
)
"""Triton implementations; ``cuda`` is also the name torch gives a ROCm device."""
