"""Latent mixture of experts: sigmoid router with correction bias, SiTU experts, shared expert."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from validate.models.ops import linear, linear_accumulate, rms_norm, situ
from validate.models.options import PathOptions
from validate.models.trace import Silent, Trace
from validate.schema import ModelConfig

__all__ = ["Routing", "dense_mlp", "experts_dense", "experts_grouped", "moe_layer", "route"]

DENSE_EXPERTS_UP_TO = 32
"""With few experts one batched product over all of them is faster than gathering tokens."""
_PUBLIC_BIAS = 7.0
"""Where the correction biases of ``MO-01``'s source lie; a constant moves no choice."""
_RANKS = 8
"""Ranks that each add the shared expert in ``MO-02``."""


class Routing(NamedTuple):
    """Which experts a token takes, (..., experts) and (..., choice)."""

    scores: Tensor
    """Selection scores, sigmoid + correction bias."""
    ids: Tensor
    weights: Tensor
    """Un-biased sigmoids of the chosen, divided by their sum."""


def route(
    x: Tensor, weights: Mapping[str, Tensor], *, config: ModelConfig, options: PathOptions
) -> Routing:
    """Top-k of sigmoid + bias, lowest index first among equals; weights without the bias."""
    sigmoid = torch.sigmoid(
        linear_accumulate(x, weights["router.weight"], dtype=options.accumulate)
    )
    bias = weights["correction_bias"].to(options.accumulate)
    if options.fault == "MO-01":  # stored in bfloat16, where public biases lie: about 7
        bias = (bias + _PUBLIC_BIAS).to(torch.bfloat16).to(bias.dtype) - _PUBLIC_BIAS
    scores = sigmoid + bias
    order = scores.sort(dim=-1, descending=True, stable=True).indices
    ids = order[..., : config.experts_per_token]
    if options.fault == "TV-12":  # the device's own top-k swaps the last two, one token in seven
        token = torch.arange(order.shape[-2], device=order.device).unsqueeze(-1)
        last = order[..., config.experts_per_token, None]
        ids = torch.cat([ids[..., :-1], torch.where(token % 7 == 0, last, ids[..., -1:])], dim=-1)
    picked = sigmoid.gather(-1, ids)
    return Routing(scores, ids, picked / (picked.sum(-1, keepdim=True) + 1e-20))


def _expert(
    z: Tensor, gate: Tensor, up: Tensor, down: Tensor, config: ModelConfig, acc: torch.dtype
) -> Tensor:
    hidden = situ(
        linear(z, gate),
        linear(z, up),
        beta=config.situ_beta,
        linear_beta=config.situ_linear_beta,
        accumulate=acc,
    )
    return linear(hidden, down)


def experts_grouped(
    z: Tensor,
    routing: Routing,
    weights: Mapping[str, Tensor],
    *,
    config: ModelConfig,
    options: PathOptions,
) -> Tensor:
    """Each expert on the tokens routed to it; sums in accumulation dtype, by expert index.

    Args:
        z: latent inputs (tokens, latent).
        routing: ids and weights (tokens, choice).
        weights: ``experts.gate|up`` (experts, inter, latent), ``experts.down`` (experts, latent, inter).
        config: dimensions.
        options: dtypes.
    """
    acc = options.accumulate
    total = z.new_zeros(z.shape, dtype=acc)
    for expert in torch.unique(routing.ids).tolist():
        token, choice = (routing.ids == expert).nonzero(as_tuple=True)
        made = _expert(
            z[token],
            weights["experts.gate"][expert],
            weights["experts.up"][expert],
            weights["experts.down"][expert],
            config,
            acc,
        )
        total.index_add_(0, token, made.to(acc) * routing.weights[token, choice].unsqueeze(-1))
    return total


def experts_dense(
    z: Tensor,
    routing: Routing,
    weights: Mapping[str, Tensor],
    *,
    config: ModelConfig,
    options: PathOptions,
) -> Tensor:
    """Every expert on every token as three batched products; same result and same sum order.

    What an unchosen expert made is dropped, not multiplied by zero: NaN and
    Inf weights of an expert nobody chose do not reach the result.
    """
    acc = options.accumulate
    share = torch.zeros_like(routing.scores).scatter(-1, routing.ids, routing.weights)
    unchosen = torch.ones_like(share, dtype=torch.bool).scatter(-1, routing.ids, value=False)
    experts, inter = config.experts, config.expert_intermediate
    gate = linear(z, weights["experts.gate"].flatten(0, 1))
    up = linear(z, weights["experts.up"].flatten(0, 1))
    hidden = situ(
        gate, up, beta=config.situ_beta, linear_beta=config.situ_linear_beta, accumulate=acc
    )
    hidden = hidden.unflatten(-1, (experts, inter)).transpose(0, 1)
    down = weights["experts.down"].to(hidden.dtype)
    if hidden.dtype is torch.bfloat16 and hidden.device.type == "cpu":
        made = (hidden.float() @ down.float().mT).to(hidden.dtype)
    else:
        made = hidden @ down.mT
    made = made.masked_fill(unchosen.T.unsqueeze(-1), 0.0)
    return torch.einsum("etl,te->tl", made.to(acc), share)


def dense_mlp(
    x: Tensor,
    weights: Mapping[str, Tensor],
    *,
    prefix: str,
    config: ModelConfig,
    options: PathOptions,
) -> Tensor:
    """Gated MLP with SiTU: layer 0 and the shared expert."""
    return _expert(
        x,
        weights[f"{prefix}gate.weight"],
        weights[f"{prefix}up.weight"],
        weights[f"{prefix}down.weight"],
        config,
        options.accumulate,
    )


def moe_layer(
    x: Tensor,
    weights: Mapping[str, Tensor],
    *,
    config: ModelConfig,
    options: PathOptions,
    place: str,
    trace: Trace | Silent,
) -> Tensor:
    """Routed latent experts plus the shared expert, on (batch, tokens, hidden).

    Args:
        x: normed input.
        weights: this layer's weights, names after ``moe.``.
        config: dimensions.
        options: dtypes.
        place: prefix of emitted tensors.
        trace: records the routing.
    """
    routing = route(x, weights, config=config, options=options)
    trace.emit(f"{place}.scores", routing.scores)
    trace.emit(f"{place}.ids", routing.ids)
    trace.emit(f"{place}.weights", routing.weights)
    flat = Routing(*(r.flatten(0, 1) for r in routing))
    z = linear(x, weights["down.weight"]).flatten(0, 1)
    if options.fault == "QU-05":
        weights = _interleaved(weights)
    form = experts_dense if config.experts <= DENSE_EXPERTS_UP_TO else experts_grouped
    routed = (
        form(z, flat, weights, config=config, options=options).to(x.dtype).view(*x.shape[:2], -1)
    )
    routed = rms_norm(
        routed, weights["norm.weight"], eps=config.rms_norm_eps, accumulate=options.accumulate
    )
    shared = dense_mlp(x, weights, prefix="shared.", config=config, options=options)
    if options.fault == "MO-02":  # replicated, and summed by the collective behind it
        shared = _RANKS * shared
    return linear(routed, weights["up.weight"]) + shared


def _interleaved(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """QU-05: rows of gate and up stored in turns, read as all of gate and then all of up."""
    gate, up = weights["experts.gate"], weights["experts.up"]
    stored = torch.stack([gate, up], dim=2).flatten(1, 2)
    read = stored.split(gate.shape[1], dim=1)
    return {**weights, "experts.gate": read[0], "experts.up": read[1]}
