"""Weights for the oracle: reading them, checking them, and picking one layer's."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike

from validate.errors import InputError
from validate.oracle.records import Array, KdaWeights, MlaWeights, MoeWeights
from validate.schema import ModelConfig

__all__ = [
    "check_weights",
    "kda_weights",
    "load_weights",
    "mla_weights",
    "moe_weights",
    "weight_shapes",
]

_DTYPES: Mapping[str, DTypeLike] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
}
_HEADER_LIMIT = 100_000_000
"""Bytes; the limit that the safetensors library itself keeps for its JSON header."""


def load_weights(path: Path) -> dict[str, Array]:
    """Every tensor of a safetensors file, widened to float64.

    Args:
        path: A safetensors file with float64, float32, float16 or bfloat16 tensors.

    Returns:
        Tensors by name, in file order; widening is exact.

    Raises:
        InputError: The file is missing, is no safetensors file, is cut short,
            holds another dtype, or holds a NaN or an infinity.

    Source:
        The safetensors format: 8 bytes little-endian header length, JSON header
        with dtype, shape and data_offsets, then the data.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        msg = f"weights {path}: cannot be read: {reason}\n  do next: check the path"
        raise InputError(msg) from error
    header, data = _split_header(raw, path=path)
    return {
        name: _tensor(entry, data, where=f"weights {path}: tensor {name!r}")
        for name, entry in header.items()
        if name != "__metadata__"
    }


def _split_header(raw: bytes, *, path: Path) -> tuple[dict[str, Any], memoryview]:
    size = int.from_bytes(raw[:8], "little")
    if not (len(raw) >= 8 and size <= min(_HEADER_LIMIT, len(raw) - 8)):
        msg = (
            f"weights {path}: no safetensors file, or cut short: its first 8 bytes announce a "
            f"header of {size} bytes, the file has {len(raw)}\n  do next: fetch the file again"
        )
        raise InputError(msg)
    try:
        header = json.loads(raw[8 : 8 + size])
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        msg = f"weights {path}: the safetensors header is no JSON ({error})\n  do next: fetch the file again"
        raise InputError(msg) from error
    if not isinstance(header, dict):
        msg = f"weights {path}: the safetensors header is a {type(header).__name__}, not an object"
        raise InputError(msg)
    return header, memoryview(raw)[8 + size :]


def _tensor(entry: Any, data: memoryview, *, where: str) -> Array:
    try:
        code, shape = str(entry["dtype"]), tuple(int(n) for n in entry["shape"])
        begin, end = (int(n) for n in entry["data_offsets"])
    except (TypeError, KeyError, ValueError) as error:
        msg = f"{where}: its header entry lacks dtype, shape or data_offsets: {entry!r}"
        raise InputError(msg) from error
    if code not in _DTYPES:
        msg = f"{where} has dtype {code}; the oracle reads {', '.join(_DTYPES)}"
        raise InputError(msg)
    dtype = np.dtype(_DTYPES[code])
    fits = 0 <= begin <= end <= len(data) and all(n >= 0 for n in shape)
    if not (fits and end - begin == math.prod(shape) * dtype.itemsize):
        msg = (
            f"{where}: shape {shape} of {code} does not fit bytes {begin}..{end} of {len(data)}"
            "\n  do next: the file is damaged or cut short, fetch it again"
        )
        raise InputError(msg)
    stored = np.frombuffer(data[begin:end], dtype=dtype).reshape(shape)
    wide: Array = stored.astype(np.float64)
    bad = int(np.count_nonzero(~np.isfinite(wide)))
    if bad > 0:
        msg = f"{where} holds {bad} NaN or infinite values; an oracle over them would say nothing"
        raise InputError(msg)
    return wide


