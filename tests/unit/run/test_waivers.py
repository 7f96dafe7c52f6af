"""A waived gate in a whole run: the outcome stays, the exit code and the words change."""

import datetime as dt

import pytest

from tests.unit.run.made import gate, outcomes, run, side
from validate.errors import SuiteError
from validate.report import render_console, render_json, render_markdown
from validate.schema.suite import Waiver


def waiver(name, **changes):
    """A waiver of one gate."""
    fields = {"gate": name, "reason": "repair", "issue": "K-12", "expires": dt.date(2030, 1, 1)}
    return Waiver(**{**fields, **changes})


ALL = [waiver("logits.kl_p90"), waiver("logits.kl_p50"), waiver("state.kda_rel_l2")]


def test_waived_failures_do_not_count_and_never_show_as_pass():
    """Exit 0; the gate is FAIL in the JSON and WAIVED wherever a reader looks."""
    report = run(side("rocm", 3.0), waivers=ALL)
    found = gate(report, "state.kda_rel_l2")
    console, page = render_console(report), render_markdown(report)

    assert report.exit_code == 0
    assert (found.outcome, found.waiver) == ("FAIL", "repair (K-12; until 2030-01-01, cand *)")
    assert '"waiver": "repair (K-12; until 2030-01-01, cand *)"' in render_json(report)
    assert "confidence (4 gates; 3 WAIVED, which were not)" in console
    assert "state.kda_rel_l2 is FAIL and does not count: repair (K-12; until" in console
    assert "WAIVED (FAIL) state.kda_rel_l2: 3 nats, limit 1" in console
    rows = [line for line in console.splitlines() if line.startswith("|") and ".kda_" in line]
    assert [row.split()[0] for row in rows] == ["|WAIVED"]
    assert "**Waivers**" in page
    assert "| **WAIVED** | state.kda_rel_l2 |" in page
    assert "| WAIVED | state.kda_rel_l2 |" in page


def test_what_is_not_waived_still_counts():
    """One waiver of three failures: exit 1, and it is told how many are aside."""
    report = run(side("rocm", 3.0), waivers=ALL[:1])

    assert report.exit_code == 1
    assert "(2 of 7 gates are FAIL, 1 more are WAIVED)" in render_console(report)


def test_an_inconclusive_gate_may_be_waived():
    """It keeps its reason."""
    report = run(side("rocm", 0.95), waivers=[waiver("logits.kl_p90")], only=["logits.kl_p90"])

    assert report.exit_code == 0
    assert "WAIVED (INCONCLUSIVE) logits.kl_p90: upper limit 1.045" in render_console(report)


def test_a_waiver_of_a_gate_that_did_not_run_is_not_unused():
    """``--only`` agrees with the full run."""
    report = run(side("rocm", 3.0), waivers=ALL, only=["state"])

    assert report.exit_code == 0
    assert "logits.kl_p90" not in outcomes(report)


def test_an_unused_waiver_stops_the_run():
    """Exit 2, naming it."""
    with pytest.raises(SuiteError, match=r"unused waiver: logits\.kl_p90 is PASS") as caught:
        run(side("rocm", 0.2), waivers=ALL)

    assert caught.value.exit_code == 2


def test_an_unfit_yardstick_is_not_waived_away():
    """Nothing is judged, so nothing is forgiven."""
    report = run(side("rocm", 3.0), waivers=ALL, oracle=side("oracle", 2.5))

    assert report.exit_code == 4
    assert all(found.waiver is None for found in report.gates)
