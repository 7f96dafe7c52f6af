"""Captures of a tiny model run exactly, or with one operation wrong at its code site."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.fakes import FakeSide, make_manifest, make_prompt
from tests.unit.oracle.tiny import TINY, random_weights
from validate.oracle import LayerOutput, attention_layer, model as oracle_model, run_prompt
from validate.oracle.records import Array
from validate.oracle.rms_norm import rms_norm
from validate.oracle.sigmoid import sigmoid
from validate.oracle.weights import kda_weights, mla_weights
from validate.schema import Prompt

WEIGHTS = random_weights()
PROMPTS: Mapping[str, Prompt] = {
    name: make_prompt(name, ids, prompt_length=3, tags=("tensors", "state"))
    for name, ids in (
        ("p-0", (3, 1, 4, 1, 5, 9, 2, 6)),
        ("p-1", (2, 7, 1, 8, 2, 8)),
    )
}
Change = Callable[[LayerOutput, int, bool], LayerOutput]
"""Exact output, layer, whether it is a decode step: what the wrong layer gives instead."""


def projected(out: Array, x: Array, layer: int) -> Array:
    """What gate, norm and output projection make of an attention output."""
    flat = out.reshape(len(out), -1)
    if layer in TINY.mla_layers:
        mla = mla_weights(WEIGHTS, layer)
        return (flat * sigmoid(x @ mla.g.T)) @ mla.o.T
    kda = kda_weights(WEIGHTS, layer)
    normed = rms_norm(out, kda.o_norm, eps=TINY.rms_norm_eps).reshape(len(out), -1)
    return (normed * sigmoid(x @ kda.g.T)) @ kda.o.T


def ran(change: Change | None = None, *, noise: int | None = None) -> dict[str, Any]:
    """Tensors by prompt of a run whose attention layers are changed; the run goes on with them.

    Args:
        change: None: exact.
        noise: Seed of a relative error of 1e-4 an element, which this small model makes 30 times larger.
    """
    rng = None if noise is None else np.random.default_rng(noise)

    def layer_of(
        x: Any, weights: Any, config: Any, layer: int, *, state: Any = None
    ) -> LayerOutput:
        made = attention_layer(x, weights, config, layer, state=state)
        wrong = made if change is None else change(made, layer, state is not None)
        y = made.y if wrong.out is made.out else projected(wrong.out, np.asarray(x), layer)
        return LayerOutput(out=wrong.out, lse=wrong.lse, y=y, state=wrong.state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oracle_model, "attention_layer", layer_of)
        runs = {
            name: run_prompt(prompt, WEIGHTS, TINY, stream_tokens=1, chunk=4)
            for name, prompt in PROMPTS.items()
        }
    return {
        name: {key: _noisy(held.array, rng) for key, held in run.tensors.items()}
        for name, run in runs.items()
    }


def _noisy(array: NDArray[Any], rng: np.random.Generator | None) -> NDArray[Any]:
    if rng is None or array.dtype.kind != "f":
        return array
    return (array * (1 + 1e-4 * rng.standard_normal(array.shape))).astype(array.dtype)


def side(label: str, tensors: Mapping[str, Mapping[str, Any]], **changes: Any) -> FakeSide:
    """A side of these tensors, each prompt a row of one batch."""
    manifest = make_manifest(label, tensors=tensors, **changes)
    return FakeSide(label, tensors, prompts=PROMPTS, manifest=manifest)


def without(tensors: Mapping[str, Mapping[str, Any]], *words: str) -> dict[str, Any]:
    """The tensors whose names hold none of these words."""
    return {
        prompt: {n: a for n, a in held.items() if not any(word in n for word in words)}
        for prompt, held in tensors.items()
    }


def heads_lost(layers: Sequence[int], heads: Sequence[int], *, decode: bool) -> Change:
    """These heads give nothing in these layers, in decode steps alone or always."""

    def change(made: LayerOutput, layer: int, step: bool) -> LayerOutput:
        if layer not in layers or (decode and not step):
            return made
        out = made.out.copy()
        out[:, list(heads)] = 0.0
        return LayerOutput(out=out, lse=made.lse, y=made.y, state=made.state)

    return change
