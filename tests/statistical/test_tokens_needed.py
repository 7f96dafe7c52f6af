"""The number of tokens that an INCONCLUSIVE verdict names is enough."""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from validate.capture.project import load_project
from validate.gates.lossless import MARGIN
from validate.run import compare
from validate.run.drawn import shorten
from validate.schema.report import GateReport, Report
from validate.schema.verdict import GRAVITY
from validate.selftest.cases import Case, find_area
from validate.selftest.stage import Bench, make_cand, set_stage
from validate.suite import load_limits, load_suite

pytestmark = [pytest.mark.statistical, pytest.mark.golden, pytest.mark.long]

GATE = "speculative.uniform"
SEEDS = range(101, 121)
FEW = 200


class Seen(NamedTuple):
    """What one seed gave."""

    at_few: str
    """Gravest verdict of the area."""
    named: int
    """Tokens that the gate names."""
    at_named: str
    """Verdict of the gate with them."""


def test_with_the_number_of_tokens_named_greedy_rows_fail(monkeypatch: pytest.MonkeyPatch):
    """INCONCLUSIVE at 200 tokens for most seeds, FAIL at the number named there for 19 of 20.

    Of 128 seeds (2001 to 2128, fixed before a look) 107 were INCONCLUSIVE at 200 tokens and 125
    FAILed at the number named, 744 to 950: 97.7 %, 95 % interval 93.3 to 99.5 %; the first 20 of
    them all did. The 20 seeds here were fixed earlier and hold two at the edge, 107 and 111: where
    a token falls inside its own mass is drawn from the digest of the capture, so that 18 of them
    FAIL on some codes and 19 on others, with one key for all seeds 18. At 97.7 % 18 of 20 or
    fewer come with probability 8 %.
    """
    root = Path(__file__).resolve().parents[2]
    monkeypatch.chdir(root)
    monkeypatch.setattr(os, "environ", os.environ | {"OMP_NUM_THREADS": "1"})

    seen = [_seen(_judge(root, seed)) for seed in SEEDS]

    assert sum(one.at_few == "INCONCLUSIVE" for one in seen) >= 14, seen
    assert sum(one.at_named == "FAIL" for one in seen) >= 18, seen


def _judge(root: Path, seed: int) -> Callable[[int], Report]:
    """The comparison of one capture, by the number of sampled tokens that count."""
    bench = Bench(
        area="speculative",
        ref="cuda",
        project=root / "validate.toml",
        suite=root / "suites/default.toml",
    )
    project, suite = load_project(bench.project), load_suite(bench.suite)
    target = f"rocm:fault=VX-40,draft=off,seed={seed}"
    case = Case(id="VX-40", is_fault=True, title="", source="", target=target, expect="FAIL")
    stage = set_stage(bench, case, area=find_area(bench.area), project=project, suite=suite)
    cand = make_cand(case, stage, project)

    def judged(tokens: int) -> Report:
        return compare(
            ref=stage.ref,
            cand=shorten(cand, tokens),
            suite=suite,
            limits=load_limits(project.root / suite.limits),
            repeats=stage.repeats,
            oracle=stage.oracle,
            only=(bench.area,),
        )

    return judged


def _seen(judged: Callable[[int], Report]) -> Seen:
    first = judged(FEW)
    area = {gate.outcome.value for gate in first.gates if gate.name.startswith("speculative.")}
    named = _named(_gate(first))
    at_named = _gate(judged(named)).outcome.value
    return Seen(next(one for one in GRAVITY if one in area), named, at_named)


def _gate(report: Report) -> GateReport:
    return next(gate for gate in report.gates if gate.name == GATE)


def _named(gate: GateReport) -> int:
    """As its reason says where it is INCONCLUSIVE, and would say where it FAILs already."""
    measured, limit = gate.measurement, gate.limit
    assert measured is not None
    assert measured.detects is not None
    assert limit is not None
    named = math.ceil(MARGIN * measured.n * (measured.detects / limit.value) ** 2)
    if gate.outcome.value == "INCONCLUSIVE":
        assert f"about {named} needed" in (gate.reason or "")
    return named
