"""The training form of the model: the same layers, with fused attention and one op for the scan.

The delta rule, gates, router and norms are `validate.models`' own functions;
what differs from `validate.models.forward` is only how the work is grouped
for one fixed-length, stateless pass. `train.py` checks the two against each
other before the first step.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as nnf

from validate.models import kda
from validate.models.model import layer_weights
from validate.models.moe import dense_mlp, route
from validate.models.ops import attention_residual_mix, linear, rms_norm, situ
from validate.models.options import PathOptions
from validate.schema import ModelConfig

Weights = Mapping[str, Tensor]


@torch.library.custom_op("k3nano::scan", mutates_args=())
def scan(transition: Tensor, update: Tensor) -> Tensor:
    """States before each chunk, from a zero state: (rows, chunks, key, value)."""
    before = torch.empty_like(update)
    before[:, 0] = 0
    state = torch.zeros_like(update[:, 0])
    for n in range(update.shape[1] - 1):
        state = torch.baddbmm(update[:, n], transition[:, n], state)
        before[:, n + 1] = state
    return before


@scan.register_fake
def _(transition: Tensor, update: Tensor) -> Tensor:
    return torch.empty_like(update)


@torch.library.custom_op("k3nano::scan_backward", mutates_args=())
def scan_backward(transition: Tensor, grad_before: Tensor) -> Tensor:
    """Gradient of every ``update``; that of ``transition`` follows by one product."""
    grad = torch.zeros_like(grad_before)
    flow = torch.zeros_like(grad_before[:, 0])
    for n in range(grad_before.shape[1] - 1, 0, -1):
        if n == grad_before.shape[1] - 1:
            flow = grad_before[:, n].clone()
        else:
            flow = torch.baddbmm(grad_before[:, n], transition[:, n].mT, flow)
        grad[:, n - 1] = flow
    return grad


@scan_backward.register_fake
def _(transition: Tensor, grad_before: Tensor) -> Tensor:
    return torch.empty_like(grad_before)


def _setup(ctx, inputs, output) -> None:
    ctx.save_for_backward(inputs[0], output)


def _backward(ctx, grad_before: Tensor) -> tuple[Tensor, Tensor]:
    transition, before = ctx.saved_tensors
    grad_update = scan_backward(transition, grad_before.contiguous())
    return grad_update @ before.mT, grad_update


scan.register_autograd(_backward, setup_context=_setup)


def chunked(inputs: kda.KdaInputs, chunk: int) -> Tensor:
    """`kda.chunk_delta_rule` from a zero state, with the scan as one op."""
    heads = inputs.q.shape[1]

    def fused(transition: Tensor, update: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        before = scan(transition.flatten(0, 1).contiguous(), update.flatten(0, 1).contiguous())
        return before.unflatten(0, (-1, heads)), update[:, :, 0]

    return kda.chunk_delta_rule(inputs, inputs.q.new_zeros(1), chunk=chunk, scan=fused)[0]


def kda_layer(x: Tensor, w: Weights, config: ModelConfig, options: PathOptions) -> Tensor:
    """One KDA layer from an empty state."""
    acc = options.accumulate
    history = x.new_zeros(x.shape[0], 3, config.heads * config.kda_head_dim, config.conv_kernel - 1)
    valid = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    inputs, _ = kda.kda_inputs(x, history, valid, w, config=config, options=options)
    out = chunked(inputs, options.kda_chunk).transpose(1, 2).to(x.dtype)
    normed = rms_norm(out.to(acc), w["o_norm.weight"], eps=config.rms_norm_eps, accumulate=acc)
    gate = torch.sigmoid(linear(x, w["g.weight"]).to(acc))
    return linear((normed.flatten(2) * gate).to(x.dtype), w["o.weight"])


def mla_layer(x: Tensor, w: Weights, config: ModelConfig, options: PathOptions) -> Tensor:
    """One MLA layer from an empty cache, through the fused attention of torch."""
    acc, eps, heads = options.accumulate, config.mla_norm_eps, config.heads
    q = linear(
        rms_norm(linear(x, w["q_a.weight"]), w["q_a_norm.weight"], eps=eps, accumulate=acc),
        w["q_b.weight"],
    )
    latent, extra = linear(x, w["kv_a.weight"]).split(
        [config.kv_lora_rank, config.qk_rope_head_dim], dim=-1
    )
    latent = rms_norm(latent, w["kv_a_norm.weight"], eps=eps, accumulate=acc)
    per_head = linear(latent, w["kv_b.weight"]).unflatten(-1, (heads, -1))
    k_nope, v = per_head.split([config.qk_nope_head_dim, config.v_head_dim], dim=-1)
    k = torch.cat([k_nope, extra.unsqueeze(2).expand(-1, -1, heads, -1)], dim=-1)
    v = nnf.pad(v, (0, config.qk_head_dim - config.v_head_dim))
    q, k, v = (t.transpose(1, 2) for t in (q.unflatten(-1, (heads, -1)), k, v))
    out = nnf.scaled_dot_product_attention(q, k, v, is_causal=True, scale=config.attention_scale)
    out = out.transpose(1, 2)[..., : config.v_head_dim].flatten(2)
    gate = torch.sigmoid(linear(x, w["g.weight"]).to(acc))
    return linear((out.to(acc) * gate).to(x.dtype), w["o.weight"])


def moe_layer(
    x: Tensor, w: Weights, config: ModelConfig, options: PathOptions
) -> tuple[Tensor, Tensor]:
    """Latent experts with the router's weights folded into the hidden units; also each expert's load."""
    acc = options.accumulate
    routing = route(x, w, config=config, options=options)
    share = torch.zeros_like(routing.scores).scatter(-1, routing.ids, routing.weights)
    load = (share.detach() > 0).float().mean((0, 1))
    z = linear(x, w["down.weight"])
    gate, up = (linear(z, w[f"experts.{n}"].flatten(0, 1)) for n in ("gate", "up"))
    hidden = situ(
        gate, up, beta=config.situ_beta, linear_beta=config.situ_linear_beta, accumulate=acc
    )
    hidden = (hidden.unflatten(-1, (config.experts, -1)) * share.unsqueeze(-1).to(x.dtype)).flatten(
        2
    )
    routed = linear(hidden, w["experts.down"].transpose(0, 1).flatten(1))
    routed = rms_norm(routed, w["norm.weight"], eps=config.rms_norm_eps, accumulate=acc)
    shared = dense_mlp(x, w, prefix="shared.", config=config, options=options)
    return linear(routed, w["up.weight"]) + shared, load


def normed_mix(
    candidates: list[Tensor],
    norm: Tensor,
    proj: Tensor,
    weight: Tensor,
    config: ModelConfig,
    options: PathOptions,
) -> Tensor:
    """Attention-residual mix and the ordinary norm after it."""
    eps, acc = config.rms_norm_eps, options.accumulate
    mixed = attention_residual_mix(candidates, norm, proj, eps=eps, accumulate=acc)
    return rms_norm(mixed, weight, eps=eps, accumulate=acc)


class Layers:
    """The layer functions, each compiled once and used by every layer of its kind."""

    def __init__(self, *, compiled: bool) -> None:
        def made(function: Callable[..., Any]) -> Callable[..., Any]:
            return torch.compile(function, dynamic=False) if compiled else function

        self.mla, self.kda, self.moe = made(mla_layer), made(kda_layer), made(moe_layer)
        self.mix, self.mlp = made(normed_mix), made(dense_mlp)


PLAIN = Layers(compiled=False)


def training_logits(
    weights: Weights,
    tokens: Tensor,
    config: ModelConfig,
    options: PathOptions,
    layers: Layers = PLAIN,
    hidden: list[Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Logits (batch, tokens, vocab) and expert loads (MoE layers, experts).

    With ``hidden`` each layer's hidden state (batch, tokens, hidden) is appended to it.
    """

    def normed(value: Tensor, site: str, norm: str) -> Tensor:
        return layers.mix(
            [*bank, value],
            weights[f"{site}.norm.weight"],
            weights[f"{site}.proj.weight"],
            weights[norm],
            config,
            options,
        )

    bank: list[Tensor] = []
    loads = []
    prefix = weights["embed.weight"][tokens].to(options.dtype)
    for i in range(config.layers):
        x = normed(prefix, f"layers.{i}.attn_res", f"layers.{i}.input_norm.weight")
        kind, form = ("mla", layers.mla) if i in config.mla_layers else ("kda", layers.kda)
        attended = form(x, layer_weights(weights, f"layers.{i}.{kind}."), config, options)
        if i % config.attn_res_block == 0:
            bank.append(prefix)
            prefix = attended
        else:
            prefix = prefix + attended
        x = normed(prefix, f"layers.{i}.mlp_res", f"layers.{i}.post_norm.weight")
        if i == 0:
            made = layers.mlp(
                x,
                layer_weights(weights, "layers.0.mlp."),
                prefix="",
                config=config,
                options=options,
            )
        else:
            made, load = layers.moe(x, layer_weights(weights, f"layers.{i}.moe."), config, options)
            loads.append(load)
        prefix = prefix + made
        if hidden is not None:
            hidden.append(prefix)
    final = normed(prefix, "output_res", "final_norm.weight")
    return linear(final, weights["lm_head.weight"]), torch.stack(loads)
