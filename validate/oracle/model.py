"""The whole text model in float64: prefill, any chunking, decode and greedy decoding."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from validate.errors import InputError
from validate.oracle.attention import LayerState, attention_layer
from validate.oracle.attn_res import attn_res
from validate.oracle.moe import moe
from validate.oracle.records import Array, Routing
from validate.oracle.rms_norm import rms_norm
from validate.oracle.situ import situ_mlp
from validate.oracle.weights import moe_weights
from validate.schema import ModelConfig

__all__ = [
    "Forward",
    "Greedy",
    "LayerTrace",
    "forward",
    "forward_in_pieces",
    "greedy",
    "logits_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTrace:
    """What one layer computed for the rows of a forward pass."""

    attn_in: Float64[Array, "rows hidden"]
    out: Float64[Array, "rows heads value"]
    lse: Float64[Array, "rows heads"] | None
    hidden: Float64[Array, "rows hidden"]
    """Running prefix after the layer's FFN output was added."""
    routing: Routing | None
    """None in the dense layer 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """A forward pass over ``rows`` consecutive tokens."""

    layers: tuple[LayerTrace, ...]
    final: Float64[Array, "rows hidden"]
    """After the final norm; ``logits_of`` makes logits of it."""
    state: tuple[LayerState, ...]
    """Each layer's state after the last row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Greedy:
    """A greedy continuation, decoded one token at a time."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Natural-log probability of each token when it was taken."""


def forward(
    token_ids: Sequence[int],
    weights: Mapping[str, Array],
    config: ModelConfig,
    *,
    state: Sequence[LayerState] | None = None,
) -> Forward:
    """Forward pass of the Kimi-K3 text model over consecutive tokens.

    ``p`` is the running prefix and B the bank of closed ones. Layer i takes
    ``x = RMSNorm(mix(B, p))``; its attention output joins p, except that at
    ``i % attn_res_block == 0`` p first moves into B and restarts from that output.
    The FFN does the same with its own mix, always adding. Logits come from
    ``RMSNorm(mix(B, p))`` with the output mix.

    Args:
        token_ids: At least one id, in token order.
        weights: Float64 weights by name.
        config: The architecture.
        state: State of every layer after the tokens before these; none before when None.

    Returns:
        ``Forward`` with one row a token.

    Raises:
        InputError: ``token_ids`` is empty or holds an id outside the vocabulary.

    Source:
        ATOM and sglang ``models/kimi_k3.py``; Attention Residuals (arXiv 2603.15031). Proved
        against a second forward pass built of the sibling derivations
        (``tests/unit/oracle/second_model.py``).
    """
    ids = np.asarray(token_ids, dtype=np.int64)
    if ids.size == 0 or not (ids.min() >= 0 and ids.max() < config.vocab_size):
        msg = (
            f"oracle: token ids {list(token_ids)[:8]} ({ids.size} in all): the forward pass of "
            f"{config.name} takes one or more ids in 0..{config.vocab_size - 1}"
        )
        raise InputError(msg)
    before: Sequence[LayerState | None] = state if state is not None else [None] * config.layers
    bank: list[Array] = []
    p: Array = weights["embed.weight"][ids]
    layers, after = [], []
    for i in range(config.layers):
        x = _mixed_norm(bank, p, weights, f"layers.{i}.attn_res", f"layers.{i}.input_norm", config)
        attention = attention_layer(x, weights, config, i, state=before[i])
        if i % config.attn_res_block == 0:
            bank.append(p)
            p = attention.y
        else:
            p = p + attention.y
        z = _mixed_norm(bank, p, weights, f"layers.{i}.mlp_res", f"layers.{i}.post_norm", config)
        y, routing = _ffn(z, weights, config, i)
        p = p + y
        layers.append(
            LayerTrace(attn_in=x, out=attention.out, lse=attention.lse, hidden=p, routing=routing)
        )
        after.append(attention.state)
    final = _mixed_norm(bank, p, weights, "output_res", "final_norm", config)
    return Forward(layers=tuple(layers), final=final, state=tuple(after))


