"""Split-KV MLA decode in torch, in exchangeable steps: one step a code site.

The padded variants and every planted fault are this function with a step replaced.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from validate.models.heads import PadRule, accepted, pad_heads, unpad_heads

__all__ = [
    "DecodeSteps",
    "attend_part",
    "causal_bound",
    "decode_with",
    "dot_scores",
    "flat_slots",
    "folded_decode",
    "merge_parts",
    "part_bounds",
]


def flat_slots(table: Tensor, length: int, page: int) -> Tensor:
    """Places of the first ``length`` keys in the flattened cache, int64."""
    slot = torch.arange(length, device=table.device)
    return table[slot // page].long() * page + slot % page


def widen_cache(entries: Tensor, kv_scale: float) -> Tensor:
    """Cache entries as float32; a float8 cache carries a scale, any other none."""
    wide = entries.float()
    return wide * kv_scale if entries.element_size() == 1 else wide


def dot_scores(q: Tensor, keys: Tensor, latent: int, scale: float) -> Tensor:  # noqa: ARG001
    """[queries, heads, keys] float32."""
    return torch.einsum("qhd,kd->qhk", q.float(), keys) * scale


def clear_dead(keys: Tensor, length: int) -> Tensor:
    """Whole pages were read: what lies past the last key must not meet a weight of 0 (0 * NaN)."""
    alive = torch.arange(len(keys), device=keys.device) < length
    return keys.masked_fill(~alive.unsqueeze(-1), 0.0)


def causal_bound(queries: int, length: int, *, device: torch.device) -> Tensor:
    """How many keys each query sees, [queries]."""
    return length - queries + 1 + torch.arange(queries, device=device)


def part_bounds(length: int, splits: int) -> list[tuple[int, int]]:
    """Near-equal parts of the keys; empty ones stay, as a fixed grid leaves them."""
    edges = [length * i // splits for i in range(splits + 1)]
    return list(pairwise(edges))


def attend_part(scores: Tensor, values: Tensor, weights: torch.dtype) -> tuple[Tensor, Tensor]:
    """Output and natural-log LSE of masked scores [queries, heads, keys] over their keys.

    Weights are rounded to ``weights`` before the second product, their sum is not.
    """
    if not scores.shape[-1]:
        shape = scores.shape[:-1]
        empty = scores.new_full(shape, -math.inf)
        return scores.new_zeros((*shape, values.shape[-1])), empty
    top = scores.amax(-1, keepdim=True)
    shifted = (scores - top.masked_fill(top == -math.inf, 0.0)).exp()
    total = shifted.sum(-1, keepdim=True)
    out = torch.einsum("qhk,kl->qhl", shifted.to(weights).float(), values)
    return out / total.masked_fill(total == 0, 1.0), (top + total.log()).squeeze(-1)


def keep_parts(outs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
    """The workspace between the two passes: parts as they are."""
    return outs, lses


def merge_parts(outs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
    """Parts [parts, rows, heads, value] and [parts, rows, heads] into one, natural log."""
    top = lses.amax(0)
    safe = top.masked_fill(top == -math.inf, 0.0)
    weight = (lses - safe).exp()
    total = weight.sum(0)
    counted = outs.masked_fill((lses == -math.inf).unsqueeze(-1), 0.0)
    out = (weight.unsqueeze(-1) * counted).sum(0) / total.masked_fill(total == 0, 1.0).unsqueeze(-1)
    return out, safe + total.log()


def pad_none(q: Tensor) -> Tensor:
    """No padding."""
    return q


def unpad_none(x: Tensor, heads: int, axis: int) -> Tensor:  # noqa: ARG001
    """Nothing to take away."""
    return x


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSteps:
    """The code sites of a split decode."""

    pad: Callable[[Tensor], Tensor] = pad_none
    unpad: Callable[[Tensor, int, int], Tensor] = unpad_none
    """(padded, real heads, head axis from the end) -> real heads."""
    slots: Callable[[Tensor, int, int], Tensor] = flat_slots
    """(block table row, length, page) -> places in the flat cache."""
    widen: Callable[[Tensor, float], Tensor] = widen_cache
    clear: Callable[[Tensor, int], Tensor] = clear_dead
    """(keys of whole pages, length) -> keys with nothing past the length."""
    scores: Callable[[Tensor, Tensor, int, float], Tensor] = dot_scores
    bound: Callable[..., Tensor] = causal_bound
    parts: Callable[[int, int], list[tuple[int, int]]] = part_bounds
    attend: Callable[[Tensor, Tensor, torch.dtype], tuple[Tensor, Tensor]] = attend_part
    workspace: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = keep_parts
    merge: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = merge_parts

    @staticmethod
    def padded(rule: PadRule) -> "DecodeSteps":
        """Padded to a head count that the 16-head kernels take, and back."""

        def pad(q: Tensor) -> Tensor:
            padded = pad_heads(q, rule)
            accepted(padded.shape[-2])
            return padded

        def unpad(x: Tensor, heads: int, axis: int) -> Tensor:
            return unpad_heads(x, heads, rule, axis=axis)

        return DecodeSteps(pad=pad, unpad=unpad)


def decode_with(
    steps: DecodeSteps,
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
    """Absorbed decode of every request, in the given steps; arguments as in the contract."""
    heads = q.shape[1]
    padded = steps.pad(q)
    flat = kv_cache.flatten(0, 1)
    starts = query_starts.tolist()
    outs, lses = [], []
    for request, length in enumerate(lengths.tolist()):
        rows = padded[starts[request] : starts[request + 1]]
        page = kv_cache.shape[1]
        read = -(-length // page) * page
        places = steps.slots(block_table[request], read, page)
        keys = steps.clear(steps.widen(flat[places], kv_scale), length)
        scores = steps.scores(rows, keys, latent, scale)
        seen = torch.arange(read, device=q.device) < steps.bound(
            len(rows), length, device=q.device
        ).unsqueeze(-1)
        scores = scores.masked_fill(~seen.unsqueeze(1), -math.inf)
        parts = [
            steps.attend(scores[..., a:b], keys[a:b, :latent], q.dtype)
            for a, b in steps.parts(read, num_splits)
        ]
        stored = steps.workspace(
            torch.stack([out for out, _ in parts]), torch.stack([lse for _, lse in parts])
        )
        out, lse = steps.merge(*stored)
        outs.append(out)
        lses.append(lse)
    # One unpad of the whole batch, output and LSE alike.
    out = steps.unpad(torch.cat(outs).to(q.dtype), heads, -2)
    return out, steps.unpad(torch.cat(lses), heads, -1)


FOLD = 16
"""Heads of the kernel that wider multiples are folded onto."""


def folded_decode(
    steps: DecodeSteps,
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
    """Heads in multiples of 16 folded onto a 16-head kernel: [tokens, 16 f] -> [f tokens, 16].

    The causal bound belongs to the query, not to the folded row: row i of a request is
    query i // f. Other head counts run as they are.
    """
    tokens, heads, width = q.shape
    folds = heads // FOLD if heads % FOLD == 0 else 1
    bound = steps.bound

    def of_query(rows: int, length: int, *, device: torch.device) -> Tensor:
        return bound(rows // folds, length, device=device).repeat_interleave(folds)

    out, lse = decode_with(
        replace(steps, bound=of_query),
        q.reshape(tokens * folds, heads // folds, width),
        kv_cache,
        block_table,
        query_starts * folds,
        lengths,
        latent,
        scale,
        num_splits,
        kv_scale,
    )
    return out.reshape(tokens, heads, latent), lse.reshape(tokens, heads)
