"""What a suite says of a run that is nothing but another repeat of ref, by simulation."""

from collections.abc import Mapping, Sequence

import numpy as np

from validate.gates import MIN_REPEATS, judge
from validate.run.power_cases import Clean
from validate.run.power_record import CleanRun
from validate.run.power_search import FOUND, Case
from validate.run.yardstick import floor_of
from validate.schema.suite import GateSpec
from validate.schema.verdict import Limit, NoiseFloor, Outcome

__all__ = ["clean_run"]


def clean_run(
    gates: Sequence[GateSpec],
    cases: Mapping[str, Case],
    prompts: Mapping[str, tuple[str, ...]],
    clean: Clean,
    limits: Mapping[str, Limit],
    shares: Mapping[str, float],
    *,
    draws: int,
    seed: int,
) -> CleanRun:
    """One more repeat of ref judged by the whole suite; prompts are drawn anew, shared by all gates.

    Prompts are drawn within groups that the same gates look at, so that the number of
    prompts with tensors stays what the prompt set says.

    Args:
        gates: All of the suite.
        cases: Those that are simulated.
        prompts: Prompts of each case.
        clean: What clean pairs measure.
        limits: Limit by gate.
        shares: Share of alpha by gate.
        draws: Simulated runs.
        seed: Of the random numbers.
    """
    repeats = range(len(clean.pairs))
    fixed = [_fixed(gates, cases, clean, limits, shares, repeat) for repeat in repeats]
    where = {name: {p: i for i, p in enumerate(kept)} for name, kept in prompts.items()}
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


def _fixed(
    gates: Sequence[GateSpec],
    cases: Mapping[str, Case],
    clean: Clean,
    limits: Mapping[str, Limit],
    shares: Mapping[str, float],
    repeat: int,
) -> dict[str, Outcome]:
    """Outcomes of the deterministic gates when this repeat stands in cand's place."""
    dtype = clean.itself.ref.manifest.dtype
    made = {}
    for gate in gates:
        if gate.name in cases or gate.area == "yardstick":
            continue
        like = [found[gate.name] for found in clean.repeated]
        others = [one for i, one in enumerate(like) if i != repeat]
        made[gate.name] = judge(
            gate,
            measurement=like[repeat],
            limit=limits[gate.name],
            noise=floor_of(gate, others, dtype=dtype, limit=limits[gate.name]),
            alpha_share=shares[gate.name],
            rerun="",
        ).outcome
    return made
