"""Introduced error: what each side's own attention added to its own captured inputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate import oracle
from validate.errors import InputError
from validate.metrics._places import Place, outputs
from validate.metrics._three_way import Half, Ways, add_halves, half_of
from validate.numerics import to_float64
from validate.oracle import LayerOutput
from validate.schema import ModelConfig, Pair, Side

__all__ = ["Introduced", "introduced"]

Array = NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class Introduced:
    """Errors of both sides' attention layers against the float64 layer on the same inputs."""

    ways: Ways = field(default_factory=Ways)
    lse: Array = field(default_factory=lambda: np.zeros(2))
    """Largest |LSE - oracle's LSE| of ref and of cand, nats."""


class Truth(NamedTuple):
    """What the exact layer makes of one pass's inputs."""

    out: Array
    """(rows, heads, value)."""
    lse: Array | None
    """(rows, heads), nats; None for KDA."""


@dataclass(slots=True, kw_only=True)
class Own:
    """Errors of one side's attention layers in one prompt."""

    halves: dict[str, Half] = field(default_factory=dict)
    """By output name."""
    lse: float = 0.0
    """Largest |LSE - oracle's LSE|, nats."""


def introduced(pair: Pair) -> Introduced:
    """Run every captured input through the oracle's layer, once a side in all pairs of a run.

    Decode rows see the inputs of the positions before them, then the side's own decode inputs,
    as the decode path did. Those before are ``decode.prefix.attn.L.in`` where a capture
    holds them, else the first rows of ``prefill.attn.L.in``: the same up to what the
    batch shape does to the noise.

    Args:
        pair: With ``weights`` and ``config``, all attention tensors finite.

    Raises:
        InputError: Decode positions do not continue the prompt, or weights do not fit.
    """
    return pair.once("attention.introduced", lambda: _introduced(pair))


def _introduced(pair: Pair) -> Introduced:
    made = Introduced()
    config = ModelConfig.model_validate(dict(pair.config or {}))
    for prompt in pair.prompts:
        ref, cand = (_own(pair, side, prompt, config) for side in (pair.ref, pair.cand))
        made.lse = np.maximum(made.lse, (ref.lse, cand.lse))
        for place in outputs(pair.ref.names(prompt)):
            add_halves(
                made.ways,
                place.name,
                prompt=prompt,
                positions=pair.ref.tensor(prompt, f"{place.mode}.positions"),
                ref=ref.halves[place.name],
                cand=cand.halves[place.name],
            )
    return made


def _own(pair: Pair, side: Side, prompt: str, config: ModelConfig) -> Own:
    """What one side's layers added in one prompt; the same in every pair of a run that it is in."""
    return pair.once_a_side(
        side, f"attention.introduced.{prompt}", lambda: _errors(pair, side, prompt, config)
    )


def _errors(pair: Pair, side: Side, prompt: str, config: ModelConfig) -> Own:
    names = side.names(prompt)
    layers: dict[int, list[Place]] = {}
    for place in outputs(names):
        layers.setdefault(place.layer, []).append(place)
    made = Own()
    for layer, places in layers.items():
        truths = _truth(side, prompt, layer, places, pair.weights or {}, config)
        for place in places:
            truth = truths[place.mode]
            made.halves[place.name] = half_of(
                to_float64(side.tensor(prompt, place.name)), truth.out
            )
            lse = place.name.removesuffix(".out") + ".lse"
            if truth.lse is not None and lse in names:
                err = np.abs(to_float64(side.tensor(prompt, lse)) - truth.lse).max()
                made.lse = float(np.maximum(made.lse, err))
    return made


def _truth(
    side: Side,
    prompt: str,
    layer: int,
    places: list[Place],
    weights: Mapping[str, Array],
    config: ModelConfig,
) -> dict[str, Truth]:
    """The exact layer on one side's inputs, by mode."""
    whole = side.tensor(prompt, f"prefill.attn.{layer}.in")
    made = {}
    for mode in sorted({place.mode for place in places}):
        if mode == "prefill":
            made[mode] = _after(oracle.attention_layer(whole, weights, config, layer), 0)
            continue
        rows = side.tensor(prompt, f"decode.attn.{layer}.in")
        before = _before_decode(side, prompt, layer, whole, rows=len(rows))
        both = oracle.attention_layer(np.concatenate([before, rows]), weights, config, layer)
        made[mode] = _after(both, len(before))
    return made


def _after(made: LayerOutput, start: int) -> Truth:
    """The rows from ``start`` on."""
    return Truth(made.out[start:], None if made.lse is None else made.lse[start:])


def _before_decode(
    side: Side, prompt: str, layer: int, whole: NDArray[Any], *, rows: int
) -> NDArray[Any]:
    """Inputs of the positions before the first decoded one."""
    positions = side.tensor(prompt, "decode.positions")
    start = int(positions[0])
    name = f"decode.prefix.attn.{layer}.in"
    before = side.tensor(prompt, name) if name in side.names(prompt) else whole
    if not np.array_equal(positions, np.arange(start, start + rows)) or start > len(before):
        msg = (
            f"introduced error: {side.label} prompt {prompt}: decode.positions must continue the "
            f"prompt one by one from a position inside its {len(before)} prefill rows, got "
            f"{positions[:4].tolist()}"
        )
        raise InputError(msg)
    return before[:start]
