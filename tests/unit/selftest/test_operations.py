"""The selftest of conformance: misses and false flags are told, and exit 1."""

import json

import pytest

from tests.unit.conformance import tiny
from validate.cli import main
from validate.conformance.registry import OPERATIONS
from validate.faults.kernels import OPERATION_CONTROLS, OPERATION_FAULTS
from validate.faults.operations import OperationControl, OperationFault
from validate.report.selftest import selftest_console, selftest_markdown
from validate.selftest import conformance_selftest
from validate.selftest.operations import judge_planted

EVERY: list[OperationFault | OperationControl] = [*OPERATION_FAULTS, *OPERATION_CONTROLS]


def fault(name: str, make, **settings: str) -> OperationFault:
    return OperationFault(
        id=name, op="double", title="t", source="s", settings=settings, make=lambda: make
    )


def control(name: str, make) -> OperationControl:
    return OperationControl(id=name, op="double", title="t", source="s", make=lambda: make)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch):
    """Plant other faults and controls, all in the tiny operation."""

    def plant(faults, controls) -> None:
        room = "validate.selftest.operations"
        monkeypatch.setattr(f"{room}.OPERATION_FAULTS", faults)
        monkeypatch.setattr(f"{room}.OPERATION_CONTROLS", controls)
        monkeypatch.setattr(f"{room}.find_operation", lambda name: tiny.OPERATION)

    return plant


def test_fault_is_caught_with_clause_point_and_pattern() -> None:
    row = judge_planted(fault("A", tiny.late_heads), tiny.OPERATION)

    assert row.held
    assert (row.points, row.points_failed, row.clauses) == (18, 6, {"value": 6})
    assert row.first == "B1-H16-s0"
    assert row.finding == "value: 4 values"
    assert row.pattern[0] == "only heads >= 12"


def test_settings_of_a_fault_are_used() -> None:
    assert judge_planted(fault("A", tiny.negated), tiny.OPERATION).held
    assert not judge_planted(fault("A", tiny.negated, sign="minus"), tiny.OPERATION).held


def test_missed_fault_and_flagged_control_are_told(planted) -> None:
    planted(
        (fault("HD-1", tiny.late_heads), fault("HD-2", tiny.right)),
        (control("OK-1", tiny.right), control("OK-2", tiny.late_rows)),
    )
    result = conformance_selftest(processes=1)
    text = selftest_console(result)

    assert not result.held
    assert [row.held for row in result.rows] == [True, False, True, False]
    assert "1 of 2 planted faults are caught, 1 of 2 controls are flagged" in text
    assert "MISSED HD-2 in double: no point of 18 failed" in text
    assert "FLAGGED OK-2 in double: value: " in text
    assert "| caught | HD-1 | double | 6/18 |" in selftest_markdown(result)
    assert "no fault is planted in: " in text


def test_exit_code_is_1_when_one_does_not_hold(planted, capsys) -> None:
    planted((fault("HD-2", tiny.right),), ())
    assert main(["conformance", "--selftest"]) == 1
    planted((fault("HD-1", tiny.late_heads),), ())
    assert main(["conformance", "--selftest", "--format", "json"]) == 0

    out = capsys.readouterr().out
    assert json.loads(out[out.index("{") :])["held"] is True


def test_nothing_planted_is_an_error_and_not_a_pass(planted, capsys) -> None:
    planted((), ())

    assert main(["conformance", "--selftest"]) == 2
    assert "no fault and no control is planted" in capsys.readouterr().err


@pytest.mark.slow
def test_two_processes_give_the_rows_in_the_order_of_the_catalogue() -> None:
    result = conformance_selftest(op="lse_merge", processes=2)

    wanted = [one.id for one in EVERY if one.op == "lse_merge"]
    assert [row.id for row in result.rows] == wanted
    assert result.held


def test_catalogue_names_operations_and_nothing_twice() -> None:
    keys = [(one.op, one.id) for one in EVERY]

    assert {one.op for one in EVERY} <= set(OPERATIONS)
    assert len(keys) == len(set(keys))
    assert [one.id for one in EVERY if not (one.title and one.source)] == []


def test_public_faults_and_the_controls_that_may_not_be_flagged_are_planted() -> None:
    groups = ("HD-", "SA-", "LA-", "QU-", "LC-", "MO-")
    public = {one.id for one in OPERATION_FAULTS if one.id.startswith(groups)}

    assert len(public) >= 30, sorted(public)
    assert {"OK-1", "OK-3", "OK-4", "OK-5", "OK-6", "OK-7"} <= {
        one.id for one in OPERATION_CONTROLS
    }


def test_every_operation_has_a_planted_fault() -> None:
    assert set(OPERATIONS) - {one.op for one in OPERATION_FAULTS} == set()
