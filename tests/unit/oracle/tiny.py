"""A small model with every kind of layer, and random inputs that make every term count."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validate.oracle import weight_shapes
from validate.schema import ModelConfig

Array = NDArray[np.float64]

TINY = ModelConfig(
    name="tiny",
    vocab_size=19,
    tokenizer_length=17,
    hidden_size=10,
    layers=5,
    heads=3,
    mla_layers=(1, 4),
    q_lora_rank=7,
    kv_lora_rank=5,
    qk_nope_head_dim=4,
    qk_rope_head_dim=3,
    v_head_dim=6,
    kda_head_dim=4,
    kda_gate_rank=3,
    attn_res_block=2,
    dense_intermediate=9,
    experts=6,
    experts_per_token=2,
    latent_size=5,
    expert_intermediate=4,
    shared_intermediate=7,
)
"""Block closes at layers 0, 2 and 4; layer 4 is MLA and closes a block, as in no other test."""


def random_weights(config: ModelConfig = TINY, seed: int = 0) -> dict[str, Array]:
    """Weights of unit scale; norms near 1; biases large enough to change choices."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in weight_shapes(config).items():
        draw = rng.standard_normal(shape)
        if name.endswith("norm.weight"):
            weights[name] = 1.0 + 0.3 * draw
        elif name.endswith("correction_bias"):
            weights[name] = 0.2 * draw
        elif len(shape) == 1 or name == "embed.weight":
            weights[name] = draw
        else:
            weights[name] = draw / np.sqrt(shape[-1])
    return weights


def kda_inputs(
    seed: int = 0, *, tokens: int = 11, heads: int = 2, key: int = 5, value: int = 4
) -> dict[str, Any]:
    """Inputs of ``kda``; some keys and queries are so short that the norm's eps matters."""
    rng = np.random.default_rng(seed)
    size = np.where(rng.random((tokens, heads, 1)) < 0.3, 1e-3, 1.0)
    return {
        "q": size * rng.standard_normal((tokens, heads, key)),
        "k": size[::-1] * rng.standard_normal((tokens, heads, key)),
        "v": rng.standard_normal((tokens, heads, value)),
        "f": 2.0 * rng.standard_normal((tokens, heads, key)),
        "b": rng.standard_normal((tokens, heads)),
        "a_log": rng.standard_normal(heads),
        "dt_bias": rng.standard_normal((heads, key)),
        "state": rng.standard_normal((heads, key, value)),
    }


def mla_inputs(
    seed: int = 0, *, rows: int = 6, past: int = 4, heads: int = 3, config: ModelConfig = TINY
) -> tuple[Array, dict[str, Array], Array]:
    """Rows, MLA matrices by field name and a cache; some rows are so small that the eps matters."""
    rng = np.random.default_rng(seed)
    d, latent, rope = config.hidden_size, config.kv_lora_rank, config.qk_rope_head_dim
    nope, value, rank = config.qk_nope_head_dim, config.v_head_dim, config.q_lora_rank

    def matrix(out: int, width: int) -> Array:
        return np.asarray(rng.standard_normal((out, width)) / np.sqrt(width))

    weights = {
        "q_a": matrix(rank, d),
        "q_a_norm": 1.0 + 0.3 * rng.standard_normal(rank),
        "q_b": 1.5 * matrix(heads * (nope + rope), rank),
        "kv_a": matrix(latent + rope, d),
        "kv_a_norm": 1.0 + 0.3 * rng.standard_normal(latent),
        "kv_b": matrix(heads * (nope + value), latent),
        "g": matrix(heads * value, d),
        "o": matrix(d, heads * value),
    }
    x = rng.standard_normal((rows, d)) * np.where(np.arange(rows) % 3 == 1, 1e-3, 1.0)[:, None]
    return x, weights, rng.standard_normal((past, latent + rope))


def worst_error(actual: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """Greatest |actual - expected| over a name, by the greatest |expected|; inf where not finite."""
    assert actual.keys() == expected.keys()
    errors = [0.0]
    for name, e in expected.items():
        a = actual[name]
        assert a.shape == e.shape, f"{name}: {a.shape}, expected {e.shape}"
        error = float(np.abs(a - e).max() / np.abs(e).max())
        errors.append(error if np.isfinite(error) else np.inf)
    return max(errors)
