"""The diff of two reports: what moved, which way, and nothing else."""

import json
from typing import Any

from tests.unit.run.made import entry, limits, repeats, run, side, suite
from validate.report import diff_reports, render_diff
from validate.schema.report import Report
from validate.schema.suite import GateSpec


def moved(old: Report, new: Report, part: str) -> dict[str, tuple[str, str, str]]:
    return {
        one.name: (one.before, one.after, one.change)
        for one in diff_reports(old, new)
        if one.part == part
    }


def test_report_against_itself_moves_nothing() -> None:
    report = run(side("rocm", 0.1))

    assert diff_reports(report, report) == ()
    assert render_diff(report, report, style="console").count(": 0 moved") == 4


def test_verdicts_and_measurements_that_moved() -> None:
    old, new = run(side("rocm", 0.1)), run(side("rocm", 3.0))

    assert moved(old, new, "verdicts") == {
        "the whole run": ("PASS", "FAIL", "worse"),
        "logits.kl_p90": ("PASS", "FAIL", "worse"),
        "logits.kl_p50": ("PASS", "FAIL", "worse"),
        "state.kda_rel_l2": ("PASS", "FAIL", "worse"),
    }
    assert moved(new, old, "verdicts")["logits.kl_p90"] == ("FAIL", "PASS", "better")
    assert moved(old, new, "measurements")["logits.kl_p90"] == (
        "0.1 nats, n = 2 prompts",
        "3 nats, n = 2 prompts",
        "",
    )
    assert moved(old, new, "limits") == {}


def test_gate_that_no_longer_runs_is_worse() -> None:
    old, new = run(side("rocm", 0.1)), run(side("rocm", 0.1), only=["logits"])

    assert moved(old, new, "verdicts") == {"state.kda_rel_l2": ("PASS", "not run", "worse")}


def test_limits_that_moved_loosened_first() -> None:
    old = run(side("rocm", 0.1))
    new = run(
        side("rocm", 0.1),
        limits=limits(logits__kl_p90__bfloat16=entry(0.5), state__kda_rel_l2__bfloat16=entry(9.0)),
        suite=suite(beta=0.2),
    )

    found = [one for one in diff_reports(old, new) if one.part == "limits"]
    assert [(one.name, one.before, one.after, one.change) for one in found] == [
        ("power", "0.95", "0.8", "loosened"),
        ("state.kda_rel_l2.bfloat16", "1", "9", "loosened"),
        ("logits.kl_p90.bfloat16", "1", "0.5", "tightened"),
    ]


def test_new_budget_and_new_evidence_are_loosened() -> None:
    old = run(side("rocm", 0.1))
    budget = {"deviation__x__logits__kl_p90__bfloat16": entry(2.0)}
    new = run(
        side("rocm", 0.1),
        limits=limits(**budget),
        suite=suite(evidence=("hardware", "emulated", "unproven")),
    )

    assert moved(old, new, "limits") == {
        "accepted evidence": ("none", "unproven", "loosened"),
        "deviation.x.logits.kl_p90.bfloat16": ("none", "2", "loosened"),
    }


def test_demanded_value_of_an_exact_gate() -> None:
    def judged(equals: float) -> Report:
        gate = GateSpec(name="logits.kl_max", kind="exact", equals=equals)
        return run(side("rocm", 0.1), suite=suite(gate))

    assert moved(judged(0.0), judged(1.0), "limits") == {
        "logits.kl_max": ("exactly 0", "exactly 1", "")
    }


def test_provenance_that_moved() -> None:
    old = run(side("rocm", 0.1))
    card = old.ref.provenance.model_copy(update={"driver": "580.9", "threads": 4})
    ref = old.ref.model_copy(update={"provenance": card, "digest": "f" * 64})
    new = old.model_copy(update={"ref": ref, "repeats": old.repeats[:-1]})

    found = moved(old, new, "provenance")
    assert found["ref driver"] == ("575.1", "580.9", "")
    assert found["ref threads"] == ("none", "4", "")
    assert found["ref digest"][1] == "f" * 12
    assert found["repeat 4 target"] == ("cuda-repeat-3", "none", "")
    assert not any(name.startswith("cand") for name in found)


def test_json_and_markdown_hold_the_same_and_escape_it() -> None:
    old = run(side("rocm", 0.1), repeats=repeats(0.1, 0.1, 0.1))
    hostile: dict[str, Any] = {"label": "<b>@you\x1b[2J", "dtype": "<script>"}
    new = old.model_copy(update={"cand": old.cand.model_copy(update=hostile)})

    told = json.loads(render_diff(old, new, style="json"))
    assert (told["old"], told["new"]) == ("PASS", "PASS")
    assert {one["name"] for one in told["moved"]} == {"cand label", "cand dtype"}
    page = render_diff(old, new, style="markdown")
    assert "<b>" not in page
    assert "<script>" not in page
    assert "\x1b" not in page + render_diff(old, new, style="console")
