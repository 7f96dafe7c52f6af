"""DSpark drafter: a parallel, non-causal backbone over a block, a Markov head, a confidence head.

The block is [anchor, MASK x (block - 1)]; position k predicts the token at
anchor + k + 1. Every backbone layer attends to the block and to the drafter's
own keys and values of the context, which are projected from the target's tapped
hidden states of the tokens before the anchor. Embedding and head are the
target's. The Markov head adds W_out W_in[previous token] to the logits, left to
right. Source of the structure: arXiv 2607.05147, deepseek-ai/DeepSpec.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor
from torch.nn import functional as nnf

from validate.errors import InputError
from validate.models.ops import linear, rms_norm
from validate.models.weights import load_named
from validate.schema import DraftConfig, ModelConfig

__all__ = [
    "ContextKv",
    "block_hidden",
    "block_logits",
    "confidence",
    "context_features",
    "context_kv",
    "draft_weight_shapes",
    "initialise_drafter",
    "load_draft_config",
    "load_drafter",
    "markov_bias",
]

Weights = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class ContextKv:
    """Rotated keys and values of the context, by layer: (batch, heads, tokens, head_dim)."""

    keys: Sequence[Tensor]
    values: Sequence[Tensor]


def draft_weight_shapes(draft: DraftConfig, target: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every weight's shape by name."""
    d, wide = target.hidden_size, draft.heads * draft.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "fuse.weight": (d, d * len(draft.taps)),
        "fuse_norm.weight": (d,),
        "mask": (d,),
    }
    for layer in range(draft.layers):
        p = f"layers.{layer}."
        shapes |= {p + f"{name}.weight": (wide, d) for name in "qkv"}
        shapes |= {
            p + "o.weight": (d, wide),
            p + "attn_norm.weight": (d,),
            p + "mlp_norm.weight": (d,),
            p + "gate.weight": (draft.intermediate, d),
            p + "up.weight": (draft.intermediate, d),
            p + "down.weight": (d, draft.intermediate),
        }
    return shapes | {
        "final_norm.weight": (d,),
        "markov.in.weight": (target.vocab_size, draft.markov_rank),
        "markov.out.weight": (target.vocab_size, draft.markov_rank),
        "confidence.weight": (1, d + draft.markov_rank),
        "confidence.bias": (1,),
    }


def initialise_drafter(draft: DraftConfig, target: ModelConfig, *, seed: int) -> dict[str, Tensor]:
    """Random float32 weights, the same on every machine for the same seed."""
    rng = torch.Generator().manual_seed(seed)

    def made(name: str, shape: tuple[int, ...]) -> Tensor:
        if name.endswith("bias") or name in {"markov.out.weight", "confidence.weight"}:
            return torch.zeros(shape)
        if name == "mask":
            return torch.randn(shape, generator=rng)
        if len(shape) == 1:
            return torch.ones(shape)
        scale = shape[-1] ** -0.5
        if name.endswith((".o.weight", ".down.weight")):
            scale *= (2 * draft.layers) ** -0.5
        return torch.randn(shape, generator=rng).mul(scale)

    return {n: made(n, s) for n, s in draft_weight_shapes(draft, target).items()}


def load_draft_config(path: Path) -> DraftConfig:
    """Read a drafter's dimensions.

    Raises:
        InputError: the file is missing or does not describe a drafter.
    """
    try:
        return DraftConfig.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        msg = f"drafter config {path}: {error}"
        raise InputError(msg) from error


def load_drafter(
    path: Path,
    draft: DraftConfig,
    target: ModelConfig,
    *,
    dtype: torch.dtype,
    device: str | torch.device,
) -> dict[str, Tensor]:
    """Read the drafter's weights, check names and shapes, and widen them to where they are used.

    Raises:
        InputError: the file cannot be read, is another network's, or a tap is no layer of the target.
    """
    outside = [tap for tap in draft.taps if not 0 <= tap < target.layers]
    if outside:
        msg = f"drafter {draft.name}: taps {outside} are no layers of {target.name} (0..{target.layers - 1})"
        raise InputError(msg)
    shapes = draft_weight_shapes(draft, target)
    return load_named(path, shapes, name=draft.name, dtype=dtype, device=device)


def _rotated(x: Tensor, positions: Tensor, theta: float, fault: str | None = None) -> Tensor:
    """Rotary position embedding; x (batch, heads, tokens, dim), positions (batch, tokens)."""
    half = x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angle = positions[:, None, :, None].float() * frequency
    if fault == "LC-07":  # the angle is formed in the model's dtype
        angle = (positions[:, None, :, None].bfloat16() * frequency.bfloat16()).float()
    cos, sin = angle.cos(), angle.sin()
    a, b = x.float().split(half, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)


