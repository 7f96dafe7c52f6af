"""What reports say of the stored table: figures, age, and that there is none."""

from pathlib import Path

import pytest

from tests.unit.run.made import run, side
from validate.report import render_console
from validate.run.selftest_summary import SELFTEST_PATH, load_summary, selftest_sources, summary_of
from validate.schema.selftest import (
    CaseReport,
    CleanReport,
    GateFinding,
    Selftest,
    said_of,
    table_contradiction,
)
from validate.schema.verdict import Outcome


def row(name: str, *, kind="fault", outcome=Outcome.FAIL, leading=True, **record) -> CaseReport:
    """One gate; what is said of it follows from its outcome and the record."""
    needed = 9 if outcome is Outcome.INCONCLUSIVE else None
    gates = (
        GateFinding(gate="logits.kl_max", outcome=outcome, value=1.0, reason=None, needed=needed),
    )
    expect = record.get("expect", "FAIL" if kind == "fault" else "PASS")
    wanted = ("logits.kl_max",) if kind == "fault" else ()
    said = said_of(
        gates, is_fault=kind == "fault", expect=expect, expected_gates=wanted, leading=leading
    )
    return CaseReport(
        id=name,
        kind=kind,
        title="t",
        source="s",
        cand="rocm",
        ref="cuda",
        prompts=1,
        expect=expect,
        expected_gates=wanted,
        gates=gates,
        finding=None,
        leading=leading,
        seconds=0.0,
        **said._asdict(),
    )


def table(**changes) -> Selftest:
    rows = (
        row("A"),
        row("A", outcome=Outcome.PASS, leading=False),
        row("B", outcome=Outcome.INCONCLUSIVE, expect="INCONCLUSIVE"),
        row("C", kind="control", outcome=Outcome.PASS),
        row("D", kind="control"),
    )
    fields = {
        "tool_version": "0",
        "area": "all",
        "suite": "default",
        "sources_digest": selftest_sources(),
        "date": "2026-01-01T00:00:00+00:00",
        "rows": rows,
        "held": False,
        "seconds": 1.0,
    }
    return Selftest(**(fields | changes))


def test_summary_counts_what_stands_at_the_severity_of_the_record() -> None:
    """A is caught, its smaller severity does not count; B is beyond the sample; D is flagged."""
    found = summary_of(table())

    assert (found.faults, found.caught, found.inconclusive) == (2, 1, 1)
    assert (found.controls, found.flagged, found.clean) == (2, 1, 0)
    assert (found.complete, found.stale) == (True, False)


def test_summary_of_other_sources_is_stale_and_of_a_part_incomplete() -> None:
    found = summary_of(table(sources_digest="0" * 64, left=("E: not begun",)))

    assert (found.complete, found.stale) == (False, True)


def test_report_tells_the_summary_or_that_there_is_none(tmp_path: Path) -> None:
    bare = run(side("rocm"))
    stale = summary_of(table(sources_digest="0" * 64))
    told = render_console(bare.model_copy(update={"selftest": stale}))

    assert "no selftest is stored" in render_console(bare)
    assert "1 of 2 planted faults caught, 1 beyond the sample; 1 of 2 controls flagged" in told
    assert "stale: the sources have changed since; next: validate selftest" in told
    assert load_summary(tmp_path) is None


@pytest.mark.parametrize("text", ["{}", "not json"])
def test_table_of_another_form_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / SELFTEST_PATH
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert load_summary(tmp_path) is None

    path.write_text(table().model_dump_json())
    assert load_summary(tmp_path) == summary_of(table())


def test_table_that_contradicts_its_rows_is_none(tmp_path: Path) -> None:
    """A fault that nothing caught is said to hold; alarms are named and not counted."""
    path = tmp_path / SELFTEST_PATH
    path.parent.mkdir(parents=True)
    missed = row("E", outcome=Outcome.PASS).model_copy(update={"held": True})
    clean = CleanReport(
        runs=3,
        alarms=0,
        allowed=1,
        open=0,
        prompts=1,
        alarmed=("rocm: x",),
        sources_digest="0" * 64,
        date="",
        seconds=1.0,
    )
    for changes, said in (
        ({"rows": (missed,)}, "row E: it says held True, its gates and its record say False"),
        ({"clean": clean}, "0 alarms in 3 clean candidates, 1 named"),
        ({"held": True}, "it says that it held; D did not"),
    ):
        path.write_text(table(**changes).model_dump_json())

        assert load_summary(tmp_path) is None
        assert table_contradiction(table(**changes)) == said
