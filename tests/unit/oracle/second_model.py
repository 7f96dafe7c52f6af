"""A second forward pass: whole sequence at once, built of the sibling derivations alone.

The residual stream is kept as the list of all sub-layer outputs, and every
candidate of an attention residual is summed anew from that list, where the
oracle carries a bank and a running prefix.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tests.unit.oracle.second import (
    Array,
    conv_by_channel,
    logistic,
    mix_by_rows,
    moe_dense,
    norm_by_length,
    segments,
    situ_by_exponentials,
)
from validate.oracle.kda_chunk import kda_chunk
from validate.oracle.mla_absorbed import mla_absorbed
from validate.oracle.records import MlaWeights
from validate.schema import ModelConfig


class Second(NamedTuple):
    """Everything of the second forward pass that the tests compare."""

    logits: Array
    attn_in: list[Array]
    out: list[Array]
    lse: list[Array | None]
    hidden: list[Array]
    share: list[Array]
    kda: dict[int, Array]
    conv: dict[int, Array]
    kv: dict[int, Array]


def second_forward(
    token_ids: Sequence[int], weights: Mapping[str, Array], config: ModelConfig
) -> Second:
    """Forward pass over all of ``token_ids`` from the fact sheet, by other means."""
    s = Second(np.zeros(0), [], [], [], [], [], {}, {}, {})
    closes = range(0, config.layers, config.attn_res_block)
    outputs = [weights["embed.weight"][list(token_ids)]]

    def normed(site: str, norm: str, starts: list[int]) -> Array:
        *bank, prefix = segments(outputs, starts)
        h = mix_by_rows(
            bank,
            prefix,
            norm=weights[f"{site}.norm.weight"],
            proj=weights[f"{site}.proj.weight"],
            eps=config.rms_norm_eps,
        )
        return norm_by_length(h, weights[f"{norm}.weight"], eps=config.rms_norm_eps)

    for i in range(config.layers):
        w = {
            name.removeprefix(f"layers.{i}."): array
            for name, array in weights.items()
            if name.startswith(f"layers.{i}.")
        }
        # Output 2j + 1 is the attention of layer j, output 2j + 2 its FFN.
        before = [0] + [2 * j + 1 for j in closes if j < i]
        s.attn_in.append(normed(f"layers.{i}.attn_res", f"layers.{i}.input_norm", before))
        layer = _mla if i in config.mla_layers else _kda
        outputs.append(layer(s.attn_in[i], w, config, s, i))
        after = [0] + [2 * j + 1 for j in closes if j <= i]
        z = normed(f"layers.{i}.mlp_res", f"layers.{i}.post_norm", after)
        outputs.append(_dense(z, w, config) if i == 0 else _moe(z, w, config, s))
        s.hidden.append(segments(outputs, after)[-1])
    final = normed("output_res", "final_norm", [0] + [2 * j + 1 for j in closes])
    return s._replace(logits=np.einsum("rd,vd->rv", final, weights["lm_head.weight"]))


def _mla(x: Array, w: Mapping[str, Array], config: ModelConfig, s: Second, i: int) -> Array:
    names = ("q_a", "q_a_norm", "q_b", "kv_a", "kv_a_norm", "kv_b", "g", "o")
    result = mla_absorbed(
        x,
        MlaWeights(**{name: w[f"mla.{name}.weight"] for name in names}),
        heads=config.heads,
        nope=config.qk_nope_head_dim,
        rope=config.qk_rope_head_dim,
        eps=config.mla_norm_eps,
    )
    s.out.append(result.out)
    s.lse.append(result.lse)
    s.kv[i] = result.kv
    return result.y


def _kda(x: Array, w: Mapping[str, Array], config: ModelConfig, s: Second, i: int) -> Array:
    shape = (len(x), config.heads, config.kda_head_dim)
    streams: dict[str, Any] = {}
    states = []
    for name in "qkv":
        y, state = conv_by_channel(x @ w[f"kda.{name}.weight"].T, w[f"kda.{name}_conv.weight"])
        streams[name] = y.reshape(shape)
        states.append(state)
    result = kda_chunk(
        **streams,
        f=(x @ (w["kda.f_b.weight"] @ w["kda.f_a.weight"]).T).reshape(shape),
        b=np.einsum("rd,hd->rh", x, w["kda.b.weight"]),
        a_log=w["kda.A_log"],
        dt_bias=w["kda.dt_bias"].reshape(config.heads, config.kda_head_dim),
        lower_bound=config.gate_lower_bound,
        chunk=5,
    )
    s.out.append(result.out)
    s.lse.append(None)
    s.kda[i], s.conv[i] = result.state, np.stack(states)
    gate = logistic(x @ w["kda.g.weight"].T).reshape(shape)
    normed = norm_by_length(result.out, w["kda.o_norm.weight"], eps=config.rms_norm_eps)
    return np.asarray(
        np.einsum("rn,dn->rd", (normed * gate).reshape(len(x), -1), w["kda.o.weight"])
    )


def _dense(z: Array, w: Mapping[str, Array], config: ModelConfig) -> Array:
    inner = situ_by_exponentials(
        z @ w["mlp.gate.weight"].T,
        z @ w["mlp.up.weight"].T,
        beta=config.situ_beta,
        linear_beta=config.situ_linear_beta,
    )
    return inner @ w["mlp.down.weight"].T


def _moe(z: Array, w: Mapping[str, Array], config: ModelConfig, s: Second) -> Array:
    y, share = moe_dense(
        z,
        router=w["moe.router.weight"],
        correction_bias=w["moe.correction_bias"],
        down=w["moe.down.weight"],
        gate=w["moe.experts.gate"],
        up=w["moe.experts.up"],
        out=w["moe.experts.down"],
        norm=w["moe.norm.weight"],
        expand=w["moe.up.weight"],
        shared=(
            w["moe.shared.gate.weight"],
            w["moe.shared.up.weight"],
            w["moe.shared.down.weight"],
        ),
        k=config.experts_per_token,
        eps=config.rms_norm_eps,
        beta=config.situ_beta,
        linear_beta=config.situ_linear_beta,
    )
    s.share.append(share)
    return y
