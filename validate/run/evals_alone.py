"""Evals judged by themselves: two captures that have nothing else in common, said aloud."""

from collections.abc import Sequence
from dataclasses import dataclass

from validate.schema.evals import evals_of
from validate.schema.pair import Side
from validate.schema.suite import GateSpec, Suite

__all__ = ["Alone", "evals_alone"]

NEED_PROMPTS = {"yardstick.ref_error": "ref's own error against the oracle"}
"""Yardstick gates that are measured on prompts, and what they would have said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """That evals are judged without prompts, in the words of a report."""

    note: str
    """Why, before the numbers."""
    untested: tuple[str, ...]
    """What is not tested by it."""
    gates: tuple[GateSpec, ...]
    """The gates that still run, in the suite's order."""


def evals_alone(ref: Side, cand: Side, *, suite: Suite, gates: Sequence[GateSpec]) -> Alone | None:
    """Whether evals are judged by themselves; None: like everything else.

    They are where nothing but gates of evals was asked for and a side holds no prompts, as the
    captures of ``validate eval`` do. Suite, limits and shares of alpha stay as they are; identity,
    A/A, floor and path proofs are looked at as ever. Prompts that differ are refused as ever.

    Args:
        ref: The run compared against.
        cand: The run under judgement.
        suite: What is gated.
        gates: The gates that were asked for.
    """
    asked = {gate.area for gate in gates} - {"yardstick"}
    bare = [(role, side) for role, side in (("ref", ref), ("cand", cand)) if not side.prompts]
    if suite.evals_only or asked != {"evals"} or not bare:
        return None
    names = " and ".join(f"{role} '{side.label}'" for role, side in bare)
    verb = "holds" if len(bare) == 1 else "hold"
    held = [evals_of(side) for side in (ref, cand)]
    tasks = [set() if evals is None else set(evals.tasks) for evals in held]
    shared = len(tasks[0] & tasks[1])
    return Alone(
        note=(
            f"evals are judged alone, for {names} {verb} no prompts: the sides have {shared} tasks "
            f"in common; limits and shares of alpha are those of {suite.path}"
        ),
        untested=tuple(
            f"{what} ({gate.name}): it is measured on prompts, of which {names} {verb} none"
            for gate in gates
            if (what := NEED_PROMPTS.get(gate.name)) is not None
        ),
        gates=tuple(gate for gate in gates if gate.name not in NEED_PROMPTS),
    )
