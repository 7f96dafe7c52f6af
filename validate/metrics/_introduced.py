"""Introduced error: what each side's own attention added to its own captured inputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from validate import oracle
from validate.errors import InputError
from validate.metrics._places import Place, outputs
from validate.metrics._three_way import Ways, add_errors
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


def introduced(pair: Pair) -> Introduced:
    """Run every captured input through the oracle's layer once; the result stays with the pair.

    Decode rows see the side's own prefill inputs of the positions before them, then its own
    decode inputs, as the decode path did.

    Args:
        pair: With ``weights`` and ``config``, all attention tensors finite.

    Raises:
        InputError: Decode positions do not continue the prompt, or weights do not fit.
    """
    return pair.once("attention.introduced", lambda: _introduced(pair))


def _introduced(pair: Pair) -> Introduced:
    made = Introduced()
    weights = pair.weights or {}
    config = ModelConfig.model_validate(dict(pair.config or {}))
    for prompt in pair.prompts:
        layers: dict[int, list[Place]] = {}
        for place in outputs(pair.ref.names(prompt)):
            layers.setdefault(place.layer, []).append(place)
        for layer, places in layers.items():
            truths = [
                _truth(side, prompt, layer, places, weights, config)
                for side in (pair.ref, pair.cand)
            ]
            for place in places:
                _add(made, pair, prompt, place, truths)
    return made


def _truth(
    side: Side,
    prompt: str,
    layer: int,
    places: list[Place],
    weights: Mapping[str, Array],
    config: ModelConfig,
) -> dict[str, LayerOutput]:
    """The exact layer on one side's inputs, by mode; the prefix that both modes share runs once."""
    modes = {place.mode for place in places}
    whole = side.tensor(prompt, f"prefill.attn.{layer}.in")
    if "decode" not in modes:
        return {"prefill": oracle.attention_layer(whole, weights, config, layer)}
    decoded = side.tensor(prompt, f"decode.attn.{layer}.in")
    positions = side.tensor(prompt, "decode.positions")
    start = int(positions[0])
    if not np.array_equal(positions, np.arange(start, start + len(decoded))) or start > len(whole):
        msg = (
            f"introduced error: {side.label} prompt {prompt}: decode.positions must continue the "
            f"prompt one by one from a position inside its {len(whole)} prefill rows, got "
            f"{positions[:4].tolist()}"
        )
        raise InputError(msg)
    if start == 0:
        made = {"decode": oracle.attention_layer(decoded, weights, config, layer)}
        return {"prefill": oracle.attention_layer(whole, weights, config, layer), **made}
    prefix = oracle.attention_layer(whole[:start], weights, config, layer)
    made = {"decode": oracle.attention_layer(decoded, weights, config, layer, state=prefix.state)}
    if start == len(whole):
        return {"prefill": prefix, **made}
    rest = oracle.attention_layer(whole[start:], weights, config, layer, state=prefix.state)
    lse = None
    if prefix.lse is not None and rest.lse is not None:
        lse = np.concatenate([prefix.lse, rest.lse])
    joined = LayerOutput(
        out=np.concatenate([prefix.out, rest.out]),
        lse=lse,
        y=np.concatenate([prefix.y, rest.y]),
        state=rest.state,
    )
    return {"prefill": joined, **made}


def _add(
    made: Introduced, pair: Pair, prompt: str, place: Place, truths: list[dict[str, LayerOutput]]
) -> None:
    """Add the errors of one captured output and, for MLA, of its LSE."""
    ref, cand = (
        (to_float64(side.tensor(prompt, place.name)), truth[place.mode].out)
        for side, truth in zip((pair.ref, pair.cand), truths, strict=True)
    )
    add_errors(
        made.ways,
        place.name,
        prompt=prompt,
        positions=pair.ref.tensor(prompt, f"{place.mode}.positions"),
        ref=ref,
        cand=cand,
    )
    lse = place.name.removesuffix(".out") + ".lse"
    if place.kind != "mla" or lse not in pair.ref.names(prompt):
        return
    for index, (side, truth) in enumerate(zip((pair.ref, pair.cand), truths, strict=True)):
        true = truth[place.mode].lse
        if true is not None:
            err = np.abs(to_float64(side.tensor(prompt, lse)) - true).max()
            made.lse[index] = np.maximum(made.lse[index], err)
