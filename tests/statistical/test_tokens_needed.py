"""The number of tokens that an INCONCLUSIVE verdict names is enough."""

import os
from pathlib import Path

import pytest

from validate.capture.project import load_project
from validate.run import compare
from validate.run.drawn import shorten
from validate.selftest.cases import Case, find_area
from validate.selftest.judge import row_of
from validate.selftest.stage import Bench, make_cand, set_stage
from validate.suite import load_limits, load_suite

pytestmark = [pytest.mark.statistical, pytest.mark.golden, pytest.mark.slow]

UNSURE = (
    *("inside-09", "inside-17", "recall-64-1", "text-00", "text-01", "text-02", "text-03"),
    *("unicode-1", "unicode-3", "boundary-65"),
)
"""Prompts on which the drafter's expected acceptance is below 0.9: the cut that reads its token
moves acceptance by about the effect that `speculative.acceptance_z` states."""
SEEDS = 20
FEW = 200


def test_with_the_number_of_tokens_named_a_peeking_cut_fails(monkeypatch: pytest.MonkeyPatch):
    """INCONCLUSIVE at 200 tokens, FAIL at the number named there, in 19 of 20 seeds each.

    Of captures made for the purpose, 20 of 20 did both; a test of power 95 % has fewer than 18
    FAILs of 20 with probability 8 %, but the effect here is above the stated one.
    """
    root = Path(__file__).resolve().parents[2]
    monkeypatch.chdir(root)
    monkeypatch.setattr(os, "environ", os.environ | {"OMP_NUM_THREADS": "1"})
    bench = Bench(
        area="speculative",
        ref="cuda",
        project=root / "validate.toml",
        suite=root / "suites/default.toml",
    )
    verdicts = [_verdicts(bench, seed) for seed in range(1, SEEDS + 1)]

    assert sum(first == "INCONCLUSIVE" for first, _ in verdicts) >= SEEDS - 1, verdicts
    assert sum(second == "FAIL" for _, second in verdicts) >= SEEDS - 1, verdicts


def _verdicts(bench: Bench, seed: int) -> tuple[str, str]:
    project = load_project(bench.project)
    suite = load_suite(bench.suite)
    target = f"rocm:fault=VX-21,seed={seed},tokens=176"
    case = Case(id="VX-21", is_fault=True, title="", source="", target=target, expect="FAIL")
    stage = set_stage(bench, case, area=find_area(bench.area), project=project, suite=suite)
    cand = make_cand(case, stage, project)

    def judged(tokens: int):
        found = compare(
            ref=stage.ref,
            cand=shorten(cand, tokens, prompts=UNSURE),
            suite=suite,
            limits=load_limits(project.root / suite.limits),
            repeats=stage.repeats,
            oracle=stage.oracle,
            only=(bench.area,),
            prompts=UNSURE,
        )
        return row_of(case, found, area=bench.area, prompts=len(UNSURE))

    first = judged(FEW)
    assert first.needed is not None
    return first.verdict.value, judged(first.needed).verdict.value
