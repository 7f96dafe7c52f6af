"""Weights: names and shapes of an architecture, random initialisation, files in and out."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from validate.errors import InputError
from validate.schema import ModelConfig

__all__ = [
    "KEEP_FLOAT32",
    "initialise",
    "load_named",
    "load_weights",
    "save_weights",
    "weight_shapes",
]

KEEP_FLOAT32 = ("A_log", "dt_bias", "correction_bias")
"""Stored in float32; all else in bfloat16."""


def _attention_shapes(c: ModelConfig, layer: int) -> dict[str, tuple[int, ...]]:
    d = c.hidden_size
    if layer in c.mla_layers:
        p = f"layers.{layer}.mla."
        return {
            p + "q_a.weight": (c.q_lora_rank, d),
            p + "q_a_norm.weight": (c.q_lora_rank,),
            p + "q_b.weight": (c.heads * c.qk_head_dim, c.q_lora_rank),
            p + "kv_a.weight": (c.kv_lora_rank + c.qk_rope_head_dim, d),
            p + "kv_a_norm.weight": (c.kv_lora_rank,),
            p + "kv_b.weight": (c.heads * (c.qk_nope_head_dim + c.v_head_dim), c.kv_lora_rank),
            p + "g.weight": (c.heads * c.v_head_dim, d),
            p + "o.weight": (d, c.heads * c.v_head_dim),
        }
    p, wide = f"layers.{layer}.kda.", c.heads * c.kda_head_dim
    shapes: dict[str, tuple[int, ...]] = {}
    for name in "qkv":
        shapes[p + f"{name}.weight"] = (wide, d)
        shapes[p + f"{name}_conv.weight"] = (wide, c.conv_kernel)
    return shapes | {
        p + "f_a.weight": (c.kda_gate_rank, d),
        p + "f_b.weight": (wide, c.kda_gate_rank),
        p + "A_log": (c.heads,),
        p + "dt_bias": (wide,),
        p + "b.weight": (c.heads, d),
        p + "g.weight": (wide, d),
        p + "o_norm.weight": (c.kda_head_dim,),
        p + "o.weight": (d, wide),
    }


def _feed_forward_shapes(c: ModelConfig, layer: int) -> dict[str, tuple[int, ...]]:
    d = c.hidden_size
    if layer == 0:
        p, wide = "layers.0.mlp.", c.dense_intermediate
        return {
            p + "gate.weight": (wide, d),
            p + "up.weight": (wide, d),
            p + "down.weight": (d, wide),
        }
    p = f"layers.{layer}.moe."
    return {
        p + "router.weight": (c.experts, d),
        p + "correction_bias": (c.experts,),
        p + "down.weight": (c.latent_size, d),
        p + "experts.gate": (c.experts, c.expert_intermediate, c.latent_size),
        p + "experts.up": (c.experts, c.expert_intermediate, c.latent_size),
        p + "experts.down": (c.experts, c.latent_size, c.expert_intermediate),
        p + "norm.weight": (c.latent_size,),
        p + "up.weight": (d, c.latent_size),
        p + "shared.gate.weight": (c.shared_intermediate, d),
        p + "shared.up.weight": (c.shared_intermediate, d),
        p + "shared.down.weight": (d, c.shared_intermediate),
    }


def weight_shapes(
    config: ModelConfig, *, layers: tuple[int, ...] | None = None
) -> dict[str, tuple[int, ...]]:
    """Every weight's shape by name; with ``layers`` those of the named layers alone."""
    d = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in range(config.layers) if layers is None else layers:
        p = f"layers.{layer}."
        for site in ("attn_res", "mlp_res"):
            shapes |= {p + f"{site}.norm.weight": (d,), p + f"{site}.proj.weight": (d,)}
        shapes |= {p + "input_norm.weight": (d,), p + "post_norm.weight": (d,)}
        shapes |= _attention_shapes(config, layer) | _feed_forward_shapes(config, layer)
    if layers is None:
        shapes |= {"embed.weight": (config.vocab_size, d), "lm_head.weight": (config.vocab_size, d)}
        shapes |= {
            "output_res.norm.weight": (d,),
            "output_res.proj.weight": (d,),
            "final_norm.weight": (d,),
        }
    return shapes