def weight_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every weight that a model of this configuration has.

    Args:
        config: The architecture.

    Returns:
        Shapes by name, in the order of the forward pass. Matrices are [out, in].
    """
    d = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {"embed.weight": (config.vocab_size, d)}
    for layer in range(config.layers):
        at = f"layers.{layer}."
        mixer = _mla_shapes(config) if layer in config.mla_layers else _kda_shapes(config)
        for site in ("attn_res.norm", "attn_res.proj", "input_norm"):
            shapes[f"{at}{site}.weight"] = (d,)
        shapes |= {at + name: shape for name, shape in mixer.items()}
        for site in ("mlp_res.norm", "mlp_res.proj", "post_norm"):
            shapes[f"{at}{site}.weight"] = (d,)
        ffn = _dense_shapes(config) if layer == 0 else _moe_shapes(config)
        shapes |= {at + name: shape for name, shape in ffn.items()}
    for site in ("output_res.norm", "output_res.proj", "final_norm"):
        shapes[f"{site}.weight"] = (d,)
    shapes["lm_head.weight"] = (config.vocab_size, d)
    return shapes


def _mla_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    d, heads, latent = config.hidden_size, config.heads, config.kv_lora_rank
    return {
        "mla.q_a.weight": (config.q_lora_rank, d),
        "mla.q_a_norm.weight": (config.q_lora_rank,),
        "mla.q_b.weight": (heads * config.qk_head_dim, config.q_lora_rank),
        "mla.kv_a.weight": (latent + config.qk_rope_head_dim, d),
        "mla.kv_a_norm.weight": (latent,),
        "mla.kv_b.weight": (heads * (config.qk_nope_head_dim + config.v_head_dim), latent),
        "mla.g.weight": (heads * config.v_head_dim, d),
        "mla.o.weight": (d, heads * config.v_head_dim),
    }


def _kda_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    d, heads = config.hidden_size, config.heads
    inner = heads * config.kda_head_dim
    shapes: dict[str, tuple[int, ...]] = {}
    for stream in "qkv":
        shapes[f"kda.{stream}.weight"] = (inner, d)
        shapes[f"kda.{stream}_conv.weight"] = (inner, config.conv_kernel)
    return shapes | {
        "kda.f_a.weight": (config.kda_gate_rank, d),
        "kda.f_b.weight": (inner, config.kda_gate_rank),
        "kda.A_log": (heads,),
        "kda.dt_bias": (inner,),
        "kda.b.weight": (heads, d),
        "kda.g.weight": (inner, d),
        "kda.o_norm.weight": (config.kda_head_dim,),
        "kda.o.weight": (d, inner),
    }


def _dense_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    d, inner = config.hidden_size, config.dense_intermediate
    return {
        "mlp.gate.weight": (inner, d),
        "mlp.up.weight": (inner, d),
        "mlp.down.weight": (d, inner),
    }


def _moe_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    d, latent, experts = config.hidden_size, config.latent_size, config.experts
    inter, shared = config.expert_intermediate, config.shared_intermediate
    return {
        "moe.router.weight": (experts, d),
        "moe.correction_bias": (experts,),
        "moe.down.weight": (latent, d),
        "moe.experts.gate": (experts, inter, latent),
        "moe.experts.up": (experts, inter, latent),
        "moe.experts.down": (experts, latent, inter),
        "moe.norm.weight": (latent,),
        "moe.up.weight": (d, latent),
        "moe.shared.gate.weight": (shared, d),
        "moe.shared.up.weight": (shared, d),
        "moe.shared.down.weight": (d, shared),
    }


def check_weights(weights: Mapping[str, Array], config: ModelConfig) -> None:
    """Refuse weights that are not exactly those of ``config``.

    Args:
        weights: Tensors by name.
        config: The architecture they should have.

    Raises:
        InputError: A name is missing or unknown, or a shape differs; all are
            counted and the first five of each kind named.
    """
    shapes = weight_shapes(config)
    wrong = [
        f"{name} {weights[name].shape} not {shape}"
        for name, shape in shapes.items()
        if name in weights and weights[name].shape != shape
    ]
    lists = {
        "missing": [name for name in shapes if name not in weights],
        "extra": [name for name in weights if name not in shapes],
        "wrong shape": wrong,
    }
    if any(lists.values()):
        counts = ", ".join(f"{len(names)} {kind}" for kind, names in lists.items())
        lines = [f"  {k:<11}: {', '.join(names[:5])}" for k, names in lists.items() if names]
        msg = f"weights do not fit configuration {config.name!r}: {counts} of {len(shapes)}"
        raise InputError("\n".join([msg, *lines]))


def mla_weights(weights: Mapping[str, Array], layer: int) -> MlaWeights:
    """The MLA matrices of one layer, by the names of ``weight_shapes``."""
    at = f"layers.{layer}.mla."
    return MlaWeights(
        q_a=weights[at + "q_a.weight"],
        q_a_norm=weights[at + "q_a_norm.weight"],
        q_b=weights[at + "q_b.weight"],
        kv_a=weights[at + "kv_a.weight"],
        kv_a_norm=weights[at + "kv_a_norm.weight"],
        kv_b=weights[at + "kv_b.weight"],
        g=weights[at + "g.weight"],
        o=weights[at + "o.weight"],
    )


def kda_weights(weights: Mapping[str, Array], layer: int) -> KdaWeights:
    """The KDA matrices of one layer, by the names of ``weight_shapes``."""
    at = f"layers.{layer}.kda."
    return KdaWeights(
        q=weights[at + "q.weight"],
        k=weights[at + "k.weight"],
        v=weights[at + "v.weight"],
        q_conv=weights[at + "q_conv.weight"],
        k_conv=weights[at + "k_conv.weight"],
        v_conv=weights[at + "v_conv.weight"],
        f_a=weights[at + "f_a.weight"],
        f_b=weights[at + "f_b.weight"],
        a_log=weights[at + "A_log"],
        dt_bias=weights[at + "dt_bias"],
        b=weights[at + "b.weight"],
        g=weights[at + "g.weight"],
        o_norm=weights[at + "o_norm.weight"],
        o=weights[at + "o.weight"],
    )


def moe_weights(weights: Mapping[str, Array], layer: int) -> MoeWeights:
    """The mixture-of-experts matrices of one layer, by the names of ``weight_shapes``."""
    at = f"layers.{layer}.moe."
    return MoeWeights(
        router=weights[at + "router.weight"],
        correction_bias=weights[at + "correction_bias"],
        down=weights[at + "down.weight"],
        expert_gate=weights[at + "experts.gate"],
        expert_up=weights[at + "experts.up"],
        expert_down=weights[at + "experts.down"],
        norm=weights[at + "norm.weight"],
        up=weights[at + "up.weight"],
        shared_gate=weights[at + "shared.gate.weight"],
        shared_up=weights[at + "shared.up.weight"],
        shared_down=weights[at + "shared.down.weight"],
    )
