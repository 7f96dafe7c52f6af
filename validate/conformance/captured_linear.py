"""Captured activations of k3-nano for linear-attention sweeps: made by one command, read by the operations.

    python -m validate.conformance.captured_linear golden/k3-nano/weights/seed1.safetensors

runs the float64 oracle over a fixed text and stores what its operations were given: KDA, its
convolution, gate and output norm at one layer, the router and the shared expert's activation at
the same layer, and the last residual mix. Activations are bfloat16, gates and router float32.
"""

import argparse
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import torch
from safetensors.torch import load_file, save_file

from validate.conformance.arrays import to_numpy, to_torch
from validate.oracle import (
    Array,
    Forward,
    KdaWeights,
    forward,
    kda_weights,
    load_weights,
    moe_weights,
    rms_norm,
    short_conv,
)
from validate.schema import ModelConfig

__all__ = ["LAYER", "TOKENS", "captured", "main"]

HERE = Path(__file__).parent / "ops" / "captured_linear.safetensors"
TEXT = b"id K7Q2-XJ41 | 17 + 25 = 42 | sort 9 3 5 -> 3 5 9 | recall id: K7"
LAYER = 6
"""The last KDA layer: its outputs have the heaviest tails (kurtosis 77)."""
TOKENS = len(TEXT) + 1
_WIDE = frozenset({"kda.b", "kda.a_log", "kda.dt_bias", "route.logits", "route.bias"})
"""What serving keeps in float32."""


@cache
def captured() -> dict[str, np.ndarray]:
    """Arguments by ``operation.argument``, ``TOKENS`` rows each.

    Returns:
        ``kda.{q,k,v,f}`` [tokens, 12, 16], ``kda.b`` [tokens, 12], ``kda.{a_log,dt_bias}``;
        ``conv.{x,weight}`` of the key projection, 192 channels; ``norm.{x,gate}`` [tokens, 12, 16],
        ``norm.weight``; ``route.{logits,bias}``, 16 experts; ``situ.{gate,up}`` [tokens, 96];
        ``mix.bank`` [3, tokens, 256], ``mix.{prefix,norm,proj}``.
    """
    return {name: to_numpy(tensor) for name, tensor in load_file(HERE).items()}


def _activations(weights_file: Path, config_file: Path) -> dict[str, Array]:
    config = ModelConfig.model_validate_json(config_file.read_text(encoding="utf-8"))
    weights = load_weights(weights_file)
    ids = [256, *TEXT]
    run = forward(ids, weights, config)
    w = kda_weights(weights, LAYER)
    found = _kda(run, w, heads=config.heads)
    x = _ffn_input(run, weights, config)
    moe = moe_weights(weights, LAYER)
    shared = {"gate": x @ moe.shared_gate.T, "up": x @ moe.shared_up.T}
    found |= {f"situ.{name}": array for name, array in shared.items()}
    found |= {"route.logits": x @ moe.router.T, "route.bias": moe.correction_bias}
    embedded = weights["embed.weight"][np.array(ids)]
    found |= {
        "mix.bank": np.stack([embedded, run.layers[3].hidden, run.layers[7].hidden]),
        "mix.prefix": run.layers[8].hidden,
        "mix.norm": weights["output_res.norm.weight"],
        "mix.proj": weights["output_res.proj.weight"],
    }
    return found


def _kda(run: Forward, w: KdaWeights, *, heads: int) -> dict[str, Array]:
    x, out = run.layers[LAYER].attn_in, run.layers[LAYER].out
    rows = len(x)
    raw = {"q": (x @ w.q.T, w.q_conv), "k": (x @ w.k.T, w.k_conv), "v": (x @ w.v.T, w.v_conv)}
    found = {
        f"kda.{name}": short_conv(*pair).y.reshape(rows, heads, -1) for name, pair in raw.items()
    }
    return found | {
        "kda.f": (x @ w.f_a.T @ w.f_b.T).reshape(rows, heads, -1),
        "kda.b": x @ w.b.T,
        "kda.a_log": w.a_log,
        "kda.dt_bias": w.dt_bias.reshape(heads, -1),
        "conv.x": raw["k"][0],
        "conv.weight": w.k_conv,
        "norm.x": out,
        "norm.gate": (x @ w.g.T).reshape(rows, heads, -1),
        "norm.weight": w.o_norm,
    }


def _ffn_input(run: Forward, weights: dict[str, Array], config: ModelConfig) -> Array:
    """A stand-in for the layer's MoE input: its hidden rows through its own norm."""
    scale = weights[f"layers.{LAYER}.post_norm.weight"]
    return rms_norm(run.layers[LAYER].hidden, scale, eps=config.rms_norm_eps)


def main(arguments: list[str] | None = None) -> None:
    """Make the file again."""
    parser = argparse.ArgumentParser(description="Captured activations of k3-nano for KDA and MoE")
    parser.add_argument("weights", type=Path)
    parser.add_argument("--config", type=Path, default=Path("golden/k3-nano/config.json"))
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args(arguments)
    tensors: dict[str, torch.Tensor] = {}
    for name, array in _activations(options.weights, options.config).items():
        dtype = np.float32 if name in _WIDE else ml_dtypes.bfloat16
        tensors[name] = to_torch(np.ascontiguousarray(array).astype(dtype))
    save_file(tensors, options.out)


if __name__ == "__main__":
    main()