def _mixed_norm(
    bank: Sequence[Array],
    p: Array,
    weights: Mapping[str, Array],
    site: str,
    norm: str,
    config: ModelConfig,
) -> Array:
    """RMSNorm of the attention-residual mix at one site."""
    mixed = attn_res(
        bank,
        p,
        norm=weights[f"{site}.norm.weight"],
        proj=weights[f"{site}.proj.weight"],
        eps=config.rms_norm_eps,
    )
    return rms_norm(mixed, weights[f"{norm}.weight"], eps=config.rms_norm_eps)


def _ffn(
    z: Array, weights: Mapping[str, Array], config: ModelConfig, layer: int
) -> tuple[Array, Routing | None]:
    """Dense MLP in layer 0, mixture of experts in all others."""
    if layer == 0:
        y = situ_mlp(
            z,
            gate=weights["layers.0.mlp.gate.weight"],
            up=weights["layers.0.mlp.up.weight"],
            down=weights["layers.0.mlp.down.weight"],
            beta=config.situ_beta,
            linear_beta=config.situ_linear_beta,
        )
        return y, None
    mixture = moe(
        z,
        moe_weights(weights, layer),
        experts_per_token=config.experts_per_token,
        eps=config.rms_norm_eps,
        beta=config.situ_beta,
        linear_beta=config.situ_linear_beta,
    )
    return mixture.y, mixture.routing


def logits_of(
    final: Float64[Array, "rows hidden"], weights: Mapping[str, Array]
) -> Float64[Array, "rows vocab"]:
    """Logits of rows after the final norm: ``W_lm_head h``, untied, no cap and no scale.

    Args:
        final: ``Forward.final`` or some of its rows.
        weights: Float64 weights by name.

    Returns:
        Raw logits.

    Source:
        The published config (``tie_word_embeddings`` false); no soft-cap or logit
        scale is found in any public implementation.
    """
    logits: Array = final @ weights["lm_head.weight"].T
    return logits


def forward_in_pieces(
    token_ids: Sequence[int],
    weights: Mapping[str, Array],
    config: ModelConfig,
    *,
    lengths: Sequence[int],
) -> tuple[Forward, ...]:
    """Forward passes over consecutive pieces, each starting from the state of the one before.

    Args:
        token_ids: All tokens.
        weights: Float64 weights by name.
        config: The architecture.
        lengths: Tokens a piece, each at least 1; together all of ``token_ids``.

    Returns:
        One ``Forward`` a piece; the last carries the state after all tokens.

    Raises:
        InputError: The lengths do not add up, or a piece is empty.
    """
    if sum(lengths) != len(token_ids):
        msg = (
            f"oracle: pieces of {sum(lengths)} tokens in all, but there are {len(token_ids)} tokens"
        )
        raise InputError(msg)
    pieces: list[Forward] = []
    start = 0
    for length in lengths:
        state = pieces[-1].state if pieces else None
        part = token_ids[start : start + length]
        pieces.append(forward(part, weights, config, state=state))
        start += length
    return tuple(pieces)


def greedy(
    prompt: Sequence[int], weights: Mapping[str, Array], config: ModelConfig, *, steps: int
) -> Greedy:
    """Greedy decoding of exactly ``steps`` tokens after one prefill of ``prompt``.

    Each token costs one decode step: one KDA update and one appended KV row a
    layer. No token stops it; the lowest id wins a tie.

    Args:
        prompt: At least one token id.
        weights: Float64 weights by name.
        config: The architecture.
        steps: Tokens to take.

    Returns:
        ``Greedy`` with ``steps`` tokens.

    Raises:
        InputError: As ``forward``.
    """
    token_ids: list[int] = []
    logprobs: list[float] = []
    last = forward(prompt, weights, config)
    for step in range(steps):
        logits: NDArray[np.float64] = logits_of(last.final[-1:], weights)[0]
        token = int(np.argmax(logits))
        top = logits[token]
        token_ids.append(token)
        logprobs.append(float(-np.log(np.sum(np.exp(logits - top)))))
        if step + 1 < steps:
            last = forward([token], weights, config, state=last.state)
    return Greedy(token_ids=tuple(token_ids), logprobs=tuple(logprobs))
