"""A bundle's report held against this checkout: whose suite, limits and golden report they are."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.run.made import side, suite
from validate.capture.project import Project, find_project
from validate.cli.checkout import blocked_here, hold, on_its_word
from validate.report import read_report
from validate.run import golden_path
from validate.run.since_golden import since_golden
from validate.schema.report import Report
from validate.suite import limits_digest, load_limits, load_suite

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def project() -> Project:
    return find_project(ROOT)


@pytest.fixture(scope="module")
def report(project: Project) -> Report:
    """As one made today by the default suite of this checkout."""
    suite = load_suite(project.suite)
    limits = load_limits(project.root / suite.limits)
    golden = read_report(project.root / golden_path(suite.name))
    told = {"digest": suite.digest, "limits_digest": limits_digest(limits)}
    return golden.model_copy(
        update={
            "suite": golden.suite.model_copy(update=told),
            "since_golden": since_golden(suite, limits, golden=golden),
        }
    )


def moved(report: Report, part: str, **changes: Any) -> Report:
    return report.model_copy(update={part: getattr(report, part).model_copy(update=changes)})


def test_report_by_this_checkouts_files_is_taken_as_it_is(report: Report, project: Project) -> None:
    held = hold(report, project)

    assert (held.lines, held.other_law, held.golden_here) == ((), False, True)


def test_loosened_limits_are_told_and_no_verdict(report: Report, project: Project) -> None:
    key, limit = next(iter(report.limits.items()))
    loose = {**report.limits, key: limit.model_copy(update={"value": 10 * limit.value})}
    forged = moved(report.model_copy(update={"limits": loose}), "suite", limits_digest="0" * 64)

    held = hold(forged, project)

    assert held.other_law
    assert not held.golden_here
    assert held.lines[0].startswith(
        "limits: the bundle's own, not golden/tolerances.toml of this checkout: 1 looser, 0 more, "
        f"0 missing; {key}: "
    )
    assert held.lines[1].startswith("golden report: the bundle's own, not golden/reports/default")


def test_other_suite_of_the_same_name_is_told_and_no_verdict(
    report: Report, project: Project
) -> None:
    held = hold(moved(report, "suite", digest="0" * 64), project)

    assert held.other_law
    assert held.lines[0].startswith("suite: the bundle's own, not ")
    assert "of this checkout (digest 000000000000, here " in held.lines[0]


def test_suite_and_limits_that_are_not_here_are_the_bundles_own(
    report: Report, project: Project
) -> None:
    held = hold(moved(report, "suite", name="foreign", limits="golden/foreign.toml"), project)

    assert not held.other_law
    assert not held.golden_here
    assert held.lines[:2] == (
        "suite: the bundle's own; this checkout has no suite 'foreign'",
        "limits: the bundle's own; this checkout has no golden/foreign.toml",
    )


def test_foreign_suite_with_these_limits_loosened_is_no_verdict(
    report: Report, project: Project
) -> None:
    """Another name of the suite does not hide that the limits file is not this checkout's."""
    held = hold(moved(report, "suite", name="foreign", limits_digest="0" * 64), project)

    assert held.other_law


def test_golden_report_that_tells_otherwise_is_the_bundles_own(
    report: Report, project: Project
) -> None:
    held = hold(moved(report, "since_golden", found=False), project)

    assert not held.golden_here
    assert held.lines[0].startswith("golden report: the bundle's own")


def test_what_no_check_computes_again_is_listed(report: Report) -> None:
    named = moved(report, "cand", label="vllm-on-mi355x")
    told = on_its_word(named.model_copy(update={"blocked": ("stale",)}))

    assert told.startswith(f"not computed again: tool version {report.tool_version}, ")
    assert "hardware, drivers and times as the captures tell them" in told
    assert "1 reasons known before the comparison" in told
    assert (
        f"the name 'vllm-on-mi355x' of cand, whose capture is of target '{report.cand.target}'"
        in (told)
    )


def test_captures_of_other_prompts_are_blocked_by_this_checkouts_suite(project: Project) -> None:
    default = load_suite(project.suite)

    (why,) = blocked_here(side("cuda"), side("rocm"), default, project)
    assert why.startswith("ref cuda was captured on other prompts than the suite's: ")
    assert blocked_here(side("cuda"), side("rocm"), suite(), project) == ()
