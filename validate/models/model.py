"""The text model: layers in order, attention residuals between them, state that grows."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from validate.models.kda import KdaState, KdaSteps, kda_layer
from validate.models.mla import mla_layer
from validate.models.moe import dense_mlp, moe_layer
from validate.models.ops import attention_residual_mix, linear, rms_norm
from validate.models.options import PathOptions
from validate.models.trace import SILENT, Silent, Trace
from validate.schema import ModelConfig

__all__ = [
    "State",
    "Window",
    "commit",
    "empty_state",
    "forward",
    "forward_steps",
    "layer_weights",
    "take_rows",
]

Weights = Mapping[str, Tensor]
_WRITTEN_ROWS = 4
"""Rows that the write plan of ``SP-01`` covers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a batch of sequences carries between passes."""

    lengths: Tensor
    """(batch,) tokens consumed."""
    kv: Mapping[int, Tensor]
    """MLA layer -> latent cache (batch, keys, latent + rope)."""
    kda: Mapping[int, KdaState]


def take_rows(state: State, rows: Tensor) -> State:
    """The state of some sequences of a batch, in the order of ``rows``."""
    return State(
        lengths=state.lengths[rows],
        kv={layer: held[rows] for layer, held in state.kv.items()},
        kda={
            layer: KdaState(held.recurrent[rows], held.conv[rows])
            for layer, held in state.kda.items()
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What a decode pass of a few tokens leaves before anything of it is committed."""

    before: State
    kv: Mapping[int, Tensor]
    """The latent caches with every token of the pass written behind ``before``."""
    steps: Mapping[int, KdaSteps]
    """KDA layer -> snapshots after every token."""


def commit(window: Window, counts: Tensor, *, fault: str | None = None) -> State:
    """Keep the first ``counts[b]`` tokens of each row's window and roll the rest back.

    The latent caches keep what was written; rows behind a length are never read
    and are written over by the next pass.
    """
    return State(
        lengths=window.before.lengths + counts,
        kv=_written(window) if fault == "SP-01" else window.kv,
        kda={
            layer: steps.after(counts, window.before.kda[layer], fault=fault)
            for layer, steps in window.steps.items()
        },
    )


def _written(window: Window) -> dict[int, Tensor]:
    """SP-01: the write plan covers four rows; what lay behind them before the pass stays."""
    made = {}
    for layer, kv in window.kv.items():
        old = kv.new_zeros(kv.shape)
        held = window.before.kv[layer]
        old[:, : held.shape[1]] = held
        place = torch.arange(kv.shape[1], device=kv.device)
        stale = place >= window.before.lengths.unsqueeze(1) + _WRITTEN_ROWS
        made[layer] = torch.where(stale.unsqueeze(-1), old, kv)
    return made


def empty_state(
    config: ModelConfig, options: PathOptions, *, batch: int, device: str | torch.device
) -> State:
    """State of ``batch`` sequences that have seen nothing."""
    width = config.kv_lora_rank + config.qk_rope_head_dim
    dim, heads = config.kda_head_dim, config.heads
    stored = torch.bfloat16 if options.state == "bf16" else options.accumulate
    kda = {
        layer: KdaState(
            torch.zeros(batch, heads, dim, dim, dtype=stored, device=device),
            torch.zeros(
                batch, 3, heads * dim, config.conv_kernel - 1, dtype=options.dtype, device=device
            ),
        )
        for layer in range(config.layers)
        if layer not in config.mla_layers
    }
    kv = {
        layer: torch.zeros(batch, 0, width, dtype=options.dtype, device=device)
        for layer in config.mla_layers
    }
    return State(lengths=torch.zeros(batch, dtype=torch.long, device=device), kv=kv, kda=kda)


def layer_weights(weights: Weights, prefix: str) -> dict[str, Tensor]:
    """The weights under ``prefix``, with names relative to it."""
    return {name.removeprefix(prefix): w for name, w in weights.items() if name.startswith(prefix)}


