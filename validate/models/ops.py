"""Operations that every layer uses: linear, RMSNorm, SiTU, attention-residual mix."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as nnf

__all__ = ["attention_residual_mix", "linear", "linear_accumulate", "rms_norm", "situ"]


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """``x @ weight.T`` with operands in ``x.dtype``, wide accumulation, result in ``x.dtype``.

    On an accelerator this is the vendor's GEMM. On a CPU bfloat16 operands
    are widened to float32 first: they are exact there, so only the order of
    the float32 sum is the CPU's own, whatever instruction set it has.

    Args:
        x: shape (..., in).
        weight: shape (out, in); float32 weights hold bfloat16 values on a CPU.
    """
    if x.dtype is torch.bfloat16 and x.device.type == "cpu":
        return nnf.linear(x.float(), weight.float()).to(x.dtype)
    return nnf.linear(x, weight.to(x.dtype))


def linear_accumulate(x: Tensor, weight: Tensor, *, dtype: torch.dtype) -> Tensor:
    """``x @ weight.T`` computed and returned in ``dtype`` (router logits, KDA beta)."""
    return nnf.linear(x.to(dtype), weight.to(dtype))


def rms_norm(x: Tensor, weight: Tensor, *, eps: float, accumulate: torch.dtype) -> Tensor:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last axis, in ``accumulate``, rounded once."""
    wide = x.to(accumulate)
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * weight.to(accumulate)).to(x.dtype)


def situ(
    gate: Tensor, up: Tensor, *, beta: float, linear_beta: float, accumulate: torch.dtype
) -> Tensor:
    """SiTU: ``beta*tanh(g/beta)*sigmoid(g) * linear_beta*tanh(u/linear_beta)``, rounded once."""
    g, u = gate.to(accumulate), up.to(accumulate)
    bounded = beta * torch.tanh(g / beta) * torch.sigmoid(g)
    return (bounded * (linear_beta * torch.tanh(u / linear_beta))).to(gate.dtype)


def attention_residual_mix(
    candidates: Sequence[Tensor],
    norm: Tensor,
    proj: Tensor,
    *,
    eps: float,
    accumulate: torch.dtype,
) -> Tensor:
    """Mix the residual bank and the running prefix: softmax of <RMSNorm(c), proj> over candidates.

    Args:
        candidates: closed prefixes, then the running one; each (batch, tokens, hidden).
        norm: RMSNorm weight, shape (hidden,).
        proj: score vector, shape (hidden,).
        eps: of the RMSNorm.
        accumulate: dtype of scores (``norm`` and ``proj`` are widened first), softmax and mix.

    Returns:
        Mix of the raw candidates, shape (batch, tokens, hidden), in their dtype.
    """
    if len(candidates) == 1:
        return candidates[0]
    wide = torch.stack([c.to(accumulate) for c in candidates])
    scale = torch.rsqrt(wide.square().mean(-1) + eps)
    toward = norm.to(accumulate) * proj.to(accumulate)
    scores = (wide * toward).sum(-1) * scale
    weights = torch.softmax(scores, dim=0)
    return (weights.unsqueeze(-1) * wide).sum(0).to(candidates[0].dtype)
