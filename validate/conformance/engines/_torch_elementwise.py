"""Our gate, convolution, residual mix, router, activation and norm, in torch eager, float32 inside."""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as nnf

from validate.models.ops import attention_residual_mix, rms_norm as model_norm, situ as model_situ

__all__ = [
    "attn_res",
    "kda_gate",
    "moe_combine",
    "moe_route",
    "rms_norm",
    "shifted_sum",
    "short_conv",
    "short_conv_grouped",
    "situ",
]


def kda_gate(
    f: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor, lower_bound: float
) -> tuple[Tensor, Tensor]:
    """Log decay ``L sigmoid(exp(A_log) (f + dt_bias))`` and ``beta = sigmoid(b)``, float32."""
    rate = a_log.float().exp().unsqueeze(-1)
    decay = lower_bound * torch.sigmoid(rate * (f.float() + dt_bias.float()))
    return decay, torch.sigmoid(b.float())


Filter = Callable[[Tensor, Tensor], Tensor]
"""Window (taps + tokens, channels) and weight (channels, kernel): SiLU of the sums, float32."""


def shifted_sum(window: Tensor, weight: Tensor) -> Tensor:
    """One product and one addition a tap."""
    tokens = window.shape[0] - weight.shape[1] + 1
    total = torch.zeros((tokens, window.shape[1]), device=window.device)
    for tap in range(weight.shape[1]):
        total = total + window[tap : tap + tokens].float() * weight[:, tap].float()
    return nnf.silu(total)


def _grouped(window: Tensor, weight: Tensor) -> Tensor:
    """The framework's grouped convolution."""
    x = window.float().T.unsqueeze(0)
    total = nnf.conv1d(x, weight.float().unsqueeze(1), groups=weight.shape[0])
    return nnf.silu(total.squeeze(0).T)


def short_conv(
    x: Tensor,
    weight: Tensor,
    state: Tensor | None,
    cu_seqlens: Tensor,
    *,
    convolve: Filter = shifted_sum,
) -> tuple[Tensor, Tensor]:
    """``short_conv``, sequence by sequence."""
    taps = weight.shape[1] - 1
    y = torch.zeros_like(x)
    remembered = []
    for n, (start, end) in enumerate(pairwise(cu_seqlens.tolist())):
        before = x.new_zeros((taps, x.shape[1])) if state is None else state[n].T
        window = torch.cat([before, x[start:end]])
        if end > start:
            y[start:end] = convolve(window, weight).to(x.dtype)
        remembered.append(window[window.shape[0] - taps :].T)
    return y, torch.stack(remembered).contiguous()


def short_conv_grouped(
    x: Tensor, weight: Tensor, state: Tensor | None, cu_seqlens: Tensor
) -> tuple[Tensor, Tensor]:
    """``short_conv`` by the framework's convolution."""
    return short_conv(x, weight, state, cu_seqlens, convolve=_grouped)


def attn_res(bank: Tensor, prefix: Tensor, norm: Tensor, proj: Tensor, eps: float) -> Tensor:
    """The reference path's residual mix; a fresh copy of the prefix when the bank is empty."""
    candidates = [*bank, prefix]
    mixed = attention_residual_mix(
        candidates, norm.float(), proj.float(), eps=eps, accumulate=torch.float32
    )
    return mixed.clone()


def moe_route(
    logits: Tensor,
    correction_bias: Tensor,
    top_k: int,
    renormalize: bool,  # noqa: FBT001  the name in the contract
    scale: float,
    valid_rows: int,
) -> tuple[Tensor, Tensor]:
    """Sigmoid router in float32, lowest index first among equals, padded rows masked."""
    share = torch.sigmoid(logits.float())
    scores = share + correction_bias
    ids = scores.sort(dim=-1, descending=True, stable=True).indices[:, :top_k]
    weights = share.gather(1, ids)
    if renormalize:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    ids, weights = ids.to(torch.int32), weights * scale
    ids[valid_rows:], weights[valid_rows:] = -1, 0.0
    return ids, weights


def moe_combine(
    made: Tensor,
    ids: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    shared: Tensor | None,
) -> Tensor:
    """Weighted sum over the experts of a row, float32; slots with id -1 are skipped."""
    rows = made.float()
    if bias is not None:
        rows = rows + bias.float()[ids.clamp_min(0).long()]
    taken = ids.unsqueeze(-1) >= 0
    total = torch.where(taken, weights.unsqueeze(-1) * rows, 0.0).sum(1)
    if shared is not None:
        total = total + shared.float()
    return total.to(made.dtype)


def situ(gate: Tensor, up: Tensor, beta: float, linear_beta: float) -> Tensor:
    """The reference path's activation."""
    return model_situ(gate, up, beta=beta, linear_beta=linear_beta, accumulate=torch.float32)


def rms_norm(x: Tensor, weight: Tensor, eps: float, gate: Tensor | None) -> Tensor:
    """The reference path's norm, times ``sigmoid(gate)`` before the one rounding."""
    if gate is None:
        return model_norm(x, weight, eps=eps, accumulate=torch.float32)
    normed = model_norm(x.float(), weight, eps=eps, accumulate=torch.float32)
    return (normed * torch.sigmoid(gate.float())).to(x.dtype)
