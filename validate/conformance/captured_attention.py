"""Captured activations of k3-nano for attention sweeps: made by one command, read by the operations.

    python -m validate.conformance.captured_attention golden/k3-nano/weights/seed1.safetensors

runs the float64 oracle over a fixed text and stores what its last MLA layer was given, in bfloat16.
"""

import argparse
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import torch
from safetensors.torch import load_file, save_file

from validate.conformance.arrays import to_numpy, to_torch
from validate.oracle import forward, load_weights, mla_weights, rms_norm
from validate.schema import ModelConfig

__all__ = ["LATENT", "NOPE", "ROPE", "captured", "main"]

HERE = Path(__file__).parent / "ops" / "captured_attention.safetensors"
TEXT = b"id K7Q2-XJ41 | 17 + 25 = 42 | ((a[b]{c})) | sort 9 3 5 -> 3 5 9 | recall id: K7Q2-XJ41 |"
LAYER = 8
LATENT, NOPE, ROPE = 64, 32, 16
"""Widths of k3-nano's latent, of a head's own key part and of the shared one."""


@cache
def captured() -> dict[str, np.ndarray]:
    """Queries, keys and values of one layer over one text, bfloat16.

    Returns:
        ``q`` [tokens, 12, 48], ``k`` [tokens, 12, 48], ``v`` [tokens, 12, 32],
        ``q_latent`` [tokens, 12, 80], ``kv`` [tokens, 80].
    """
    return {name: to_numpy(tensor) for name, tensor in load_file(HERE).items()}


def _activations(weights_file: Path, config_file: Path) -> dict[str, np.ndarray]:
    config = ModelConfig.model_validate_json(config_file.read_text(encoding="utf-8"))
    weights = load_weights(weights_file)
    run = forward([256, *TEXT], weights, config)
    w, x = mla_weights(weights, LAYER), run.layers[LAYER].attn_in
    rows, eps = len(x), config.mla_norm_eps
    q = (rms_norm(x @ w.q_a.T, w.q_a_norm, eps=eps) @ w.q_b.T).reshape(rows, config.heads, -1)
    entry = x @ w.kv_a.T
    latent = rms_norm(entry[:, :LATENT], w.kv_a_norm, eps=eps)
    kv = np.concatenate([latent, entry[:, LATENT:]], axis=1)
    up = w.kv_b.reshape(config.heads, -1, LATENT)
    per_head = np.einsum("tl,hnl->thn", latent, up)
    shared = np.broadcast_to(kv[:, None, LATENT:], (rows, config.heads, ROPE))
    absorbed = np.einsum("thn,hnl->thl", q[..., :NOPE], up[:, :NOPE])
    return {
        "q": q,
        "k": np.concatenate([per_head[..., :NOPE], shared], axis=-1),
        "v": per_head[..., NOPE:],
        "q_latent": np.concatenate([absorbed, q[..., NOPE:]], axis=-1),
        "kv": kv,
    }


def main(arguments: list[str] | None = None) -> None:
    """Make the file again."""
    parser = argparse.ArgumentParser(description="Captured activations of k3-nano for attention")
    parser.add_argument("weights", type=Path)
    parser.add_argument("--config", type=Path, default=Path("golden/k3-nano/config.json"))
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args(arguments)
    found = _activations(options.weights, options.config)
    tensors: dict[str, torch.Tensor] = {
        name: to_torch(array.astype(ml_dtypes.bfloat16)) for name, array in found.items()
    }
    save_file(tensors, options.out)


if __name__ == "__main__":
    main()
