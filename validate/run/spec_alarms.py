"""How often the speculative gates alarm on a right sampler, and how often on each wrong one."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

import validate
from validate.gates import judge
from validate.metrics import METRICS
from validate.run.alarm_report import allowed
from validate.run.compare import levels_of
from validate.run.spec_sampler import HONEST, WRONG, Sampler
from validate.run.spec_simulation import simulated_pair
from validate.schema.pair import Pair
from validate.schema.suite import GateSpec, Suite
from validate.schema.verdict import Limit, Outcome
from validate.suite import alpha_shares

__all__ = ["AREA", "SpecAlarms", "SpecCount", "SpecPower", "count_spec_alarms", "outcomes"]

AREA = "speculative"
TOKENS = 64
"""Of each stream, as in the shipped captures."""
LEFT_OUT = ("bound",)
"""Kinds that hold cand against ref or against passes of a model: there is no model here."""
NO_GREEDY = "speculative.greedy_unexplained"
Told = Callable[[int, int, str], None]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SpecCount(_Record):
    """Runs of one right sampler."""

    sampler: str
    title: str
    runs: int
    alarms: int
    """Runs in which any gate of the area FAILs."""
    open: int
    """Runs without an alarm in which some gate is INCONCLUSIVE."""
    by_gate: dict[str, int]
    allowed: int
    """The 99 % quantile of the count when every run alarms with the area's share of alpha."""


class SpecPower(_Record):
    """Runs of one wrong sampler at one number of tokens."""

    sampler: str
    title: str
    tokens: int
    """Tokens at T > 0 of each kind of streams."""
    runs: int
    caught: int
    """Runs in which any gate of the area FAILs."""
    not_passed: int
    """Runs in which not every gate PASSes."""
    by_gate: dict[str, int]


class SpecAlarms(_Record):
    """``golden/reports/speculative.json``."""

    schema_version: Literal[1] = 1
    tool_version: str
    suite: str
    suite_digest: str
    alpha: float
    share: float
    """Of alpha that the gates of this simulation spend."""
    streams: int
    seed: int
    clean: tuple[SpecCount, ...]
    power: tuple[SpecPower, ...]
    command: str


def outcomes(pair: Pair, suite: Suite) -> dict[str, Outcome]:
    """The outcome of every gate of the area that needs no model, through the real metrics and rules."""
    shares = alpha_shares(suite)
    gates = _gates(suite)
    levels = levels_of(gates, suite=suite, shares=shares)
    return {
        gate.name: judge(
            gate,
            measurement=METRICS[gate.measures](pair, levels[gate.name]),
            limit=Limit(value=gate.effect or gate.equals, source="derived", pointer="suite"),
            noise=None,
            alpha_share=shares[gate.name],
            rerun="",
            beta=suite.beta,
        ).outcome
        for gate in gates
    }


def count_spec_alarms(
    suite: Suite,
    *,
    runs: int,
    streams: int,
    power_runs: int,
    power_streams: Sequence[int],
    seed: int,
    command: str,
    told: Told,
    processes: int = 1,
    honest: Sequence[Sampler] = HONEST,
    wrong: Sequence[Sampler] = WRONG,
) -> SpecAlarms:
    """Simulate right samplers, and wrong ones at several numbers of streams.

    Args:
        suite: Whose gates and shares of alpha.
        runs: Clean runs of each right sampler.
        streams: Streams of each kind in a clean run.
        power_runs: Runs of each wrong sampler at each size.
        power_streams: Streams of each kind.
        seed: Of all random numbers.
        command: The command that makes the record again.
        told: Of progress: done, of how many, what.
        processes: How many samplers at a time; the counts do not depend on it.
        honest: Samplers that must not alarm.
        wrong: Samplers that must.
    """
    shares = alpha_shares(suite)
    share = sum(shares[gate.name] for gate in _gates(suite))
    quiet = told if processes == 1 else _silent
    jobs: list[Callable[[], SpecCount | SpecPower]] = []
    for place, sampler in enumerate(honest):
        rng = np.random.default_rng([seed, place])
        jobs.append(
            partial(
                _clean, suite, sampler, runs=runs, streams=streams, rng=rng, share=share, told=quiet
            )
        )
    for place, sampler in enumerate(wrong):
        for size in power_streams:
            rng = np.random.default_rng([seed, 1000 + place, size])
            jobs.append(partial(_power, suite, sampler, runs=power_runs, streams=size, rng=rng))
    found = _all(jobs, processes=processes, told=told)
    clean = [one for one in found if isinstance(one, SpecCount)]
    power = [one for one in found if isinstance(one, SpecPower)]
    return SpecAlarms(
        tool_version=validate.__version__,
        suite=suite.name,
        suite_digest=suite.digest,
        alpha=suite.alpha,
        share=share,
        streams=streams,
        seed=seed,
        clean=tuple(clean),
        power=tuple(power),
        command=command,
    )


