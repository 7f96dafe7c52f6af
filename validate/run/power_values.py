"""What power is computed from: prompt-level values of clean pairs, and of ref with a known error."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validate.numerics import to_float64
from validate.run.measure import Bench
from validate.run.power_models import MODELS, Array
from validate.schema.manifest import Manifest
from validate.schema.pair import Pair, Side
from validate.schema.prompts import Prompt
from validate.schema.streams import Stream
from validate.schema.suite import GateSpec

__all__ = ["LOGITS", "ScaledSide", "head_shares", "prompt_values"]

LOGITS = ("logits", "decode.logits", "stream.logits")
OUTPUT = re.compile(r"^(prefill|decode)\.((?:mla|kda)\.\d+)\.out$")


class ScaledSide:
    """A side whose every logit is multiplied by one number; all else is its own."""

    def __init__(self, side: Side, scale: float) -> None:
        self._side, self._scale = side, scale
        self.label = f"{side.label} with logits times {scale:g}"

    @property
    def manifest(self) -> Manifest:
        """What the capture says of itself."""
        return self._side.manifest

    @property
    def prompts(self) -> Mapping[str, Prompt]:
        """Prompts by id."""
        return self._side.prompts

    @property
    def streams(self) -> Mapping[str, Stream]:
        """Greedy streams: a scale changes no first choice."""
        return self._side.streams

    @property
    def drawn(self) -> Mapping[str, Mapping[str, Stream]]:
        """Streams of the other kinds."""
        return self._side.drawn

    def names(self, prompt: str) -> tuple[str, ...]:
        """Names of the logits, their positions and whatever else there is."""
        return self._side.names(prompt)

    def tensor(self, prompt: str, name: str) -> NDArray[Any]:
        """One tensor; logits as float64, scaled."""
        array = self._side.tensor(prompt, name)
        return to_float64(array) * self._scale if name in LOGITS else array

    def axes(self, prompt: str, name: str) -> tuple[str, ...]:
        """Axis names of one tensor."""
        return self._side.axes(prompt, name)


def prompt_values(
    bench: Bench, pair: Pair, gates: Sequence[GateSpec]
) -> dict[str, dict[str, float]]:
    """Each gate's metric on each prompt alone.

    Returns:
        Values by gate, then by prompt; prompts on which the metric is undefined are left out.
    """
    found: dict[str, dict[str, float]] = {gate.name: {} for gate in gates}
    for prompt in pair.prompts:
        alone = dataclasses.replace(pair, prompts=(prompt,), _cache={})
        for gate in gates:
            measured = bench.metrics[gate.measures](alone, bench.levels[gate.name])
            value = MODELS[gate.measures].of_prompt(measured)
            if value is not None:
                found[gate.name][prompt] = value
    return found


def head_shares(side: Side, prompts: Sequence[str]) -> tuple[str, Array]:
    """The head of median energy among all attention outputs, and its share of it by prompt.

    Returns:
        Its place, and (prompts,) the sum of its squares over the sum of all squares, both modes
        together; an empty place where a prompt holds no outputs.
    """
    shares: list[dict[str, float]] = []
    for prompt in prompts:
        squares: dict[str, float] = {}
        for name in side.names(prompt):
            matched = OUTPUT.match(name)
            if matched is None:
                continue
            by_head = np.square(to_float64(side.tensor(prompt, name))).sum(axis=(0, 2))
            for head, energy in enumerate(by_head):
                place = f"{matched.group(2)} head {head}"
                squares[place] = squares.get(place, 0.0) + float(energy)
        total = sum(squares.values())
        shares.append({place: energy / total for place, energy in squares.items()} if total else {})
    common = set(shares[0]).intersection(*shares) if shares else set()
    if not common:
        return "", np.zeros(len(prompts))
    ordered = sorted(common, key=lambda place: (sum(one[place] for one in shares), place))
    middle = ordered[len(ordered) // 2]
    return middle, np.array([one[middle] for one in shares])
