"""The table of rules: seeded, committed, and what it says is what the rules say."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tests.measured import assert_measured
from validate.report.evals_power import render_evals_power
from validate.run.evals_power import CASES, EvalsPower, N, simulate_evals_power
from validate.suite import load_limits, load_suite

ROOT = Path(__file__).parents[3]
SUITE = load_suite(ROOT / "suites/evals.toml")


def simulated(runs: int, seed: int = 1) -> EvalsPower:
    limits = load_limits(ROOT / SUITE.limits)
    return simulate_evals_power(
        SUITE, limits, runs=runs, seed=seed, command="test", told=lambda *_: None
    )


def test_table_repeats_and_depends_on_its_seed() -> None:
    """The same seed gives the same rows."""
    assert simulated(20) == simulated(20)
    assert simulated(20).rows != simulated(20, seed=2).rows


def test_committed_table_is_of_this_suite() -> None:
    """Digest, margin and rows; the page is what the record renders to."""
    text = (ROOT / "golden/reports/evals-power.json").read_text("utf-8")
    found = EvalsPower.model_validate(json.loads(text))

    assert found.suite_digest == SUITE.digest
    assert [(row.drop, row.discordant) for row in found.rows] == [tuple(case) for case in CASES]
    assert render_evals_power(found) == (ROOT / "golden/reports/evals-power.md").read_text("utf-8")


@pytest.mark.golden
def test_committed_table_keeps_both_risks() -> None:
    """At the margin: FAIL at most at the gate's share, PASS in at most 6 of 100 runs."""
    text = (ROOT / "golden/reports/evals-power.json").read_text("utf-8")
    rows = {
        (row.drop, row.discordant): row for row in EvalsPower.model_validate(json.loads(text)).rows
    }

    for discordant in (2.0, 5.0):
        assert rows[0.0, discordant].fails <= 0.6
        assert rows[1.0, discordant].fails <= 0.6
        assert rows[1.0, discordant].not_passed >= 94.0
    assert rows[2.0, 5.0].mcnemar > rows[2.0, 5.0].lm_eval > rows[2.0, 5.0].trt_llm
    assert rows[5.0, 8.0].fixed < 0.5


def test_fixed_tolerance_and_trt_rule_by_hand() -> None:
    """TensorRT-LLM at n = 1,319: 3.2 points below ref (the survey's table); eight points never."""
    threshold = stats.norm.ppf(0.95) * np.sqrt(2 * 50.0**2 / N)

    assert_measured(threshold, 3.2, atol=0.05, rtol=0)
    assert {row.fixed for row in simulated(50).rows} == {0.0}