def _all(
    jobs: Sequence[Callable[[], SpecCount | SpecPower]], *, processes: int, told: Told
) -> list[SpecCount | SpecPower]:
    """Results in the order of the jobs, each with random numbers of its own."""
    found = []
    if processes == 1:
        for place, job in enumerate(jobs):
            told(place, len(jobs), "samplers and sizes")
            found.append(job())
        return found
    with ProcessPoolExecutor(processes) as pool:
        for place, one in enumerate(pool.map(_call, jobs)):
            told(place + 1, len(jobs), "samplers and sizes")
            found.append(one)
    return found


def _call(job: Callable[[], SpecCount | SpecPower]) -> SpecCount | SpecPower:
    return job()


def _silent(_done: int, _of: int, _what: str) -> None:
    """One bar cannot show what several processes do."""


def _gates(suite: Suite) -> list[GateSpec]:
    return [
        gate
        for gate in suite.gates
        if gate.area == AREA and gate.kind not in LEFT_OUT and gate.name != NO_GREEDY
    ]


def _clean(
    suite: Suite,
    sampler: Sampler,
    *,
    runs: int,
    streams: int,
    rng: np.random.Generator,
    share: float,
    told: Told,
) -> SpecCount:
    alarms = opened = 0
    by_gate: dict[str, int] = {}
    for run in range(runs):
        told(run, runs, f"clean, {sampler.name}")
        found = outcomes(simulated_pair(sampler, streams=streams, tokens=TOKENS, rng=rng), suite)
        loud = _loud(found, by_gate)
        alarms += loud
        opened += not loud and any(o is not Outcome.PASS for o in found.values())
    return SpecCount(
        sampler=sampler.name,
        title=sampler.title,
        runs=runs,
        alarms=alarms,
        open=opened,
        by_gate=by_gate,
        allowed=allowed(runs, share),
    )


def _power(
    suite: Suite, sampler: Sampler, *, runs: int, streams: int, rng: np.random.Generator
) -> SpecPower:
    caught = missed = 0
    by_gate: dict[str, int] = {}
    for _ in range(runs):
        found = outcomes(simulated_pair(sampler, streams=streams, tokens=TOKENS, rng=rng), suite)
        caught += _loud(found, by_gate)
        missed += any(o is not Outcome.PASS for o in found.values())
    return SpecPower(
        sampler=sampler.name,
        title=sampler.title,
        tokens=streams * TOKENS,
        runs=runs,
        caught=caught,
        not_passed=missed,
        by_gate=by_gate,
    )


def _loud(found: dict[str, Outcome], by_gate: dict[str, int]) -> bool:
    """Whether any gate FAILs; counts each that does."""
    loud = [name for name, outcome in found.items() if outcome is Outcome.FAIL]
    for name in loud:
        by_gate[name] = by_gate.get(name, 0) + 1
    return bool(loud)
