"""PyTorch implementations of the filters and of drawing, by the rules that engines use."""

from functools import partial

import torch
from torch import Tensor

from validate.conformance.engines import _torch_formats, _torch_verify
from validate.conformance.records import Implementation
from validate.models.renorm import (
    TieRule,
    top_k_renorm_prob as model_top_k,
    top_p_renorm_prob as model_top_p,
)

__all__ = [
    "IMPLEMENTATIONS",
    "coins",
    "divided",
    "invert",
    "per_row",
    "sample",
    "sorted_min_p",
    "sorted_top_k",
    "sorted_top_p",
]

Parameter = Tensor | int | float
_MIX = (-0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)
"""Constants of splitmix64 as signed 64-bit numbers."""
_MANTISSA = 24


def per_row(value: Parameter, rows: Tensor, dtype: torch.dtype) -> Tensor:
    """A parameter as one number a row, [rows, 1]."""
    return torch.as_tensor(value, device=rows.device).to(dtype).expand(len(rows)).unsqueeze(1)


def divided(rows: Tensor, kept: Tensor) -> Tensor:
    """Kept entries over their sum; a row that keeps nothing is 0."""
    left = torch.where(kept, rows, 0.0)
    total = left.sum(1, keepdim=True)
    return torch.where(total > 0, left / total, 0.0)


def model_top_k_rule(probs: Tensor, top_k: Parameter, *, rule: TieRule) -> Tensor:
    """The model's top-k renorm, with the dtypes of the contract round it."""
    k = per_row(top_k, probs, torch.int32).squeeze(1)
    return model_top_k(probs.float(), k, rule=rule).to(probs.dtype)


def model_top_p_rule(probs: Tensor, top_p: Parameter, *, rule: TieRule) -> Tensor:
    """The model's top-p renorm, with the dtypes of the contract round it."""
    p = per_row(top_p, probs, torch.float32).squeeze(1)
    return model_top_p(probs.float(), p, rule=rule).to(probs.dtype)


def sorted_top_k(probs: Tensor, top_k: Parameter, *, off: bool = False) -> Tensor:
    """Pivot from a full sort; every entry at or above it stays; float32.

    Args:
        probs: [rows, vocab], any float dtype.
        top_k: k of each row or one for all.
        off: k <= 0 keeps the row, in place of the largest alone.
    """
    rows = probs.float()
    vocab = rows.shape[1]
    k = per_row(top_k, rows, torch.int64)
    if off:
        k = torch.where(k <= 0, vocab, k)
    falling = rows.sort(dim=1, descending=True).values
    pivot = falling.gather(1, k.clamp(1, vocab) - 1)
    return divided(rows, rows >= pivot)


def sorted_top_p(probs: Tensor, top_p: Parameter, *, relative: bool = True) -> Tensor:
    """Prefix of a full sort whose mass reaches p; every entry at or above its last stays.

    Args:
        probs: [rows, vocab], any float dtype; the result is float32.
        top_p: p of each row or one for all.
        relative: p of the row's own sum, in place of p itself.
    """
    rows = probs.float()
    p = per_row(top_p, rows, torch.float32).clamp(0.0, 1.0)
    falling = rows.sort(dim=1, descending=True).values
    before = torch.zeros_like(falling)
    before[:, 1:] = falling.cumsum(1)[:, :-1]
    target = p * rows.sum(1, keepdim=True) if relative else p
    inside = (before < target) | (p >= 1)
    last = inside.sum(1, keepdim=True).clamp(1) - 1
    return divided(rows, rows >= falling.gather(1, last))


def discarded_top_p(probs: Tensor, top_p: Parameter) -> Tensor:
    """As sglang on HIP: the smallest entries whose mass stays below 1 - p are dropped; float32."""
    rows = probs.float()
    p = per_row(top_p, rows, torch.float32).clamp(0.0, 1.0)
    rising = rows.sort(dim=1).values
    first = (rising.cumsum(1) < 1 - p).sum(1, keepdim=True).clamp(max=rows.shape[1] - 1)
    return divided(rows, rows >= rising.gather(1, first))


def sorted_min_p(probs: Tensor, min_p: Parameter) -> Tensor:
    """Threshold from the row's largest; float32."""
    rows = probs.float()
    share = per_row(min_p, rows, torch.float32).clamp(0.0, 1.0)
    return divided(rows, rows >= share * rows.amax(1, keepdim=True))


def invert(weights: Tensor, uniforms: Tensor) -> Tensor:
    """First id whose cumulative weight exceeds ``u * sum``, [rows] int64."""
    through = weights.cumsum(1)
    beyond = through > uniforms.unsqueeze(1) * through[:, -1:]
    last_positive = weights.shape[1] - 1 - (weights.flip(1) > 0).int().argmax(1)
    return torch.where(beyond.any(1), beyond.int().argmax(1), last_positive)


