"""The check of an operation over packed sequences with a state that is carried on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from validate.conformance.ops._packed import bounds, piece, take
from validate.conformance.ops._rounding import (
    CLAUSES as VALUE_CLAUSES,
    Expected,
    Multiples,
    joined,
    judge,
)
from validate.conformance.records import Breach, Call, Case, Settings
from validate.conformance.relations import repeats

__all__ = ["CLAUSES", "PackedForm", "check_packed"]

CLAUSES: Mapping[str, str] = {
    **VALUE_CLAUSES,
    "repeats": "The same call gives the same bits.",
    "alone": "A sequence alone gives what it gave in the batch, within its rounding error.",
    "order": "Sequences may stand in any order.",
    "carried-state": "Two calls with the state carried between them give what one call gives.",
    "causal": "What comes later in a sequence changes nothing before it.",
    "poison": "NaN in padding tokens, in unused state slots or in another sequence reaches nothing.",
}
"""Clauses of every packed operation."""

_FUTURE = -64.0
"""Factor of the values after the cut, for ``causal``."""

Truth = Mapping[str, Expected]
"""Expected outputs of one sequence; the first axis of a token output is the token axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedForm:
    """What distinguishes one packed operation from another."""

    per_token: tuple[str, ...]
    """Arguments with one row a token."""
    per_sequence: tuple[str, ...]
    """Arguments with one row a sequence."""
    values: str
    """The argument that ``causal`` changes after the cut."""
    token_outputs: tuple[str, ...]
    sequence_outputs: tuple[str, ...]
    truths: Callable[[Mapping[str, Any], Settings], Sequence[Truth]]
    """Oracle of every sequence."""
    carry: Callable[[Mapping[str, Any], Mapping[str, np.ndarray]], dict[str, Any]]
    """The arguments with the states that an earlier call gave."""
    view: Callable[[str, np.ndarray, Settings], np.ndarray]
    """An output in the layout of the oracle."""
    multiples: Multiples
    """Limits in units of the modelled rounding error."""


def check_packed(
    case: Case, call: Call, settings: Settings, *, form: PackedForm
) -> tuple[Breach, ...]:
    """Judge one point and what its ``probe`` asks for beside it.

    ``repeats`` calls again; ``alone`` calls every sequence by itself; ``order`` reverses and
    rotates the sequences; ``pieces`` calls twice with the state carried; ``causal`` changes
    what follows the cut. The plain call is judged first; a point that fails it ends there.
    """
    held = case.inputs
    count = len(held["cu_seqlens"]) - 1
    spoilt = case.axes["poison"] == "sequence" and count > 1
    clean = [n for n in range(count) if not (spoilt and n == 1)]
    judged = take(held, clean, per_token=form.per_token, per_sequence=form.per_sequence)
    truths = dict(zip(clean, form.truths(judged, settings), strict=True))
    point = _Point(case, call, settings, form, truths)
    got = call(held)
    found = point.compare(got, held, {n: n for n in clean})
    if found:
        return _under("poison", found) if case.axes["poison"] != "none" else found
    probes: Mapping[str, Callable[[], tuple[Breach, ...]]] = {
        "plain": tuple,
        "repeats": lambda: repeats(case, call, base=got),
        "alone": point.alone,
        "order": point.order,
        "pieces": point.pieces,
        "causal": point.causal,
    }
    return probes[str(case.axes["probe"])]()


def _under(clause: str, breaches: Sequence[Breach]) -> tuple[Breach, ...]:
    """The first breach, told as a breach of another clause."""
    return tuple(replace(one, clause=clause) for one in breaches[:1])


@dataclass(frozen=True, slots=True)
class _Point:
    """One sweep point with its truth."""

    case: Case
    call: Call
    settings: Settings
    form: PackedForm
    truths: Mapping[int, Truth]

    def compare(
        self,
        got: Mapping[str, np.ndarray],
        inputs: Mapping[str, Any],
        rows: Mapping[int, int],
        *,
        place: str = "",
    ) -> tuple[Breach, ...]:
        """Outputs of the sequences ``rows``: number of a sequence to where it stands in the call."""
        spans = bounds(inputs)
        found: list[Breach] = []
        for name in self.form.token_outputs:
            seen = self.form.view(name, got[name], self.settings)
            parts = [seen[slice(*spans[row])] for row in rows.values()]
            found += self._judged(name, self._expected(name, rows), np.concatenate(parts), place)
        for name in self.form.sequence_outputs:
            seen = self.form.view(name, got[name], self.settings)[list(rows.values())]
            found += self._judged(name, self._expected(name, rows), seen, place)
        return tuple(found)

    def alone(self) -> tuple[Breach, ...]:
        """Each sequence by itself."""
        for n in self.truths:
            found = self._ordered([n], place=f"sequence {n} alone")
            if found:
                return _under("alone", found)
        return ()

    def order(self) -> tuple[Breach, ...]:
        """Reversed and rotated."""
        numbers = list(self.truths)
        for order, name in ((numbers[::-1], "reversed"), (numbers[1:] + numbers[:1], "rotated")):
            found = self._ordered(order, place=f"sequences {name}")
            if found:
                return _under("order", found)
        return ()

    def pieces(self) -> tuple[Breach, ...]:
        """Two calls, the state carried."""
        held, cut = self.case.inputs, int(self.case.axes["cut"])
        head = piece(held, cut, first=True, per_token=self.form.per_token)
        one = self.call(head)
        tail = piece(held, cut, first=False, per_token=self.form.per_token)
        two = self.call(self.form.carry(tail, one))
        whole: dict[str, np.ndarray] = {name: two[name] for name in self.form.sequence_outputs}
        spans = list(zip(bounds(head), bounds(tail), strict=True))
        for name in self.form.token_outputs:
            whole[name] = np.concatenate(
                [
                    part[name][slice(*span)]
                    for pair in spans
                    for part, span in zip((one, two), pair, strict=True)
                ]
            )
        rows = {n: n for n in self.truths}
        place = f"{cut} tokens, then the rest"
        return _under("carried-state", self.compare(whole, held, rows, place=place))

    def causal(self) -> tuple[Breach, ...]:
        """Values after the cut made large and of the other sign."""
        held, cut = self.case.inputs, int(self.case.axes["cut"])
        name = self.form.values
        values = held[name].astype(np.float64)
        kept = []
        for start, end in bounds(held):
            values[start + cut : end] *= _FUTURE
            kept.append(np.arange(start, min(start + cut, end)))
        before = np.concatenate(kept)
        got = self.call({**held, name: values.astype(held[name].dtype)})
        for output in self.form.token_outputs:
            expected = self._expected(output, self.truths)
            early = replace(expected, values=expected.values[before], scale=expected.scale[before])
            seen = self.form.view(output, got[output], self.settings)[before]
            found = self._judged(output, early, seen, f"'{name}' changed from {cut} on")
            if found:
                return _under("causal", found)
        return ()

    def _ordered(self, order: Sequence[int], *, place: str) -> tuple[Breach, ...]:
        form = self.form
        inputs = take(
            self.case.inputs, order, per_token=form.per_token, per_sequence=form.per_sequence
        )
        rows = {n: i for i, n in enumerate(order)}
        return self.compare(self.call(inputs), inputs, rows, place=place)

    def _judged(
        self, name: str, expected: Expected, got: np.ndarray, place: str
    ) -> tuple[Breach, ...]:
        return judge(name, expected, got, place=place, multiples=self.form.multiples)

    def _expected(self, name: str, numbers: Sequence[int] | Mapping[int, Any]) -> Expected:
        return joined([self.truths[n][name] for n in numbers])
