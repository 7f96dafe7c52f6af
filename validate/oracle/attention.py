"""One attention layer of the model, from its input rows: the truth for introduced error."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float64
from numpy.typing import NDArray

from validate.errors import InputError
from validate.oracle.kda import kda
from validate.oracle.mla import mla
from validate.oracle.records import Array
from validate.oracle.rms_norm import rms_norm
from validate.oracle.short_conv import short_conv
from validate.oracle.sigmoid import sigmoid
from validate.oracle.weights import kda_weights, mla_weights
from validate.schema import ModelConfig

__all__ = ["LayerOutput", "LayerState", "attention_layer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerState:
    """What one attention layer remembers: ``kda`` and ``conv`` of a KDA layer, ``kv`` of MLA."""

    kda: Float64[Array, "heads key value"] | None = None
    """Recurrent state, key first."""
    conv: Float64[Array, "qkv channels taps"] | None = None
    """Last inputs of the q, k and v convolutions, oldest first."""
    kv: Float64[Array, "tokens latent"] | None = None
    """Normed latent, then k_pe, one row a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOutput:
    """What one attention layer gives for its input rows."""

    out: Float64[Array, "rows heads value"]
    """MLA: output before the output gate. KDA: S^T q, before norm and gate."""
    lse: Float64[Array, "rows heads"] | None
    """MLA: natural-log LSE of the scaled scores. KDA: None."""
    y: Float64[Array, "rows hidden"]
    """Layer output, through gate and output projection."""
    state: LayerState
    """After the last row."""


def attention_layer(
    x: Float[NDArray[Any], "rows hidden"],
    weights: Mapping[str, Array],
    config: ModelConfig,
    layer: int,
    *,
    state: LayerState | None = None,
) -> LayerOutput:
    """The attention of ``layer`` in float64 on the rows that a path captured as its input.

    Applied to each side's own captured ``MODE.attn.{layer}.in`` it gives what an
    exact kernel would have made of those rows; the distance of the captured
    output from it is that side's *introduced* error.

    Args:
        x: Input rows after the pre-norm, any float dtype (widened exactly), for
            consecutive positions that start where ``state`` ends, or at 0.
        weights: Float64 weights by name.
        config: The architecture.
        layer: 0-based layer; MLA where ``config.mla_layers`` says so, else KDA.
        state: The layer's state before the first row; empty when None.

    Returns:
        ``LayerOutput`` in float64.

    Raises:
        InputError: ``layer`` is outside the model, or ``x`` holds NaN or infinities.

    Source:
        ``mla`` and ``kda``; the fact that ``out`` is taken before gate and norm is the
        capture format's (``docs/oracle.md``).
    """
    if not 0 <= layer < config.layers:
        msg = f"attention_layer: layer {layer} is outside 0..{config.layers - 1} of {config.name}"
        raise InputError(msg)
    wide: Array = np.asarray(x).astype(np.float64)
    bad = np.argwhere(~np.isfinite(wide))
    if len(bad) > 0:
        row, channel = (int(i) for i in bad[0])
        msg = (
            f"attention_layer: layer {layer} input holds {len(bad)} NaN or infinite values, first at "
            f"row {row} channel {channel}; its exact output is undefined"
            "\n  do next: look at the non-finite gates first"
        )
        raise InputError(msg)
    before = state if state is not None else LayerState()
    if layer in config.mla_layers:
        return _mla_layer(wide, weights, config, layer, before)
    return _kda_layer(wide, weights, config, layer, before)


def _mla_layer(
    x: Array, weights: Mapping[str, Array], config: ModelConfig, layer: int, state: LayerState
) -> LayerOutput:
    result = mla(
        x,
        mla_weights(weights, layer),
        heads=config.heads,
        nope=config.qk_nope_head_dim,
        rope=config.qk_rope_head_dim,
        eps=config.mla_norm_eps,
        past=state.kv,
    )
    return LayerOutput(out=result.out, lse=result.lse, y=result.y, state=LayerState(kv=result.kv))


def _kda_layer(
    x: Array, weights: Mapping[str, Array], config: ModelConfig, layer: int, state: LayerState
) -> LayerOutput:
    """Projections, short convolutions, recurrence, gated norm and output projection."""
    w = kda_weights(weights, layer)
    rows, heads = len(x), config.heads
    conv = (None, None, None) if state.conv is None else state.conv
    q = short_conv(x @ w.q.T, w.q_conv, state=conv[0])
    k = short_conv(x @ w.k.T, w.k_conv, state=conv[1])
    v = short_conv(x @ w.v.T, w.v_conv, state=conv[2])
    result = kda(
        q=q.y.reshape(rows, heads, -1),
        k=k.y.reshape(rows, heads, -1),
        v=v.y.reshape(rows, heads, -1),
        f=(x @ w.f_a.T @ w.f_b.T).reshape(rows, heads, -1),
        b=x @ w.b.T,
        a_log=w.a_log,
        dt_bias=w.dt_bias.reshape(heads, -1),
        lower_bound=config.gate_lower_bound,
        state=state.kda,
    )
    normed = rms_norm(result.out, w.o_norm, eps=config.rms_norm_eps).reshape(rows, -1)
    y = (normed * sigmoid(x @ w.g.T)) @ w.o.T
    after = LayerState(kda=result.state, conv=np.stack([q.state, k.state, v.state]))
    return LayerOutput(out=result.out, lse=None, y=y, state=after)
