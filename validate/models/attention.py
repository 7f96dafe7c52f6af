"""Attention inner loops: a plain softmax, kernel-like blocks over bf16 operands, LSE merge.

All take a mask (batch, queries, keys), True where a query may look, and
return outputs with the natural-log log-sum-exp of each query and head.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Partial", "attend", "key_parts", "merge_partials"]


class Partial(NamedTuple):
    """Attention over a part of the keys."""

    out: Tensor
    """(batch, queries, heads, value), normalised within the part; 0 where no key is visible."""
    lse: Tensor
    """(batch, queries, heads), natural log; -inf where no key is visible."""


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor,
    *,
    scale: float,
    accumulate: torch.dtype,
    round_weights: bool,
) -> Partial:
    """Softmax attention over one part of the keys.

    Args:
        q: (batch, queries, heads, qk).
        k: (batch, keys, heads or 1, qk); 1 is shared by all heads (absorbed form).
        v: (batch, keys, heads or 1, value).
        mask: (batch, queries, keys).
        scale: softmax scale.
        accumulate: dtype of scores, sums and result.
        round_weights: round exp(s - max) to the dtype of ``v`` before the second
            product, as matrix units with bf16 operands need; sums stay wide.
    """
    heads = q.shape[-2]
    wide_k = k.to(accumulate).expand(-1, -1, heads, -1).permute(0, 2, 3, 1)
    scores = (q.to(accumulate).transpose(1, 2) @ wide_k) * scale
    scores = scores.masked_fill(~mask.unsqueeze(1), -math.inf)
    top = (
        scores.amax(-1, keepdim=True)
        if scores.shape[-1]
        else scores.new_full((*scores.shape[:-1], 1), -math.inf)
    )
    shifted = (scores - top.masked_fill(top == -math.inf, 0.0)).exp()
    total = shifted.sum(-1, keepdim=True)
    if round_weights:
        shifted = shifted.to(v.dtype).to(accumulate)
    wide_v = v.to(accumulate).expand(-1, -1, heads, -1).transpose(1, 2)
    out = (shifted @ wide_v) / total.masked_fill(total == 0, 1.0)
    lse = (top + total.log()).squeeze(-1)
    return Partial(out.transpose(1, 2), lse.transpose(1, 2))


def key_parts(keys: int, splits: int) -> list[slice]:
    """Contiguous, near-equal parts of ``keys``; empty parts stay, as a fixed grid leaves them."""
    bounds = [keys * i // splits for i in range(splits + 1)]
    return [slice(a, b) for a, b in pairwise(bounds)]


def merge_partials(parts: Sequence[Partial], *, fault: str | None = None) -> Partial:
    """Combine parts by their log-sum-exp: ``out = sum_i softmax(lse)_i out_i``, base e.

    With fault ``LC-01`` the parts arrive in base 2 (``lse / ln 2``) while this
    merge stays base e, as when a kernel's convention was not read.
    """
    out = torch.stack([p.out for p in parts])
    lse = torch.stack([p.lse for p in parts])
    if fault == "LC-01":
        lse = lse / math.log(2)
    top = lse.amax(0)
    safe = top.masked_fill(top == -math.inf, 0.0)
    weight = (lse - safe).exp()
    total = weight.sum(0)
    merged = (weight.unsqueeze(-1) * out).sum(0) / total.masked_fill(total == 0, 1.0).unsqueeze(-1)
    return Partial(merged, total.log() + safe)
