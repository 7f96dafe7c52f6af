"""Attention implementations of ours in torch: plain, SDPA, split, padded and folded."""

import math
from functools import partial

import torch
from torch import Tensor

from validate.conformance.engines._decode import (
    DecodeSteps,
    decode_with,
    folded_decode,
    merge_parts,
)
from validate.conformance.engines._prefill import PrefillSteps, prefill_with
from validate.conformance.records import Implementation

__all__ = ["IMPLEMENTATIONS", "eager_decode", "eager_merge", "eager_prefill", "sdpa_prefill"]


def _softmax(scores: Tensor, values: str, v: Tensor) -> tuple[Tensor, Tensor]:
    """Output and LSE of masked scores; a row without a key gives 0 and -inf."""
    if not scores.shape[-1]:
        return torch.einsum(values, scores, v), scores.new_full(scores.shape[:-1], -math.inf)
    lse = torch.logsumexp(scores, dim=-1)
    weights = torch.where(
        (lse == -math.inf).unsqueeze(-1),
        torch.zeros_like(scores),
        (scores - lse.unsqueeze(-1)).exp(),
    )
    return torch.einsum(values, weights, v), lse


def eager_decode(
    q: Tensor,
    kv_cache: Tensor,
    block_table: Tensor,
    query_starts: Tensor,
    lengths: Tensor,
    latent: int,
    scale: float,
    num_splits: int,  # noqa: ARG001  a hint
    kv_scale: float,
) -> tuple[Tensor, Tensor]:
    """All keys of a request at once, float32 softmax."""
    page = kv_cache.shape[1]
    outs, lses = [], []
    for request, length in enumerate(lengths.tolist()):
        rows = q[int(query_starts[request]) : int(query_starts[request + 1])].float()
        slot = torch.arange(length, device=q.device)
        keys = kv_cache[block_table[request][slot // page].long(), slot % page].float()
        if kv_cache.element_size() == 1:
            keys = keys * kv_scale
        last = length - len(rows) + torch.arange(len(rows), device=q.device)
        scores = torch.einsum("qhd,kd->qhk", rows, keys) * scale
        scores = scores.masked_fill((slot > last.unsqueeze(1)).unsqueeze(1), -math.inf)
        out, lse = _softmax(scores, "qhk,kl->qhl", keys[:, :latent])
        outs.append(out)
        lses.append(lse)
    return torch.cat(outs).to(q.dtype), torch.cat(lses)


def _operands(
    q: Tensor, k: Tensor, v: Tensor, scales: tuple[float, float, float]
) -> tuple[Tensor, Tensor, Tensor]:
    """Operands in a format that torch computes in: float8 widened with its scale, to bfloat16."""
    if q.element_size() > 1:
        return q, k, v
    wide = [x.float() * scale for x, scale in zip((q, k, v), scales, strict=True)]
    return wide[0].bfloat16(), wide[1].bfloat16(), wide[2].bfloat16()


def eager_prefill(
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
    """All keys of a request at once, float32 softmax."""
    group = q.shape[1] // k.shape[1]
    dtype = q.dtype if q.element_size() > 1 else torch.bfloat16
    if q.element_size() == 1:
        q, k, v = q.float() * q_scale, k.float() * k_scale, v.float() * v_scale
    rows, keys = query_starts.tolist(), key_starts.tolist()
    outs, lses = [], []
    for i in range(len(rows) - 1):
        mine = q[rows[i] : rows[i + 1]].float()
        held = slice(keys[i], keys[i + 1])
        wide_k, wide_v = (x[held].float().repeat_interleave(group, dim=1) for x in (k, v))
        scores = torch.einsum("qhd,khd->qhk", mine, wide_k) * scale
        if causal:
            first = len(wide_k) - len(mine)
            index = torch.arange(len(wide_k), device=q.device)
            last = first + torch.arange(len(mine), device=q.device)
            scores = scores.masked_fill((index > last.unsqueeze(1)).unsqueeze(1), -math.inf)
        out, lse = _softmax(scores, "qhk,khd->qhd", wide_v)
        outs.append(out)
        lses.append(lse)
    return torch.cat(outs).to(dtype), torch.cat(lses)


def sdpa_prefill(
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
    """Torch's fused attention, one request a call: memory-efficient on CUDA, flash on CPU.

    The operator behind ``scaled_dot_product_attention`` is called by name, for only it gives the
    LSE; a bias holds the bottom-right causal mask that SDPA's own flag does not know.
    """
    q, k, v = _operands(q, k, v, (q_scale, k_scale, v_scale))
    group = q.shape[1] // k.shape[1]
    out = q.new_zeros((*q.shape[:2], v.shape[2]))
    lse = torch.full(q.shape[:2], -math.inf, dtype=torch.float32, device=q.device)
    rows, keys = query_starts.tolist(), key_starts.tolist()
    for i in range(len(rows) - 1):
        mine, held = slice(rows[i], rows[i + 1]), slice(keys[i], keys[i + 1])
        if rows[i] == rows[i + 1] or keys[i] == keys[i + 1]:
            continue
        wide_k, wide_v = (x[held].repeat_interleave(group, dim=1) for x in (k, v))
        bias = _bias(rows[i + 1] - rows[i], keys[i + 1] - keys[i], q) if causal else None
        heads_first = [x.transpose(0, 1)[None] for x in (q[mine], wide_k, wide_v)]
        found, logs = _fused(heads_first[0], heads_first[1], heads_first[2], bias, scale)
        out[mine], lse[mine] = found[0].transpose(0, 1), logs[0].transpose(0, 1)
    return out, lse


def _bias(queries: int, keys: int, like: Tensor) -> Tensor:
    """Additive causal mask, aligned to the last query and key; [1, 1, queries, keys]."""
    seen = torch.ones(queries, keys, dtype=torch.bool, device=like.device).tril(keys - queries)
    return torch.zeros(1, 1, queries, keys, dtype=like.dtype, device=like.device).masked_fill(
        ~seen, -math.inf
    )


def _fused(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """One fused call on [1, heads, tokens, width]; gives output and LSE [1, heads, tokens]."""
    count, keys = q.shape[2], k.shape[2]
    if q.device.type == "cpu":
        # The CPU kernel wants one width: zero columns added to v are cut off again.
        wide = torch.nn.functional.pad(v, (0, q.shape[3] - v.shape[3]))
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, wide, 0.0, is_causal=False, attn_mask=bias, scale=scale
        )
        return out[..., : v.shape[3]], lse
    if bias is not None:
        # The kernel reads rows of 8 aligned entries: the bias is a slice of a wider one.
        room = bias.new_zeros(1, q.shape[1], count, -(-keys // 8) * 8)
        room[..., :keys] = bias
        bias = room[..., :keys]
    out, lse, _, _ = torch.ops.aten._scaled_dot_product_efficient_attention(
        q, k, v, bias, compute_log_sumexp=True, dropout_p=0.0, is_causal=False, scale=scale
    )
    return out, lse[..., :count]


def eager_merge(outs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
    """Shifted by the largest LSE, float32."""
    out, lse = merge_parts(outs.float(), lses)
    return out.to(outs.dtype), lse


_KERNEL = "a 16-head MLA kernel of AITER"

IMPLEMENTATIONS: tuple[Implementation, ...] = (
    Implementation(
        name="torch:eager", op="mla_decode", function=eager_decode, title=eager_decode.__doc__ or ""
    ),
    Implementation(
        name="torch:split",
        op="mla_decode",
        function=partial(decode_with, DecodeSteps()),
        title="Whole pages read, keys split, parts merged by LSE",
        emulates="a split-KV decode kernel",
    ),
    *(
        Implementation(
            name=f"torch:padded_{rule}",
            op="mla_decode",
            function=partial(decode_with, DecodeSteps.padded(rule)),
            title=f"Heads padded ({rule}) to an accepted count, decoded, output and LSE unpadded",
            emulates=_KERNEL,
        )
        for rule in ("zero", "tile", "repeat")
    ),
    Implementation(
        name="torch:folded",
        op="mla_decode",
        function=partial(folded_decode, DecodeSteps()),
        title="Heads in multiples of 16 folded onto a 16-head kernel, queries times folds rows",
        emulates=_KERNEL,
    ),
    Implementation(
        name="torch:eager",
        op="mla_prefill",
        function=eager_prefill,
        title=eager_prefill.__doc__ or "",
    ),
    Implementation(
        name="torch:sdpa",
        op="mla_prefill",
        function=sdpa_prefill,
        title="torch's fused attention: memory-efficient on CUDA, flash on CPU",
    ),
    Implementation(
        name="torch:blocked",
        op="mla_prefill",
        function=partial(prefill_with, PrefillSteps()),
        title="Online softmax over tiles of 32 keys, weights rounded as matrix units need",
        emulates="a flash-attention kernel",
    ),
    *(
        Implementation(
            name=f"torch:padded_{rule}",
            op="mla_prefill",
            function=partial(prefill_with, PrefillSteps.padded(rule)),
            title=f"Heads of q, k and v padded ({rule}), attended, output and LSE unpadded",
            emulates="the float8 prefill kernel of AITER",
        )
        for rule in ("zero", "tile", "repeat")
    ),
    Implementation(
        name="torch:eager", op="lse_merge", function=eager_merge, title=eager_merge.__doc__ or ""
    ),
)
"""Attention implementations of ours that need no compiler."""
