"""False alarms of the whole default suite, simulated from the goldens through real intervals and gates.

The full simulation is a command; its record lies in ``golden/reports/false-alarms.json``. Here
runs a slice of it. Allowed counts are binomial quantiles at 99.9 %, so a right suite fails each
counting test in at most 1 of 1,000 choices of the seed; the seed is fixed.
"""

import dataclasses
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from validate.cli.cast import gather
from validate.cli.session import open_project, read_target
from validate.report.alarms import render_alarms
from validate.run.alarm_report import FalseAlarms, allowed, count_alarms
from validate.run.false_alarms import CleanSets, clean_sets, simulate
from validate.schema.suite import Limits
from validate.suite import limits_digest, load_limits, load_suite

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "golden/reports/false-alarms.json"
RUNS = 400
pytestmark = [pytest.mark.statistical, pytest.mark.golden, pytest.mark.slow]


@cache
def golden() -> tuple[CleanSets, Limits]:
    """The default suite on ref and its repeats."""
    project = open_project()
    suite = load_suite(ROOT / "suites/default.toml")
    limits = load_limits(ROOT / suite.limits)
    target = read_target("cuda", project)
    cast = gather(
        target, target, project=project, suite=suite, fresh=False, progress=lambda *_: None
    )
    sets = clean_sets(
        ref=cast.ref,
        repeats=cast.repeats,
        suite=suite,
        limits=limits,
        oracle=cast.oracle,
        weights=cast.weights,
        config=cast.config,
    )
    return sets, limits


def most(runs: int) -> int:
    """Alarms that 1 right suite of 1,000 exceeds."""
    return int(stats.binom.ppf(0.999, runs, 0.01))


@pytest.mark.parametrize("where", ["clean", "limit"])
def test_clean_runs_alarm_no_more_often_than_alpha(where):
    """As measured, and with every true value exactly at its limit."""
    found = simulate(golden()[0], where=where, runs=RUNS, rng=np.random.default_rng(7))

    assert found.alarms <= most(RUNS)
    assert found.runs == RUNS


def test_clean_runs_pass():
    """No alarm would be cheap if every gate stayed open."""
    found = simulate(golden()[0], where="clean", runs=RUNS, rng=np.random.default_rng(8))

    assert found.open <= RUNS // 20


def test_the_simulation_sees_a_suite_that_spends_too_much():
    """With 50 times alpha the same values, at their limits, alarm far more often than 1 %."""
    sets = golden()[0]
    greedy = dataclasses.replace(
        sets,
        repeats=tuple(
            tuple(dataclasses.replace(one, share=50 * one.share) for one in sources)
            for sources in sets.repeats
        ),
    )
    found = simulate(greedy, where="limit", runs=RUNS, rng=np.random.default_rng(9))

    assert found.alarms > 3 * most(RUNS)


def test_the_record_is_of_these_suites_and_keeps_to_alpha():
    """At least 2,000 runs, at most 31 alarms; made anew when suite or limits change."""
    found = FalseAlarms.model_validate_json(RECORD.read_text(encoding="utf-8"))
    suite = load_suite(ROOT / "suites/default.toml")

    assert found.runs >= 2000
    assert found.allowed == allowed(found.runs, suite.alpha)
    assert allowed(2000, 0.01) == 31
    assert found.clean.alarms <= found.allowed
    assert found.at_limit.alarms <= found.allowed
    assert found.suite_digest == suite.digest
    assert found.limits_digest == limits_digest(load_limits(ROOT / suite.limits))
    assert RECORD.with_suffix(".md").read_text(encoding="utf-8") == render_alarms(found)


def test_the_same_seed_counts_the_same():
    """A record can be made again."""
    sets, limits = golden()
    first, again = (count_alarms(sets, limits, runs=20, seed=3, command="x") for _ in range(2))

    assert first == again
    assert first.gates == len(sets.repeats[0]) == len(sets.suite.gates) - 4