def coins(seeds: Tensor, step: int) -> Tensor:
    """A coin a row from (seed, step) alone, by splitmix64; rows of seed -1 from the global state."""
    jump = ((step + 1) * _MIX[0] + (1 << 63)) % (1 << 64) - (1 << 63)  # wrapped to 64 bits
    state = (seeds + jump) * _MIX[2]
    for shift, factor in ((30, _MIX[1]), (27, _MIX[2])):
        state = (state ^ ((state >> shift) & ((1 << (64 - shift)) - 1))) * factor
    state = state ^ ((state >> 31) & ((1 << 33) - 1))
    mixed = ((state >> 40) & ((1 << _MANTISSA) - 1)).float() / (1 << _MANTISSA)
    return torch.where(seeds == -1, torch.rand_like(mixed), mixed)


def filters(
    probs: Tensor, top_k: Parameter, top_p: Parameter, min_p: Parameter, *, joint: bool = False
) -> Tensor:
    """Top-k, top-p and min-p of each row; top-p counts what top-k left, or the whole row."""
    left = sorted_top_k(probs, top_k, off=True)
    if joint:
        nucleus = sorted_top_p(probs, top_p)
        left = divided(probs.float(), (left > 0) & (nucleus > 0))
    else:
        left = sorted_top_p(left, top_p)
    return sorted_min_p(left, min_p)


def sample(
    probs: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    *,
    uniforms: Tensor | None = None,
    seeds: Tensor | None = None,
    step: int = 0,
    seed: int | None = None,
    joint: bool = False,
) -> Tensor:
    """Filter, then invert the cumulative sum by coins, row seeds or one seed of the call."""
    if uniforms is None and seeds is not None:
        uniforms = coins(seeds, step)
    elif uniforms is None:
        generator = torch.Generator(probs.device).manual_seed(seed or 0)
        uniforms = torch.rand(len(probs), generator=generator, device=probs.device)
    return invert(filters(probs, top_k, top_p, min_p, joint=joint), uniforms)


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    Implementation(
        name="torch:all_ties",
        op="top_k_renorm_prob",
        function=partial(model_top_k_rule, rule="all"),
        title="PyTorch, threshold found bit by bit, every tie kept as on CUDA",
    ),
    Implementation(
        name="torch:exactly_k",
        op="top_k_renorm_prob",
        function=partial(model_top_k_rule, rule="exactly_k"),
        title="PyTorch, torch.topk and scatter, exactly k kept: the rewrite made for ROCm",
        emulates="sglang _dflash_top_k_renorm_prob",
        settings={"ties": "exactly_k"},
    ),
    Implementation(
        name="torch:sort",
        op="top_k_renorm_prob",
        function=sorted_top_k,
        title="PyTorch, pivot from a full sort, float32 out whatever comes in",
        emulates="sglang kernels/ops/sampling/renorm.py on HIP",
        settings={"output": "float32"},
    ),
    Implementation(
        name="torch:all_ties",
        op="top_p_renorm_prob",
        function=partial(model_top_p_rule, rule="all"),
        title="PyTorch, threshold found bit by bit, p against the mass as it came",
        settings={"mass": "absolute"},
    ),
    Implementation(
        name="torch:exactly_k",
        op="top_p_renorm_prob",
        function=partial(model_top_p_rule, rule="exactly_k"),
        title="PyTorch, sort, prefix and scatter: no more kept than needed",
        settings={"ties": "exactly_k", "mass": "absolute"},
    ),
    Implementation(
        name="torch:sort",
        op="top_p_renorm_prob",
        function=lambda probs, top_p: sorted_top_p(probs, top_p).to(probs.dtype),
        title="PyTorch, sort and cumulative sum, p of the row's own sum",
    ),
    Implementation(
        name="torch:hip_sort",
        op="top_p_renorm_prob",
        function=discarded_top_p,
        title="PyTorch, smallest entries dropped while their mass is below 1 - p, float32 out",
        emulates="sglang kernels/ops/sampling/renorm.py on HIP",
        settings={"mass": "discarded", "output": "float32"},
    ),
    Implementation(
        name="torch:threshold",
        op="min_p",
        function=lambda probs, min_p: sorted_min_p(probs, min_p).to(probs.dtype),
        title="PyTorch, threshold from the row's largest",
    ),
    Implementation(
        name="torch:inversion",
        op="sample",
        function=sample,
        title="PyTorch, filters and inversion of the cumulative sum by coins",
    ),
    Implementation(
        name="torch:joint",
        op="sample",
        function=partial(sample, joint=True),
        title="PyTorch, as torch:inversion, top-k and top-p both looking at the row as it came",
        settings={"order": "joint"},
    ),
    Implementation(
        name="torch:row_seeds",
        op="sample",
        function=sample,
        title="PyTorch, a counter-based coin of (seed, step) a row",
        settings={"random": "row_seeds"},
    ),
    Implementation(
        name="torch:generator",
        op="sample",
        function=sample,
        title="PyTorch, coins of one torch.Generator a call",
        settings={"random": "call_seed"},
    ),
    *_torch_verify.IMPLEMENTATIONS,
    *_torch_formats.IMPLEMENTATIONS,
)
