"""What a suite says of a run that is nothing but another repeat of ref, by simulation."""

from collections.abc import Mapping, Sequence

import numpy as np

from validate.gates import MIN_REPEATS, judge
from validate.run.power_cases import Clean
from validate.run.power_prepare import Prepared
from validate.run.power_record import CleanRun
from validate.run.power_search import FOUND, Case
from validate.run.yardstick import floor_of
from validate.schema.suite import GateSpec
from validate.schema.verdict import NoiseFloor, Outcome

__all__ = ["clean_run"]


def clean_run(made: Prepared, *, gates: Sequence[GateSpec], draws: int, seed: int) -> CleanRun:
    """One more repeat of ref judged by the whole suite; prompts are drawn anew, shared by all gates.

    Prompts are drawn within groups that the same gates look at, so that the number of
    prompts with tensors stays what the prompt set says.

    Args:
        made: What clean pairs measure, and the gates that are simulated.
        gates: All of the suite.
        draws: Simulated runs.
        seed: Of the random numbers.
    """
    clean, cases = made.clean, made.cases
    fixed = [_fixed(gates, made, repeat) for repeat in range(len(clean.pairs))]
    where = {name: {p: i for i, p in enumerate(kept)} for name, kept in made.prompts.items()}
    groups = _groups(clean.itself.prompts, where)
    rng = np.random.default_rng([seed, len(gates)])
    floors = {name: _floors(case, clean) for name, case in cases.items()}
    runs: list[dict[str, Outcome]] = []
    for _ in range(draws):
        repeat = int(rng.integers(len(clean.pairs)))
        picked = [group[i] for group in groups for i in rng.integers(len(group), size=len(group))]
        outcomes = dict(fixed[repeat])
        for name, case in cases.items():
            row = repeat if case.gate.area != "yardstick" else 0
            at = np.array([where[name][prompt] for prompt in picked if prompt in where[name]])
            outcomes[name] = case.outcome(case.clean[row, at], repeat=row, floor=floors[name][row])
        runs.append(outcomes)
    opened = {
        gate.name: sum(run[gate.name] is not Outcome.PASS for run in runs)
        for gate in gates
        if gate.name in runs[0]
    }
    return CleanRun(
        draws=draws,
        passes_all=sum(set(run.values()) == {Outcome.PASS} for run in runs) / draws,
        any_fail=sum(not set(run.values()).isdisjoint(FOUND) for run in runs) / draws,
        not_passed={name: count / draws for name, count in opened.items() if count},
    )


def _groups(every: Sequence[str], where: Mapping[str, Mapping[str, int]]) -> list[tuple[str, ...]]:
    """Prompts that the very same gates look at."""
    groups: dict[tuple[bool, ...], list[str]] = {}
    for prompt in every:
        groups.setdefault(tuple(prompt in held for held in where.values()), []).append(prompt)
    return [tuple(group) for group in groups.values()]


def _floors(case: Case, clean: Clean) -> list[NoiseFloor | None]:
    """The floor each clean run is judged by: that of the other repeats where three are left."""
    if case.gate.area == "yardstick" or len(case.like) <= MIN_REPEATS:
        return [case.floor] * len(case.like)
    dtype = clean.itself.ref.manifest.dtype
    return [
        floor_of(case.gate, [*case.like[:i], *case.like[i + 1 :]], dtype=dtype, limit=case.limit)
        for i in range(len(case.like))
    ]


def _fixed(gates: Sequence[GateSpec], made: Prepared, repeat: int) -> dict[str, Outcome]:
    """Outcomes of the deterministic gates when this repeat stands in cand's place."""
    clean = made.clean
    dtype = clean.itself.ref.manifest.dtype
    found = {}
    for gate in gates:
        if gate.name in made.cases or gate.area == "yardstick":
            continue
        like = [one[gate.name] for one in clean.repeated]
        others = [one for i, one in enumerate(like) if i != repeat]
        limit = made.limits[gate.name]
        found[gate.name] = judge(
            gate,
            measurement=like[repeat],
            limit=limit,
            noise=floor_of(gate, others, dtype=dtype, limit=limit),
            alpha_share=made.shares[gate.name],
            rerun="",
        ).outcome
    return found
