"""Blocked MLA prefill in torch, in exchangeable steps: one step a code site."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from validate.models.heads import PadRule, accepted, pad_heads, unpad_heads

__all__ = ["PrefillSteps", "Triple", "prefill_with"]

Triple = tuple[Tensor, Tensor, Tensor]
TILE = 32
"""Keys a tile of the online softmax."""


def load_operand(x: Tensor, scale: float) -> Tensor:
    """An operand widened to float32, with its scale."""
    return x.float() * scale if x.element_size() == 1 else x.float()


def pad_none(q: Tensor, k: Tensor, v: Tensor) -> Triple:
    """No padding."""
    return q, k, v


def unpad_none(x: Tensor, heads: int, axis: int) -> Tensor:  # noqa: ARG001
    """Nothing to take away."""
    return x


def head_map(heads: int, kv_heads: int, padded: int, padded_kv: int) -> Tensor:  # noqa: ARG001
    """Key head of each of ``padded`` query heads."""
    return torch.arange(padded) // (padded // padded_kv)


def visible(rows: Tensor, keys: Tensor, *, first: int, causal: bool) -> Tensor:
    """Which keys (absolute indices) each row sees, [rows, keys]."""
    if not causal:
        return torch.ones(len(rows), len(keys), dtype=torch.bool, device=rows.device)
    return keys.unsqueeze(0) <= first + rows.unsqueeze(1)


def finish(out: Tensor, top: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    """Output and natural-log LSE from the sums of an online softmax."""
    safe = top.masked_fill(top == -math.inf, 0.0)
    return out / total.masked_fill(total == 0, 1.0).unsqueeze(-1), safe + total.log()


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillSteps:
    """The code sites of a blocked prefill."""

    load: Callable[[Tensor, float], Tensor] = load_operand
    """Called for q, k and v in that order."""
    pad: Callable[[Tensor, Tensor, Tensor], Triple] = pad_none
    unpad: Callable[[Tensor, int, int], Tensor] = unpad_none
    head_map: Callable[[int, int, int, int], Tensor] = head_map
    visible: Callable[..., Tensor] = visible
    finish: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]] = finish

    @staticmethod
    def padded(rule: PadRule) -> "PrefillSteps":
        """q, k and v padded alike to a head count that the 16-head kernels take, and back.

        Grouped key heads would lose their ratio: they are repeated to one a query head first.
        """

        def pad(q: Tensor, k: Tensor, v: Tensor) -> Triple:
            group = q.shape[1] // k.shape[1]
            k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
            q, k, v = (pad_heads(x, rule) for x in (q, k, v))
            accepted(q.shape[1])
            return q, k, v

        def unpad(x: Tensor, heads: int, axis: int) -> Tensor:
            return unpad_heads(x, heads, rule, axis=axis)

        return PrefillSteps(pad=pad, unpad=unpad)


def prefill_with(
    steps: PrefillSteps,
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
    """Attention of every request in the given steps; arguments as in the contract."""
    heads, kv_heads = q.shape[1], k.shape[1]
    wide = q.dtype if q.element_size() > 1 else torch.bfloat16
    padded = steps.pad(steps.load(q, q_scale), steps.load(k, k_scale), steps.load(v, v_scale))
    index = steps.head_map(heads, kv_heads, padded[0].shape[1], padded[1].shape[1]).to(q.device)
    rows, keys = query_starts.tolist(), key_starts.tolist()
    out = padded[0].new_zeros((*padded[0].shape[:2], v.shape[2]))
    lse = padded[0].new_full(padded[0].shape[:2], -math.inf)
    for i in range(len(rows) - 1):
        mine, held = slice(rows[i], rows[i + 1]), slice(keys[i], keys[i + 1])
        if rows[i] == rows[i + 1]:
            continue
        operands = (padded[0][mine], padded[1][held][:, index], padded[2][held][:, index])
        out[mine], lse[mine] = _request(steps, *operands, scale, causal, wide)
    return steps.unpad(out.to(wide), heads, -2), steps.unpad(lse, heads, -1)


def _request(
    steps: PrefillSteps,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    causal: bool,  # noqa: FBT001
    weights: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Online softmax over tiles of keys."""
    count, first = len(k), len(k) - len(q)
    row = torch.arange(len(q), device=q.device)
    top = q.new_full(q.shape[:2], -math.inf)
    total = q.new_zeros(q.shape[:2])
    out = q.new_zeros((*q.shape[:2], v.shape[2]))
    for start in range(0, count, TILE):
        tile = slice(start, min(start + TILE, count))
        scores = torch.einsum("qhd,khd->qhk", q, k[tile]) * scale
        seen = steps.visible(
            row, torch.arange(start, tile.stop, device=q.device), first=first, causal=causal
        )
        scores = scores.masked_fill(~seen.unsqueeze(1), -math.inf)
        above = torch.maximum(top, scores.amax(-1))
        safe = above.masked_fill(above == -math.inf, 0.0)
        e = (scores - safe.unsqueeze(-1)).exp()
        shrink = (top - safe).exp()
        total = total * shrink + e.sum(-1)
        product = torch.einsum("qhk,khd->qhd", e.to(weights).float(), v[tile])
        out = out * shrink.unsqueeze(-1) + product
        top = above
    return steps.finish(out, top, total)
