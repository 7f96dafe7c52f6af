"""Nothing on the console is endless: names and reasons of captures are cut, and the rest is counted."""

import pytest

from tests.pages import full_report, report_with
from validate.report import render_console, render_diff
from validate.report.console import render_gate
from validate.report.visible import MOST_TEXT
from validate.schema.report import Report
from validate.schema.verdict import Outcome

MILLION = 1_000_000
MORE = f"({MILLION - MOST_TEXT:,} more characters)"


def long_names() -> Report:
    """A report whose every place that a capture fills holds a million characters."""
    text = "x" * MILLION
    report = report_with(text)
    made = report.cand.provenance.model_copy(update={"hardware": text})
    sides = {
        role: getattr(report, role).model_copy(
            update={"label": text, "path": text, "provenance": made, "target": text}
        )
        for role in ("ref", "cand")
    }
    gate = report.gates[0].model_copy(update={"outcome": Outcome.INCOMPARABLE, "reason": text})
    return report.model_copy(update={**sides, "gates": (gate, *report.gates[1:])})


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("report", [report_with("x" * MILLION), long_names()], ids=["one", "all"])
def test_a_megabyte_is_cut_and_counted(report, terminal):
    text = render_console(report, terminal=terminal)

    assert MORE in text
    assert "x" * (MOST_TEXT + 1) not in text
    assert len(text) < 100_000


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.INCONCLUSIVE])
def test_one_gate_is_cut_as_well(outcome):
    report = report_with("x" * MILLION)
    gate = report.gates[4].model_copy(update={"outcome": outcome})

    text = render_gate(gate, report)

    assert "more characters)" in text
    assert "x" * (MOST_TEXT + 1) not in text


def test_evidence_outlasts_the_cut():
    """The candidate's evidence stands at the end of a line, behind what was cut."""
    report = long_names()
    report = report.model_copy(
        update={"cand": report.cand.model_copy(update={"evidence": "emulation"})}
    )

    lines = render_console(report).splitlines()

    beside = [line for line in lines if line.startswith(("  cand   : ", "  cand : "))]
    assert len(beside) == 2
    assert all("emulation" in line for line in beside)
    reason = next(line for line in lines if line.startswith("INCOMPARABLE yardstick"))
    assert reason.endswith(f"{MORE} [cand: emulation]")


def test_a_diff_is_cut_and_counted():
    for style in ("console", "markdown"):
        text = render_diff(full_report(), long_names(), style=style)
        assert "more characters)" in text
        assert "x" * (MOST_TEXT + 1) not in text


def test_what_is_short_is_whole():
    assert "more characters" not in render_console(full_report())