def _norm(x: Tensor, weight: Tensor, draft: DraftConfig) -> Tensor:
    return rms_norm(x, weight, eps=draft.rms_norm_eps, accumulate=torch.float32)


def _by_head(x: Tensor, draft: DraftConfig) -> Tensor:
    split: Tensor = x.unflatten(-1, (draft.heads, draft.head_dim))
    return split.transpose(1, 2)


def context_features(weights: Weights, taps: Sequence[Tensor], *, draft: DraftConfig) -> Tensor:
    """Fused features (batch, tokens, hidden) of the tapped states, each (batch, tokens, hidden)."""
    return _norm(
        linear(torch.cat(list(taps), dim=-1), weights["fuse.weight"]),
        weights["fuse_norm.weight"],
        draft,
    )


def context_kv(
    weights: Weights,
    features: Tensor,
    positions: Tensor,
    *,
    draft: DraftConfig,
    fault: str | None = None,
) -> ContextKv:
    """Keys and values of the context tokens at ``positions`` (batch, tokens)."""
    keys, values = [], []
    for layer in range(draft.layers):
        p = f"layers.{layer}."
        k = _by_head(linear(features, weights[p + "k.weight"]), draft)
        keys.append(_rotated(k, positions, draft.rope_theta, fault))
        values.append(_by_head(linear(features, weights[p + "v.weight"]), draft))
    return ContextKv(keys, values)


def block_hidden(
    weights: Weights,
    embedding: Tensor,
    anchors: Tensor,
    positions: Tensor,
    context: ContextKv,
    allowed: Tensor,
    *,
    draft: DraftConfig,
    fault: str | None = None,
) -> Tensor:
    """The backbone over one or more blocks a row.

    Args:
        weights: the drafter's.
        embedding: the target's (vocab, hidden).
        anchors: (batch, blocks) ids of the last committed tokens.
        positions: (batch, blocks) their positions.
        context: keys and values of the context.
        allowed: bool, broadcastable to (batch, 1, blocks * block, tokens + blocks * block):
            which key each query may see.
        draft: dimensions.
        fault: ``SP-12`` or ``LC-07``, else None.

    Returns:
        (batch, blocks, block, hidden) after the final norm.
    """
    batch, blocks = anchors.shape
    first = embedding[anchors].unsqueeze(2)
    mask = weights["mask"].to(first.dtype).expand(batch, blocks, draft.block - 1, -1)
    x = torch.cat([first, mask], dim=2).flatten(1, 2)
    steps = torch.arange(draft.block, device=anchors.device)
    places = (positions.unsqueeze(-1) + steps).flatten(1)
    for layer in range(draft.layers):
        p = f"layers.{layer}."
        normed = _norm(x, weights[p + "attn_norm.weight"], draft)
        q, k, v = (_by_head(linear(normed, weights[p + f"{n}.weight"]), draft) for n in "qkv")
        q, k = (_rotated(t, places, draft.rope_theta, fault) for t in (q, k))
        out = nnf.scaled_dot_product_attention(
            q,
            torch.cat([context.keys[layer], k], dim=2),
            torch.cat([context.values[layer], v], dim=2),
            attn_mask=allowed,
        )
        x = x + linear(out.transpose(1, 2).flatten(2), weights[p + "o.weight"])
        normed = _norm(x, weights[p + "mlp_norm.weight"], draft)
        gate = nnf.silu(linear(normed, weights[p + "gate.weight"]))
        made = linear(gate * linear(normed, weights[p + "up.weight"]), weights[p + "down.weight"])
        dropped = fault == "SP-12" and layer == draft.layers - 1  # the residual, before the norm
        x = made if dropped else x + made
    final: Tensor = _norm(x, weights["final_norm.weight"], draft)
    by_block: Tensor = final.unflatten(1, (blocks, draft.block))
    return by_block


def block_logits(hidden: Tensor, lm_head: Tensor) -> Tensor:
    """Base logits (..., vocab) of backbone outputs, before the Markov bias; float32."""
    return linear(hidden, lm_head).float()


def markov_bias(weights: Weights, previous: Tensor) -> Tensor:
    """Bias (..., vocab) that the previous tokens (...) put on the next; float32."""
    inner = weights["markov.in.weight"][previous]
    return linear(inner, weights["markov.out.weight"]).float()


def confidence(weights: Weights, hidden: Tensor, previous: Tensor) -> Tensor:
    """Logit of the predicted acceptance (...,) of the token after ``previous``; float32."""
    inner = weights["markov.in.weight"][previous].to(hidden.dtype)
    both = torch.cat([hidden, inner], dim=-1)
    return (linear(both, weights["confidence.weight"]).squeeze(-1)).float() + weights[
        "confidence.bias"
    ].float()
