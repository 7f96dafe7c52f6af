"""Too few prompts are INCONCLUSIVE with a number, and that number gives PASS: each kind of gate.

``cuda`` against one of its repeats as they were recorded, judged in this process.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from validate.cli.cast import Cast, gather
from validate.cli.session import open_project, read_target
from validate.run import compare
from validate.schema.report import GateReport
from validate.schema.suite import Limits, Suite
from validate.suite import load_limits, load_suite

ROOT = Path(__file__).resolve().parents[2]
FEW = 3
STEPS = 3
"""Numbers that may be followed: a share seen on three prompts is a rough one."""
pytestmark = [pytest.mark.golden, pytest.mark.slow, pytest.mark.long]


@cache
def golden() -> tuple[Cast, Suite, Limits]:
    project = open_project()
    suite = load_suite(ROOT / "suites/default.toml")
    sides = read_target("cuda", project), read_target("cuda-repeat-2", project)
    cast = gather(*sides, project=project, suite=suite, fresh=False, progress=lambda *_: None)
    return cast, suite, load_limits(ROOT / suite.limits)


def ordered(gate: str) -> list[str]:
    """Prompts in the order of the golden, as far as they count for the gate."""
    cast, _, _ = golden()
    every = list(cast.ref.prompts.values())
    if gate.startswith("attention."):
        return [one.id for one in every if "tensors" in one.tags]
    return [one.id for one in every if len(one.token_ids) > 1 or gate != "logits.nll_delta"]


@cache
def judged(gate: str, count: int) -> GateReport:
    """The gate over the first prompts."""
    cast, suite, limits = golden()
    options: dict[str, Any] = {"oracle": cast.oracle, "weights": cast.weights}
    report = compare(
        ref=cast.ref,
        cand=cast.cand,
        suite=suite,
        limits=limits,
        repeats=cast.repeats,
        config=cast.config,
        only=[gate],
        prompts=ordered(gate)[:count],
        **options,
    )
    return next(one for one in report.gates if one.name == gate)


def number_in(found: GateReport) -> int:
    told = re.search(r"(?:about )?(\d+) needed", found.reason or "")
    assert told is not None, found.reason
    return int(told.group(1))


@pytest.mark.parametrize(
    ("gate", "numbers"),
    [
        ("logits.kl_p90", [29]),
        ("logits.nll_delta", [5]),
        ("logits.err_ratio", [11]),
        ("attention.rel_l2", [11]),
        ("attention.introduced_ratio", [11]),
        ("attention.head_rel_l2", [8]),
        ("logits.kl_exceed_rate", None),
        ("greedy.divergence_rate", None),
        ("greedy.flips_per_1000", None),
    ],
)
def test_the_number_that_is_named_gives_pass(gate, numbers):
    """Exact where nothing lies beyond the limit: order statistics and pooled units."""
    enough = len(ordered(gate))
    followed: list[int] = []
    found = judged(gate, FEW)
    while found.outcome == "INCONCLUSIVE" and len(followed) < STEPS:
        followed.append(number_in(found))
        assert FEW < followed[-1] <= enough
        found = judged(gate, followed[-1])

    assert found.outcome == "PASS", found.reason
    assert followed
    assert numbers is None or followed == numbers


@pytest.mark.parametrize("gate", ["logits.kl_p90", "attention.rel_l2"])
def test_one_prompt_less_is_not_enough(gate):
    needed = number_in(judged(gate, FEW))

    assert judged(gate, needed - 1).outcome == "INCONCLUSIVE"
    assert number_in(judged(gate, needed - 1)) == needed


def test_one_prompt_alone_fails_no_gate():
    """A clean pair: where a limit was made with more prompts, one prompt says nothing."""
    cast, suite, limits = golden()
    report = compare(
        ref=cast.ref,
        cand=cast.cand,
        suite=suite,
        limits=limits,
        repeats=cast.repeats,
        oracle=cast.oracle,
        weights=cast.weights,
        config=cast.config,
        prompts=ordered("attention.rel_l2")[:1],
    )
    outcomes = {one.name: one.outcome for one in report.gates}

    assert "FAIL" not in outcomes.values()
    assert outcomes["attention.head_rel_l2"] == "INCONCLUSIVE"
    assert report.verdict == "INCONCLUSIVE"
