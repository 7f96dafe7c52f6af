"""What ``kda_chunk`` and ``kda_recurrent`` share: clauses, settings and the check of a point."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from validate.conformance.ops._kda_inputs import PER_TOKEN
from validate.conformance.ops._kda_truth import Rounding, SequenceTruth, assemble, kda_truth
from validate.conformance.ops._packed import bounds, piece, take
from validate.conformance.ops._rounding import CLAUSES as VALUE_CLAUSES, judge
from validate.conformance.records import Breach, Call, Case, OutputSpec, Settings
from validate.conformance.relations import repeats

__all__ = ["CLAUSES", "SETTINGS", "Form", "check", "key_first", "outputs"]

CLAUSES: Mapping[str, str] = {
    **VALUE_CLAUSES,
    "repeats": "The same call gives the same bits.",
    "alone": "A sequence alone gives what it gave in the batch, within its rounding error.",
    "order": "Sequences may stand in any order.",
    "carried-state": "Two calls with the state carried between them give what one call gives.",
    "causal": "What comes later in a sequence changes nothing before it.",
    "poison": "NaN in padding tokens, in unused state slots or in another sequence reaches nothing.",
}
"""Clauses of both operations."""

SETTINGS: Mapping[str, tuple[str, ...]] = {
    "layout": ("k_first", "v_first"),
    "state": ("float32", "bfloat16"),
    "beta": ("float32", "bfloat16"),
    "shape": ("any", "12x128"),
}
"""Layout of a state, [key, value] or [value, key]; dtype in which states are stored; precision
of beta = sigmoid(b); head counts and sizes that the kernel is built for (``12x128``: 12 heads of
key and value 128, one of eight ranks of Kimi K3)."""

_FUTURE = -64.0
"""Factor of the values after the cut, for ``causal``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Where the two operations differ."""

    per_sequence: tuple[str, ...]
    """Arguments with one row a sequence."""
    initial: Callable[[Mapping[str, Any]], np.ndarray | None]
    """State before each sequence, in the contract's layout."""
    carry: Callable[[Mapping[str, Any], np.ndarray], dict[str, Any]]
    """The arguments with the states that an earlier call gave."""
    rounding: Callable[[Mapping[str, Any], Settings], Rounding]


def key_first(states: np.ndarray, settings: Settings) -> np.ndarray:
    """States [..., key, value], whatever the declared layout."""
    return states if settings["layout"] == "k_first" else states.swapaxes(-1, -2)


def outputs(inputs: Mapping[str, Any], settings: Settings) -> Mapping[str, OutputSpec]:
    """Shapes and dtypes of ``out`` and ``final_state``."""
    tokens, heads, key = inputs["q"].shape
    value = inputs["v"].shape[-1]
    sizes = (key, value) if settings["layout"] == "k_first" else (value, key)
    return {
        "out": OutputSpec(shape=(tokens, heads, value), dtype=inputs["v"].dtype.name),
        "final_state": OutputSpec(
            shape=(len(inputs["cu_seqlens"]) - 1, heads, *sizes), dtype=settings["state"]
        ),
    }


def check(case: Case, call: Call, settings: Settings, *, form: Form) -> tuple[Breach, ...]:
    """Judge one point and what its ``probe`` asks for beside it.

    ``repeats`` calls again; ``alone`` calls every sequence by itself; ``order`` reverses and
    rotates the sequences; ``pieces`` calls twice with the state carried; ``causal`` spoils
    what follows the cut. The plain call is judged first; a point that fails it ends there.
    """
    probe = str(case.axes["probe"])
    held = case.inputs
    spoilt = {1} if case.axes["poison"] == "sequence" and len(held["cu_seqlens"]) > 2 else set()  # noqa: PLR2004
    clean = [n for n in range(len(held["cu_seqlens"]) - 1) if n not in spoilt]
    judged = take(held, clean, per_token=PER_TOKEN, per_sequence=form.per_sequence)
    initial = form.initial(judged)
    wide = None if initial is None else key_first(initial, settings)
    truths = dict(zip(clean, kda_truth(judged, wide, form.rounding(held, settings)), strict=True))
    state = _State(case, call, settings, form, truths)
    got = call(held)
    found = state.compare(got, held, clean)
    if found:
        return _under("poison", found) if case.axes["poison"] != "none" else found
    probes: Mapping[str, Callable[[Mapping[str, np.ndarray]], tuple[Breach, ...]]] = {
        "plain": lambda _: (),
        "repeats": state.repeats,
        "alone": state.alone,
        "order": state.order,
        "pieces": state.pieces,
        "causal": state.causal,
    }
    return probes[probe](got)


