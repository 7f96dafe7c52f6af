"""The record of a false-alarm simulation: counts, what was drawn from, and how many are allowed."""

from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

import validate
from validate.run.false_alarms import Alarms, CleanSets, Where, simulate
from validate.schema.suite import Limits
from validate.stats import binomial_quantile
from validate.suite import limits_digest

__all__ = ["CONFIDENCE", "AlarmCount", "FalseAlarms", "allowed", "count_alarms"]

CONFIDENCE = 0.99
"""A right suite exceeds the allowed count in 1 of 100 simulations."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class AlarmCount(_Record):
    """What one simulation counted."""

    alarms: int
    """Runs in which any gate FAILs or blames ref."""
    by_gate: dict[str, int]
    open: int
    """Runs without an alarm in which some gate is INCONCLUSIVE."""


class FalseAlarms(_Record):
    """``golden/reports/false-alarms.json``."""

    schema_version: Literal[1] = 1
    tool_version: str
    suite: str
    suite_digest: str
    limits_digest: str
    alpha: float
    gates: int
    """Simulated gates."""
    shares: dict[str, float]
    """Share of alpha of each gate that spends some."""
    repeats: int
    runs: int
    seed: int
    allowed: int
    """The 99 % quantile of the count when every run alarms with probability alpha."""
    clean: AlarmCount
    at_limit: AlarmCount
    command: str


def allowed(runs: int, alpha: float) -> int:
    """The most alarms that ``runs`` clean runs may show: the binomial quantile at ``CONFIDENCE``.

    Example:
        >>> allowed(2000, 0.01)
        31
    """
    return binomial_quantile(CONFIDENCE, n=runs, p=alpha)


def count_alarms(
    sets: CleanSets, limits: Limits, *, runs: int, seed: int, command: str
) -> FalseAlarms:
    """Simulate both kinds of clean runs.

    Args:
        sets: What to draw from.
        limits: The limits the sets were made with.
        runs: How many of each kind.
        seed: Of the random numbers.
        command: The command that makes the record again.
    """
    suite = sets.suite
    sources = sets.repeats[0]
    return FalseAlarms(
        tool_version=validate.__version__,
        suite=suite.name,
        suite_digest=suite.digest,
        limits_digest=limits_digest(limits),
        alpha=suite.alpha,
        gates=len(sources),
        shares={one.gate.name: one.share for one in sources if one.share > 0},
        repeats=len(sets.repeats),
        runs=runs,
        seed=seed,
        allowed=allowed(runs, suite.alpha),
        clean=_count(sets, "clean", runs, seed),
        at_limit=_count(sets, "limit", runs, seed + 1),
        command=command,
    )


def _count(sets: CleanSets, where: Where, runs: int, seed: int) -> AlarmCount:
    found: Alarms = simulate(sets, where=where, runs=runs, rng=np.random.default_rng(seed))
    return AlarmCount(alarms=found.alarms, by_gate=dict(found.by_gate), open=found.open)
