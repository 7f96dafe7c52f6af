"""Triton kernels of split-KV MLA decode; importing this needs triton.

One program attends one block of 16 heads of one token over one part of its keys. Every
row of a head block is computed alone, so what a padded head holds cannot reach a real one.
Nothing here names a vendor: it is written for ROCm too, where it has not been run.

Arguments of a kernel carry no annotation: the compiler of Triton looks every name up.
"""

# mypy: disable-error-code="no-untyped-def"

import importlib
from typing import Any

import torch

# Imported by name: the type checker needs no triton, and a machine without it may lint this.
triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")

__all__ = ["decode", "merge"]

HEADS_A_BLOCK = 16
KEYS_A_BLOCK = 32


@triton.jit  # type: ignore[untyped-decorator]
def _part_kernel(  # noqa: PLR0915  one kernel
    q_ptr,
    kv_ptr,
    table_ptr,
    request_ptr,
    visible_ptr,
    out_ptr,
    lse_ptr,
    scale,
    kv_scale,
    heads,
    page,
    table_stride,
    q_stride_token,
    q_stride_head,
    kv_stride_slot,
    LATENT: tl.constexpr,
    ROPE: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_L: tl.constexpr,
    BLOCK_R: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    token = tl.program_id(0)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    split = tl.program_id(2)
    request = tl.load(request_ptr + token)
    visible = tl.load(visible_ptr + token)
    each = tl.cdiv(tl.cdiv(visible, SPLITS), BLOCK_N) * BLOCK_N
    begin = split * each
    end = tl.minimum(begin + each, visible)

    at_l = tl.arange(0, BLOCK_L)
    at_r = tl.arange(0, BLOCK_R)
    real = head < heads
    q_row = q_ptr + token.to(tl.int64) * q_stride_token + head[:, None] * q_stride_head
    q_l = tl.load(q_row + at_l[None, :], mask=real[:, None] & (at_l < LATENT)[None, :], other=0.0)
    q_r = tl.load(
        q_row + LATENT + at_r[None, :], mask=real[:, None] & (at_r < ROPE)[None, :], other=0.0
    )
    q_l = q_l.to(COMPUTE)
    q_r = q_r.to(COMPUTE)

    top = tl.full([BLOCK_H], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_H], dtype=tl.float32)
    acc = tl.zeros([BLOCK_H, BLOCK_L], dtype=tl.float32)
    for start in range(begin, end, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)
        alive = key < end
        block = tl.load(table_ptr + request * table_stride + key // page, mask=alive, other=0)
        # Cache offsets pass 2^31: 64-bit from here on.
        slot = block.to(tl.int64) * page + key % page
        row = kv_ptr + slot * kv_stride_slot
        # Dead keys are loaded as 0: a weight of 0 times a NaN in their slot would be NaN.
        k_l = tl.load(
            row[None, :] + at_l[:, None], mask=alive[None, :] & (at_l < LATENT)[:, None], other=0.0
        ).to(COMPUTE)
        k_r = tl.load(
            row[None, :] + LATENT + at_r[:, None],
            mask=alive[None, :] & (at_r < ROPE)[:, None],
            other=0.0,
        ).to(COMPUTE)
        scores = tl.dot(q_l, k_l, input_precision="ieee")
        scores += tl.dot(q_r, k_r, input_precision="ieee")
        scores = tl.where(alive[None, :], scores * (scale * kv_scale), float("-inf"))
        above = tl.maximum(top, tl.max(scores, 1))
        shrink = tl.exp(top - above)
        weight = tl.exp(scores - above[:, None])
        total = total * shrink + tl.sum(weight, 1)
        acc = acc * shrink[:, None]
        acc += tl.dot(weight.to(COMPUTE), tl.trans(k_l), input_precision="ieee")
        top = above

    none = begin >= end
    divisor = tl.where(none, 1.0, total)
    place = (token.to(tl.int64) * SPLITS + split) * heads + head
    tl.store(
        out_ptr + place[:, None] * LATENT + at_l[None, :],
        acc * kv_scale / divisor[:, None],
        mask=real[:, None] & (at_l < LATENT)[None, :],
    )
    lse = tl.where(none, float("-inf"), top + tl.log(divisor))
    tl.store(lse_ptr + place, lse, mask=real)


@triton.jit  # type: ignore[untyped-decorator]
def _merge_kernel(
    outs_ptr,
    lses_ptr,
    out_ptr,
    lse_ptr,
    heads,
    VALUE: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    at = tl.arange(0, BLOCK_V)
    top = tl.full([], float("-inf"), dtype=tl.float32)
    for part in range(PARTS):
        top = tl.maximum(top, tl.load(lses_ptr + (token * PARTS + part) * heads + head))
    safe = tl.where(top == float("-inf"), 0.0, top)
    total = tl.full([], 0.0, dtype=tl.float32)
    acc = tl.zeros([BLOCK_V], dtype=tl.float32)
    for part in range(PARTS):
        place = (token * PARTS + part) * heads + head
        lse = tl.load(lses_ptr + place)
        weight = tl.exp(lse - safe)
        # An empty part may hold anything: it is not read.
        width = tl.where(lse == float("-inf"), 0, VALUE)
        row = tl.load(outs_ptr + place * VALUE + at, mask=at < width, other=0.0)
        acc += weight * row.to(tl.float32)
        total += weight
    out = acc / tl.where(total == 0.0, 1.0, total)
    place = token * heads + head
    tl.store(out_ptr + place * VALUE + at, out, mask=at < VALUE)
    tl.store(lse_ptr + place, safe + tl.log(total))


def decode(
    q: torch.Tensor,
    kv_flat: torch.Tensor,
    table: torch.Tensor,
    request: torch.Tensor,
    visible: torch.Tensor,
    *,
    page: int,
    latent: int,
    scale: float,
    splits: int,
    kv_scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Split decode and merge.

    Args:
        q: [tokens, heads, latent + rope].
        kv_flat: [slots, latent + rope].
        table: int32 [batch, pages].
        request: int32 [tokens], the request of each token.
        visible: int32 [tokens], how many keys it sees.
        page: Slots a page.
        latent: Width of the values.
        scale: Softmax scale.
        splits: Parts of the keys.
        kv_scale: Factor on the entries; 1 for a cache that is not quantised.
    """
    tokens, heads, width = q.shape
    outs = torch.empty((tokens, splits, heads, latent), dtype=torch.float32, device=q.device)
    lses = torch.empty((tokens, splits, heads), dtype=torch.float32, device=q.device)
    out = torch.empty((tokens, heads, latent), dtype=q.dtype, device=q.device)
    lse = torch.empty((tokens, heads), dtype=torch.float32, device=q.device)
    if tokens == 0:
        return out, lse
    compute = {
        torch.bfloat16: tl.bfloat16,
        torch.float16: tl.float16,
        torch.float32: tl.float32,
    }[q.dtype]
    wide = q.dtype == torch.float32
    _part_kernel[(tokens, triton.cdiv(heads, HEADS_A_BLOCK), splits)](
        q,
        kv_flat,
        table,
        request,
        visible,
        outs,
        lses,
        scale,
        kv_scale,
        heads,
        page,
        table.stride(0),
        q.stride(0),
        q.stride(1),
        kv_flat.stride(0),
        LATENT=latent,
        ROPE=width - latent,
        SPLITS=splits,
        BLOCK_H=HEADS_A_BLOCK,
        BLOCK_N=16 if wide else KEYS_A_BLOCK,
        BLOCK_L=max(16, triton.next_power_of_2(latent)),
        BLOCK_R=max(16, triton.next_power_of_2(width - latent)),
        COMPUTE=compute,
        num_warps=4,
        # 64 KiB of local memory on gfx942 hold one stage of [576, 32] keys, not two.
        num_stages=1 if wide or torch.version.hip else 2,
    )
    _merge(outs.flatten(0, 1), lses.flatten(0, 1), out, lse, parts=splits)
    return out, lse


def merge(outs: torch.Tensor, lses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Parts [parts, rows, heads, value] and [parts, rows, heads] into one."""
    parts, rows, heads, value = outs.shape
    out = torch.empty((rows, heads, value), dtype=outs.dtype, device=outs.device)
    lse = torch.empty((rows, heads), dtype=torch.float32, device=outs.device)
    ordered = outs.transpose(0, 1).contiguous(), lses.transpose(0, 1).contiguous()
    _merge(ordered[0].flatten(0, 1), ordered[1].flatten(0, 1), out, lse, parts=parts)
    return out, lse


def _merge(
    outs: torch.Tensor, lses: torch.Tensor, out: torch.Tensor, lse: torch.Tensor, *, parts: int
) -> None:
    """Rows of ``parts`` partial results each, one after another."""
    rows, heads, value = out.shape
    if rows == 0:
        return
    _merge_kernel[(rows, heads)](
        outs,
        lses,
        out,
        lse,
        heads,
        VALUE=value,
        PARTS=parts,
        BLOCK_V=triton.next_power_of_2(value),
        num_warps=4,
    )
