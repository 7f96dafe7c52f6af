"""Every step of the model, each in float64 on what one side captured as that step's input.

The whole forward pass of ``validate.oracle.model`` tells what a side's numbers should be;
this tells what each of its operations should have made of what it was given. The distance is
the error that the operation itself introduced, whatever went wrong before it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.oracle.attention import LayerOutput, attention_layer
from validate.oracle.model import _ffn, _mixed_norm, logits_of
from validate.oracle.records import Array
from validate.oracle.rms_norm import rms_norm
from validate.oracle.sigmoid import sigmoid
from validate.oracle.weights import kda_weights, mla_weights
from validate.schema import ModelConfig

__all__ = ["MODULES", "Module", "OwnStep", "Rows", "own_steps"]

Module = Literal["AttnRes", "MLA", "KDA", "conv", "KV", "router", "MoE", "MLP", "head"]
MODULES: Mapping[str, str] = {
    "AttnRes": "residual mix and norm in front of the attention",
    "MLA": "latent attention",
    "KDA": "linear attention and its recurrent state",
    "conv": "history of the short convolutions",
    "KV": "latent cache",
    "router": "scores of the experts",
    "MoE": "output projection, experts and residual sum",
    "MLP": "output projection, dense MLP and residual sum",
    "head": "last norm and logits",
}
"""What a step stands for, in words."""
Rows = Callable[[str], NDArray[Any]]
"""A captured tensor by name."""
_HOWS = {"oneshot": "prefill", "chunked": "prefill", "decode": "decode"}
"""By way of making a state: the pass whose inputs lead to it."""


class OwnStep(NamedTuple):
    """One operation on one side's own inputs, for one prompt."""

    mode: str
    """``prefill`` or ``decode``; of states ``oneshot``, ``chunked`` or ``decode``."""
    layer: int
    """The number of layers for the head."""
    module: Module
    name: str
    """The captured tensor that is held against the truth."""
    got: Array
    """(rows, heads, value); what has no heads counts as one."""
    truth: Array
    positions: NDArray[np.int64]
    """Of the rows; a state after the last token is one row at that token."""


def own_steps(
    tensor: Rows,
    names: Sequence[str],
    token_ids: Sequence[int],
    weights: Mapping[str, Array],
    config: ModelConfig,
) -> Iterator[OwnStep]:
    """Each captured operation of a prompt with its truth, in the order of a forward pass.

    Args:
        tensor: The side's tensors of the prompt.
        names: Their names. A step whose inputs are not among them, or not finite, is left out.
        token_ids: The prompt's tokens.
        weights: Float64 weights by name.
        config: The architecture.

    Raises:
        InputError: Weights do not fit.
    """
    held = frozenset(names)
    for mode in ("prefill", "decode"):
        if f"{mode}.positions" in held:
            yield from _Mode(tensor, held, token_ids, weights, config, mode).steps()


