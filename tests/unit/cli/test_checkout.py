"""A bundle's report held against this checkout: whose suite, limits and golden report they are."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.captures import write_capture
from tests.unit.run.made import side, suite
from validate.capture.goldens import Verified, backend_digest, write_verified
from validate.capture.project import Project, find_project
from validate.capture.reader import open_capture
from validate.cli.checkout import blocked_here, hold, on_its_word, stale_here
from validate.report import read_report
from validate.run import golden_path
from validate.run.since_golden import since_golden
from validate.schema.report import LimitChange, Report
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
    assert not held.unknown_law


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

    assert held.unknown_law
    assert not held.other_law
    assert not held.golden_here
    assert held.lines[:2] == (
        "suite: the bundle's own; this checkout has no suite 'foreign'",
        "limits: the bundle's own; this checkout has no golden/foreign.toml",
    )


@pytest.mark.parametrize(
    "changes", [{"name": "foreign"}, {"limits": "golden/foreign.toml", "name": "foreign"}]
)
def test_a_suite_or_limits_of_no_name_here_are_unknown(
    report: Report, project: Project, changes: dict[str, str]
) -> None:
    assert hold(moved(report, "suite", **changes), project).unknown_law


def test_a_file_that_holds_no_limits_is_none_of_this_checkout(
    report: Report, project: Project
) -> None:
    """What the bundle calls its limits may be any file here."""
    held = hold(moved(report, "suite", name="foreign", limits="pyproject.toml"), project)

    assert held.unknown_law
    assert held.lines[1] == "limits: the bundle's own; this checkout has no pyproject.toml"


def test_a_known_suite_whose_limits_are_missing_here_is_unknown(
    report: Report, tmp_path: Path
) -> None:
    for name in ("validate.toml", "suites/default.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    held = hold(report, find_project(tmp_path))

    assert (held.other_law, held.unknown_law) == (False, True)
    assert held.lines[0] == "limits: the bundle's own; this checkout has no golden/tolerances.toml"


def test_foreign_suite_with_these_limits_loosened_is_no_verdict(
    report: Report, project: Project
) -> None:
    """Another name of the suite does not hide that the limits file is not this checkout's."""
    held = hold(moved(report, "suite", name="foreign", limits_digest="0" * 64), project)

    assert held.other_law


def test_golden_report_that_tells_otherwise_is_the_bundles_own(
    report: Report, project: Project
) -> None:
    """By the same suite and limits: this checkout's figures are shown, and the check fails."""
    held = hold(moved(report, "since_golden", found=False), project)

    assert (held.golden_here, held.other_golden, held.other_law) == (False, True, False)
    assert held.lines[0].startswith(
        "golden report: the bundle's own, not golden/reports/default.json of this checkout: "
    )
    assert held.since == report.since_golden


def test_the_first_change_that_only_one_of_them_tells_is_named(
    report: Report, project: Project
) -> None:
    since = report.since_golden
    assert since is not None
    forged = LimitChange(
        name="logits.kl_p90", change="tightened", before="0.1", after="0.01", where="x"
    )
    held = hold(moved(report, "since_golden", changes=(*since.changes, forged)), project)

    n = len(since.changes)
    (line,) = held.lines
    assert line.endswith(
        f"checkout: {n + 1} limits moved by the bundle, {n} here; TIGHTENED logits.kl_p90: 0.1 -> "
        "0.01, in the bundle alone"
    )
    assert held.since == since


def test_without_the_same_law_nothing_is_shown_of_what_was_loosened(
    report: Report, project: Project
) -> None:
    for change in ({"digest": "0" * 64}, {"name": "foreign", "limits": "golden/foreign.toml"}):
        held = hold(moved(report, "suite", **change), project)
        assert (held.since, held.other_golden) == (None, False)


@pytest.mark.parametrize("source", ["today's", "another"])
def test_a_golden_of_other_source_is_stale_here(
    source: str, tmp_path: Path, project: Project
) -> None:
    """A note beside the capture makes it a golden; without one it is any capture."""
    write_capture(tmp_path / "ref")
    side = open_capture(tmp_path / "ref", label="ref")
    assert stale_here(side, project) is None
    digest = backend_digest("torch") if source == "today's" else "0" * 64
    note = Verified(
        backend="torch", source_digest=digest, how="recorded", device="cpu", hardware="x", date="d"
    )
    write_verified(tmp_path / "ref", note)

    why = stale_here(side, project)

    assert (why is None) is (source == "today's")
    assert why is None or why.startswith(f"golden '{side.manifest.target}' in {tmp_path}/ref is ")


def test_a_golden_of_this_checkout_is_held_to_its_own_note(tmp_path: Path) -> None:
    """Whether or not its note was left out of the bundle."""
    shutil.copy(ROOT / "validate.toml", tmp_path)
    project = find_project(tmp_path)
    golden = project.folder("cuda")
    write_capture(golden)
    shutil.copytree(golden, tmp_path / "bundled")
    side = open_capture(tmp_path / "bundled", label="mine")

    assert str(stale_here(side, project)).startswith("golden 'cuda' in ")
    note = Verified(
        backend="torch",
        source_digest=backend_digest("torch"),
        how="recorded",
        device="cpu",
        hardware="x",
        date="d",
    )
    write_verified(golden, note)
    assert stale_here(side, project) is None


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
