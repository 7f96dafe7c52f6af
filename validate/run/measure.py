"""Pairs are made first, then every gate's metric is applied to them; nothing is judged here."""

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from validate.errors import IncomparableError, InputError
from validate.metrics import METRICS, Metric
from validate.pairing import pair
from validate.schema.measurement import Levels, Measurement
from validate.schema.pair import Pair, Side
from validate.schema.suite import GateSpec

__all__ = ["Bench", "PairMaker", "Progress", "silent"]

PairMaker = Callable[..., Pair]
"""``pairing.pair`` or a stand-in of the same signature."""
Progress = Callable[[str], None]
"""Told what is being measured, in a few words."""


def silent(_what: str) -> None:
    """Progress that nobody watches."""


def unseen(_matched: Pair) -> None:
    """Looks at nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """All that measuring needs beside the two captures of a pair."""

    gates: tuple[GateSpec, ...]
    levels: Mapping[str, Levels]
    """Confidence levels by gate."""
    oracle: Side | None = None
    weights: Mapping[str, NDArray[Any]] | None = None
    config: Mapping[str, Any] | None = None
    floor: tuple[Side, ...] = ()
    """Repeats of ref that pairs carry, for metrics that are paired with the floor."""
    prompts: tuple[str, ...] = ()
    """The prompts that count; empty: all."""
    metrics: Mapping[str, Metric] = field(default_factory=lambda: METRICS)
    make_pair: PairMaker = pair
    progress: Progress = silent
    look: Callable[[Pair], None] = unseen
    """Shown each pair of ref and a repeat after it was measured."""
    shared: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """What one side alone gives, kept over all pairs of this bench."""

    def pair(self, ref: Side, cand: Side, *, near_tie: float, route_gap: float) -> Pair:
        """Match two captures, and keep the prompts that count.

        Raises:
            IncomparableError: They do not match.
            InputError: A prompt that was asked for is in neither.
        """
        made = self.make_pair(
            ref,
            cand,
            oracle=self.oracle,
            weights=self.weights,
            config=self.config,
            near_tie=near_tie,
            route_gap=route_gap,
        )
        others = tuple(side for side in self.floor if side is not ref and side is not cand)
        made = dataclasses.replace(made, repeats=others, _cache={}, _shared=self.shared)
        if not self.prompts:
            return made
        return dataclasses.replace(made, prompts=_subset(made.prompts, self.prompts), _cache={})

    def measure(
        self, matched: Pair, *, what: str, gates: Sequence[GateSpec] | None = None
    ) -> dict[str, Measurement]:
        """The measurement of each of ``gates`` on one pair; an unexpected error passes through."""
        found = {}
        for gate in self.measured_gates if gates is None else gates:
            self.progress(f"{what}: {gate.name}")
            found[gate.name] = self.metrics[gate.measures](matched, self.levels[gate.name])
        return found

    def against_oracle(
        self, matched: Pair, *, gates: Sequence[GateSpec]
    ) -> dict[str, Measurement] | None:
        """The same with the oracle in ref's place and ref in cand's; None: no oracle."""
        if matched.oracle is None:
            return None
        swapped = dataclasses.replace(matched, ref=matched.oracle, cand=matched.ref, _cache={})
        return self.measure(swapped, what=f"oracle against {matched.ref.label}", gates=gates)

    def repeats(
        self, ref: Side, repeats: Sequence[Side], *, near_tie: float, route_gap: float
    ) -> tuple[list[dict[str, Measurement]], list[str]]:
        """Measurements between ref and each repeat, and a sentence for each that does not match."""
        found, notes = [], []
        for repeat in repeats:
            try:
                matched = self.pair(ref, repeat, near_tie=near_tie, route_gap=route_gap)
            except IncomparableError as error:
                why = str(error).splitlines()[0]
                notes.append(f"repeat '{repeat.label}' is left out of the noise floor: {why}")
                continue
            found.append(self.measure(matched, what=f"ref against {repeat.label}"))
            self.look(matched)
        return found, notes

    @property
    def measured_gates(self) -> tuple[GateSpec, ...]:
        """The gates whose metric is applied to pairs; the yardstick's are made from these."""
        return tuple(gate for gate in self.gates if gate.area != "yardstick")


def _subset(held: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    for prompt in wanted:
        if prompt not in held:
            near = difflib.get_close_matches(prompt, held, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            msg = f"--prompt {prompt}: neither side holds such a prompt{hint}"
            raise InputError(msg)
    return tuple(prompt for prompt in held if prompt in wanted)