def _under(clause: str, breaches: Sequence[Breach]) -> tuple[Breach, ...]:
    """The gravest breach, told as a breach of another clause."""
    return tuple(replace(one, clause=clause) for one in breaches[:1])


@dataclass(frozen=True, slots=True)
class _State:
    """One point with its truth."""

    case: Case
    call: Call
    settings: Settings
    form: Form
    truths: Mapping[int, SequenceTruth]

    def compare(
        self,
        got: Mapping[str, np.ndarray],
        inputs: Mapping[str, Any],
        order: Sequence[int],
        *,
        rows: Mapping[int, int] | None = None,
        place: str = "",
    ) -> tuple[Breach, ...]:
        """Outputs of sequences ``order``; ``rows``: where each stands in the call, when not there."""
        where = {n: n for n in order} if rows is None else rows
        spans = bounds(inputs)
        out = [got["out"][slice(*spans[where[n]])] for n in order]
        states = key_first(got["final_state"], self.settings)[[where[n] for n in order]]
        truths = dict(self.truths)
        kept = [truths[n] for n in order]
        numbers = list(range(len(kept)))
        return (
            *judge("out", assemble(kept, numbers, which="out"), np.concatenate(out), place=place),
            *judge(
                "final_state",
                assemble(kept, numbers, which="state"),
                np.ascontiguousarray(states.swapaxes(-1, -2)),
                place=place,
            ),
        )

    def repeats(self, got: Mapping[str, np.ndarray]) -> tuple[Breach, ...]:
        """The same bits again."""
        return repeats(self.case, self.call, base=got)

    def alone(self, _: Mapping[str, np.ndarray]) -> tuple[Breach, ...]:
        """Each sequence by itself."""
        for n in self.truths:
            inputs = self._taken([n])
            found = self.compare(
                self.call(inputs), inputs, [n], rows={n: 0}, place=f"sequence {n} alone"
            )
            if found:
                return _under("alone", found)
        return ()

    def order(self, _: Mapping[str, np.ndarray]) -> tuple[Breach, ...]:
        """Reversed and rotated."""
        numbers = list(self.truths)
        for order, name in ((numbers[::-1], "reversed"), (numbers[1:] + numbers[:1], "rotated")):
            inputs = self._taken(order)
            rows = {n: i for i, n in enumerate(order)}
            found = self.compare(
                self.call(inputs), inputs, order, rows=rows, place=f"sequences {name}"
            )
            if found:
                return _under("order", found)
        return ()

    def pieces(self, _: Mapping[str, np.ndarray]) -> tuple[Breach, ...]:
        """Two calls, the state carried."""
        held, cut = self.case.inputs, int(self.case.axes["cut"])
        head = piece(held, cut, first=True, per_token=PER_TOKEN)
        one = self.call(head)
        tail = piece(held, cut, first=False, per_token=PER_TOKEN)
        two = self.call(self.form.carry(tail, one["final_state"]))
        out = [
            part["out"][slice(*span)]
            for pair in zip(bounds(head), bounds(tail), strict=True)
            for part, span in zip((one, two), pair, strict=True)
        ]
        joined = {"out": np.concatenate(out), "final_state": two["final_state"]}
        place = f"{cut} tokens, then the rest"
        return _under("carried-state", self.compare(joined, held, list(self.truths), place=place))

    def causal(self, _: Mapping[str, np.ndarray]) -> tuple[Breach, ...]:
        """Values after the cut made large and of the other sign."""
        held, cut = self.case.inputs, int(self.case.axes["cut"])
        spoilt = dict(held)
        spoilt["v"] = held["v"].copy()
        kept = []
        for start, end in bounds(held):
            late = spoilt["v"][start + cut : end]
            spoilt["v"][start + cut : end] = (late.astype(np.float64) * _FUTURE).astype(late.dtype)
            kept.append(np.arange(start, min(start + cut, end)))
        before = np.concatenate(kept)
        expected = assemble(list(self.truths.values()), list(range(len(self.truths))), which="out")
        early = replace(expected, values=expected.values[before], scale=expected.scale[before])
        got = self.call(spoilt)["out"][before]
        return _under("causal", judge("out", early, got, place=f"values changed from {cut} on"))

    def _taken(self, order: Sequence[int]) -> dict[str, Any]:
        return take(
            self.case.inputs, order, per_token=PER_TOKEN, per_sequence=self.form.per_sequence
        )