def _initial(name: str, shape: tuple[int, ...], rng: torch.Generator, depth: int) -> Tensor:
    if name.endswith(("A_log", "correction_bias", "_res.proj.weight")):
        return torch.zeros(shape)
    if name.endswith("dt_bias"):
        return (
            torch.rand(shape, generator=rng) * 6.0 - 7.0
        )  # log decays from -0.005 to -1.3 per token
    if len(shape) == 1:
        return torch.ones(shape)
    fan_in = shape[-1]
    scale = fan_in**-0.5
    if name == "embed.weight":
        scale = 1.0
    elif name.endswith((".o.weight", "down.weight", "experts.down", "moe.up.weight")):
        scale *= (2 * depth) ** -0.5
    return torch.randn(shape, generator=rng).mul(scale)


def initialise(
    config: ModelConfig, *, seed: int, layers: tuple[int, ...] | None = None
) -> dict[str, Tensor]:
    """Random float32 weights, the same on every machine for the same seed."""
    rng = torch.Generator().manual_seed(seed)
    shapes = weight_shapes(config, layers=layers)
    return {name: _initial(name, shape, rng, config.layers) for name, shape in shapes.items()}


def save_weights(weights: Mapping[str, Tensor], path: Path, *, metadata: Mapping[str, str]) -> None:
    """Round to bfloat16 (``KEEP_FLOAT32`` aside) and write one safetensors file."""
    rounded = {
        name: w.detach()
        .cpu()
        .to(torch.float32 if name.endswith(KEEP_FLOAT32) else torch.bfloat16)
        .contiguous()
        for name, w in weights.items()
    }
    save_file(rounded, path, metadata=dict(metadata))


def load_weights(
    path: Path, config: ModelConfig, *, dtype: torch.dtype, device: str | torch.device
) -> dict[str, Tensor]:
    """Read weights, check names and shapes, and widen them to where they are used.

    On a CPU bfloat16 weights are held as float32 (exact), see ``ops.linear``;
    float64 holds the same values too.

    Raises:
        InputError: the file is no safetensors file, or names or shapes differ from ``config``.
    """
    return load_named(path, weight_shapes(config), name=config.name, dtype=dtype, device=device)


def load_named(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    *,
    name: str,
    dtype: torch.dtype,
    device: str | torch.device,
) -> dict[str, Tensor]:
    """``load_weights`` of any network; ``shapes`` by name, ``name`` is the network's.

    Raises:
        InputError: the file is no safetensors file, or names or shapes differ.
    """
    try:
        raw = load_file(path, device="cpu")
    except (OSError, SafetensorError) as error:
        msg = f"weights {path}: cannot be read as safetensors ({error}); check the file's sha256"
        raise InputError(msg) from error
    missing, extra = sorted(shapes.keys() - raw.keys()), sorted(raw.keys() - shapes.keys())
    unlike = [n for n in shapes.keys() & raw.keys() if tuple(raw[n].shape) != shapes[n]]
    if missing or extra or unlike:
        msg = (
            f"weights {path}: not those of {name}: {len(missing)} missing {missing[:3]}, "
            f"{len(extra)} extra {extra[:3]}, {len(unlike)} of another shape {sorted(unlike)[:3]}"
        )
        raise InputError(msg)
    held = (
        torch.float32 if dtype is torch.bfloat16 and torch.device(device).type == "cpu" else dtype
    )
    return {
        key: w.to(
            device,
            torch.float32 if key.endswith(KEEP_FLOAT32) and held is torch.bfloat16 else held,
        )
        for key, w in raw.items()
    }