class _Pass:
    """One forward pass: the running prefix, the residual bank, and where things go."""

    def __init__(
        self,
        weights: Weights,
        config: ModelConfig,
        options: PathOptions,
        *,
        state: State,
        lengths: Tensor,
        decode: bool,
        trace: Trace | Silent,
    ) -> None:
        self.weights, self.config, self.options = weights, config, options
        self.state, self.lengths, self.decode, self.trace = state, lengths, decode, trace
        self.mode = "decode" if decode else "prefill"
        self.bank: list[Tensor] = []
        self.kv: dict[int, Tensor] = {}
        self.kda: dict[int, KdaState] = {}
        self.steps: dict[int, KdaSteps] = {}

    def mix(self, prefix: Tensor, site: str) -> Tensor:
        """The attention-residual mix at ``site``, before the ordinary norm."""
        return attention_residual_mix(
            [*self.bank, prefix],
            self.weights[f"{site}.norm.weight"],
            self.weights[f"{site}.proj.weight"],
            eps=self.config.rms_norm_eps,
            accumulate=self.options.accumulate,
        )

    def norm(self, x: Tensor, name: str) -> Tensor:
        """RMSNorm with the weight ``name``."""
        return rms_norm(
            x, self.weights[name], eps=self.config.rms_norm_eps, accumulate=self.options.accumulate
        )

    def attention(self, layer: int, x: Tensor) -> Tensor:
        """MLA or KDA, keeping the new state of the layer."""
        self.trace.emit(f"{self.mode}.attn.{layer}.in", x)
        if layer in self.config.mla_layers:
            out, self.kv[layer] = mla_layer(
                x,
                self.state.kv[layer],
                self.state.lengths,
                self.lengths,
                layer_weights(self.weights, f"layers.{layer}.mla."),
                config=self.config,
                options=self.options,
                decode=self.decode,
                place=f"{self.mode}.mla.{layer}",
                trace=self.trace,
            )
            return out
        out, self.kda[layer] = kda_layer(
            x,
            self.state.kda[layer],
            self.lengths,
            layer_weights(self.weights, f"layers.{layer}.kda."),
            config=self.config,
            options=self.options,
            decode=self.decode,
            place=f"{self.mode}.kda.{layer}",
            trace=self.trace,
            steps=self.steps,
            layer=layer,
        )
        return out

    def feed_forward(self, layer: int, x: Tensor) -> Tensor:
        """Dense MLP in layer 0, latent MoE elsewhere."""
        if layer == 0:
            return dense_mlp(
                x,
                layer_weights(self.weights, "layers.0.mlp."),
                prefix="",
                config=self.config,
                options=self.options,
            )
        return moe_layer(
            x,
            layer_weights(self.weights, f"layers.{layer}.moe."),
            config=self.config,
            options=self.options,
            place=f"{self.mode}.router.{layer}",
            trace=self.trace,
        )

    def layer(self, layer: int, prefix: Tensor) -> Tensor:
        """One layer: the prefix before it in, the prefix after it out."""
        mixed = self.mix(prefix, f"layers.{layer}.attn_res")
        attended = self.attention(layer, self.norm(mixed, f"layers.{layer}.input_norm.weight"))
        if layer % self.config.attn_res_block == 0:
            self.bank.append(prefix)
            prefix = attended
        else:
            prefix = prefix + attended
        mixed = self.mix(prefix, f"layers.{layer}.mlp_res")
        made = self.feed_forward(layer, self.norm(mixed, f"layers.{layer}.post_norm.weight"))
        prefix = prefix + made
        if self.options.fault == "ND-13" and not self.decode and self._closes_last(layer):
            self.bank[-1] = made  # the slot is scratch still, though a prefix lies there
        self.trace.emit(f"{self.mode}.hidden.{layer}", prefix)
        return prefix

    def _closes_last(self, layer: int) -> bool:
        """Whether this layer fills the last slot of the bank."""
        block = self.config.attn_res_block
        return layer == (self.config.layers - 1) // block * block

    def logits(self, tokens: Tensor) -> Tensor:
        """Every layer and the head over (batch, tokens) ids."""
        prefix = self.weights["embed.weight"][tokens].to(self.options.dtype)
        for layer in range(self.config.layers):
            prefix = self.layer(layer, prefix)
        final = self.norm(self.mix(prefix, "output_res"), "final_norm.weight")
        return linear(final, self.weights["lm_head.weight"])


def forward(
    weights: Weights,
    tokens: Tensor,
    *,
    config: ModelConfig,
    options: PathOptions,
    state: State | None = None,
    lengths: Tensor | None = None,
    decode: bool = False,
    trace: Trace | Silent = SILENT,
) -> tuple[Tensor, State]:
    """Run tokens through the model after ``state``.

    Args:
        weights: name -> tensor as in ``docs/model.md``.
        tokens: (batch, tokens) ids, right-padded where rows are ragged.
        config: dimensions.
        options: path and form.
        state: what the rows have seen; None for nothing.
        lengths: (batch,) real tokens of each row; None for all.
        decode: True for the decode form (one or few tokens a row).
        trace: records branches and tensors.

    Returns:
        Logits (batch, tokens, vocab) in the working dtype (rows past a row's
        length are meaningless) and the state after the real tokens.
    """
    batch, count = tokens.shape
    if state is None:
        state = empty_state(config, options, batch=batch, device=tokens.device)
    if lengths is None:
        lengths = torch.full((batch,), count, device=tokens.device)
    run = _Pass(weights, config, options, state=state, lengths=lengths, decode=decode, trace=trace)
    logits = run.logits(tokens)
    return logits, State(lengths=state.lengths + lengths, kv=run.kv, kda=run.kda)


def forward_steps(
    weights: Weights,
    tokens: Tensor,
    *,
    config: ModelConfig,
    options: PathOptions,
    state: State,
    trace: Trace | Silent = SILENT,
) -> tuple[Tensor, Window]:
    """Run a window of tokens, all real, through the decode form and keep every step's state.

    Returns:
        Logits (batch, tokens, vocab) and the window, for ``commit``.
    """
    lengths = torch.full_like(state.lengths, tokens.shape[1])
    run = _Pass(weights, config, options, state=state, lengths=lengths, decode=True, trace=trace)
    logits = run.logits(tokens)
    return logits, Window(before=state, kv=run.kv, steps=run.steps)