class _Mode:
    """One pass of one prompt."""

    def __init__(
        self,
        tensor: Rows,
        names: frozenset[str],
        token_ids: Sequence[int],
        weights: Mapping[str, Array],
        config: ModelConfig,
        mode: str,
    ) -> None:
        self.tensor, self.names = tensor, names
        self.weights, self.config, self.mode = weights, config, mode
        self.positions = np.asarray(tensor(f"{mode}.positions"), np.int64)
        self.prefix: Array | None = weights["embed.weight"][
            np.asarray(token_ids, np.int64)[self.positions]
        ]
        self.bank: list[Array] | None = []

    def steps(self) -> Iterator[OwnStep]:
        """All layers, then the head."""
        for layer in range(self.config.layers):
            if f"{self.mode}.attn.{layer}.in" not in self.names:
                return
            yield from self._layer(layer)
        yield from self._head()

    def wide(self, name: str) -> Array:
        """A captured tensor in float64."""
        return np.asarray(self.tensor(name)).astype(np.float64)

    def step(self, layer: int, module: Module, name: str, truth: Array) -> OwnStep:
        """A captured tensor of this pass beside its truth."""
        got, shape = self.wide(name), (len(self.positions), -1, truth.shape[-1])
        return OwnStep(
            self.mode,
            layer,
            module,
            name,
            got.reshape(shape),
            truth.reshape(shape),
            self.positions,
        )

    def _layer(self, layer: int) -> Iterator[OwnStep]:
        x = self.wide(f"{self.mode}.attn.{layer}.in")
        if self.bank is not None and self.prefix is not None and np.isfinite(self.prefix).all():
            mixed = self._mix(self.bank, self.prefix, f"layers.{layer}.attn_res", layer)
            yield self.step(layer, "AttnRes", f"{self.mode}.attn.{layer}.in", mixed)
        if not np.isfinite(x).all():
            self.bank = self.prefix = None
            return
        made, start = self._attention(layer, x)
        kind: Module = "KDA" if made.lse is None else "MLA"
        out = f"{self.mode}.{kind.lower()}.{layer}.out"
        if out in self.names:
            yield self.step(layer, kind, out, made.out[start:])
        yield from self._states(layer, made)
        yield from self._rest(layer, x, out)

    def _attention(self, layer: int, x: Array) -> tuple[LayerOutput, int]:
        """The exact layer, and where the rows of this pass begin in what it gives.

        Decode rows follow the inputs of the positions before them, as ``attention.introduced_ratio``
        takes them.
        """
        start = int(self.positions[0]) if self.mode == "decode" else 0
        if start:
            before = f"decode.prefix.attn.{layer}.in"
            source = before if before in self.names else f"prefill.attn.{layer}.in"
            x = np.concatenate([self.wide(source)[:start], x])
        return attention_layer(x, self.weights, self.config, layer), start

    def _states(self, layer: int, made: LayerOutput) -> Iterator[OwnStep]:
        """States after this pass. Those of a chunked prefill are held against the whole one's."""
        last = self.positions[-1:]
        for how, mode in _HOWS.items():
            if mode != self.mode:
                continue
            kda, conv, kv = (f"state.{how}.{kind}.{layer}" for kind in ("kda", "conv", "kv"))
            if made.state.kda is not None and kda in self.names:
                got, true = (s.reshape(1, len(s), -1) for s in (self.wide(kda), made.state.kda))
                yield OwnStep(how, layer, "KDA", kda, got, true, last)
            if made.state.conv is not None and conv in self.names:
                got, true = (s.reshape(1, len(s), -1) for s in (self.wide(conv), made.state.conv))
                yield OwnStep(how, layer, "conv", conv, got, true, last)
            if made.state.kv is not None and kv in self.names:
                got, true = self.wide(kv)[:, None], made.state.kv[:, None]
                yield OwnStep(how, layer, "KV", kv, got, true, np.arange(len(got)))

    def _rest(self, layer: int, x: Array, out: str) -> Iterator[OwnStep]:
        """From the captured attention output to the hidden state after the layer."""
        hidden = f"{self.mode}.hidden.{layer}"
        given = self.wide(out) if out in self.names else np.full(1, np.nan)
        before, bank = self.prefix, self.bank
        self.prefix = self.bank = None
        if before is None or bank is None or hidden not in self.names:
            return
        if not (np.isfinite(before).all() and np.isfinite(given).all()):
            return
        attended = self._projected(layer, x, given)
        if layer % self.config.attn_res_block == 0:
            bank.append(before)
            prefix = attended
        else:
            prefix = before + attended
        z = self._mix(bank, prefix, f"layers.{layer}.mlp_res", layer, norm="post_norm")
        y, routing = _ffn(z, self.weights, self.config, layer)
        step = self.step(layer, "MLP" if routing is None else "MoE", hidden, (prefix + y)[:, None])
        if routing is not None:
            scores, ids = (f"{self.mode}.router.{layer}.{what}" for what in ("scores", "ids"))
            if not {scores, ids} <= self.names:
                return
            yield self.step(layer, "router", scores, routing.scores[:, None])
            taken = np.asarray(self.tensor(ids))
            # Another expert than the exact one is the router's doing, never the experts'.
            same = (np.sort(taken, axis=1) == np.sort(routing.ids, axis=1)).all(axis=1)
            step = step._replace(
                got=step.got[same], truth=step.truth[same], positions=step.positions[same]
            )
        if len(step.positions):
            yield step
        self.prefix, self.bank = self.wide(hidden), bank

    def _projected(self, layer: int, x: Array, out: Array) -> Array:
        """Gate and output projection of a captured attention output."""
        flat = out.reshape(len(out), -1)
        if layer in self.config.mla_layers:
            mla = mla_weights(self.weights, layer)
            made: Array = (flat * sigmoid(x @ mla.g.T)) @ mla.o.T
            return made
        kda = kda_weights(self.weights, layer)
        normed = rms_norm(out, kda.o_norm, eps=self.config.rms_norm_eps).reshape(len(out), -1)
        gated: Array = (normed * sigmoid(x @ kda.g.T)) @ kda.o.T
        return gated

    def _mix(
        self, bank: Sequence[Array], prefix: Array, site: str, layer: int, norm: str = "input_norm"
    ) -> Array:
        return _mixed_norm(bank, prefix, self.weights, site, f"layers.{layer}.{norm}", self.config)

    def _head(self) -> Iterator[OwnStep]:
        """Logits of the rows that were scored."""
        name = "logits" if self.mode == "prefill" else "decode.logits"
        if self.bank is None or self.prefix is None or name not in self.names:
            return
        if not np.isfinite(self.prefix).all():
            return
        final = _mixed_norm(
            self.bank, self.prefix, self.weights, "output_res", "final_norm", self.config
        )
        if self.mode == "prefill":
            if "logits.positions" not in self.names:
                return
            self.positions = np.asarray(self.tensor("logits.positions"), np.int64)
            final = final[self.positions]
        truth = logits_of(final, self.weights)[:, None]
        yield self.step(self.config.layers, "head", name, truth)
