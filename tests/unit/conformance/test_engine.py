"""From a function to a verdict: sweeps, patterns, the smallest failing input."""

import math
from pathlib import Path

import pytest

from tests.unit.conformance import tiny
from validate.conformance.engine import TIME_LIMIT, WAITED, run_conformance, sweep
from validate.conformance.guard import direct
from validate.conformance.records import Effort
from validate.conformance.stored import load_case
from validate.errors import InputError, ValidateError
from validate.schema.conformance import ConformanceResult

HERE = "tests.unit.conformance.tiny"


def run(function, **options):
    return run_conformance(tiny.OPERATION, function, **options)


def test_right_implementation_passes_every_point() -> None:
    result = run(tiny.right)

    assert result.verdict == "PASS"
    assert result.reason is None
    assert (result.points, result.points_failed, result.failed) == (18, 0, ())
    assert result.smallest is None
    assert set(result.clauses) >= {"value", "repeats", "own-memory", "time"}
    assert "no ROCm device was here" in result.unrun[-1].why
    assert ConformanceResult.model_validate_json(result.model_dump_json()) == result


def test_full_effort_runs_more_points() -> None:
    assert run(tiny.right, effort=Effort.FULL).points == 36


def test_settings_change_what_is_judged() -> None:
    assert run(tiny.negated).verdict == "FAIL"
    assert run(tiny.negated, settings={"sign": "minus"}).verdict == "PASS"


def test_wrong_heads_are_told_as_a_pattern_and_shrunk(tmp_path: Path) -> None:
    result = run(tiny.late_heads, save_to=tmp_path / "case")

    assert result.verdict == "FAIL"
    assert result.reason == "6 of 18 points break: value"
    assert result.clauses["value"] == 6
    assert result.pattern == ("only heads >= 12", "only when heads >= 16")
    assert result.smallest is not None
    assert result.smallest.id == "B1-H13-s0"
    assert result.smallest.size == 13 * 4
    assert result.smallest.breaches[0].wrong == {"row": (0,), "head": (12,)}
    assert (
        result.smallest.rerun
        == f"validate conformance --case {tmp_path / 'case'} --impl {result.implementation}"
    )
    _, saved = load_case(tmp_path / "case")
    assert run(tiny.late_heads, case=saved).verdict == "FAIL"
    assert run(tiny.right, case=saved).verdict == "PASS"


def test_wrong_rows_need_two_conditions() -> None:
    assert run(tiny.late_rows).pattern == (
        "only rows >= 1",
        "only when shift >= 1 and batch > 1",
    )


def test_row_that_depends_on_its_batch_breaks_solo() -> None:
    result = run(tiny.mixes_rows)

    assert result.clauses["solo"] == 4
    assert result.clauses["value"] == 2


def test_raising_implementation_fails_every_point() -> None:
    result = run(tiny.raises)

    assert result.clauses["returns"] == result.points == 18
    assert result.pattern == ("every sweep point (18 of 18)",)
    assert result.smallest is not None
    assert result.smallest.id == "B1-H1-s0"


def test_sweep_without_points_is_an_error_and_never_a_pass() -> None:
    with pytest.raises(ValidateError, match="double: the quick sweep has no point"):
        run_conformance(tiny.NOTHING, tiny.right)


def test_check_that_raises_is_a_bug_and_no_verdict() -> None:
    import dataclasses

    def check(case, call, settings):
        raise IndexError("17")

    broken = dataclasses.replace(tiny.OPERATION, check=check)
    with pytest.raises(ValidateError, match="point B1-H4-s0: the check itself raised IndexError"):
        run_conformance(broken, tiny.right)


def test_breach_of_an_unknown_clause_is_a_bug() -> None:
    import dataclasses

    from validate.conformance.records import Breach

    broken = dataclasses.replace(
        tiny.OPERATION, check=lambda case, call, settings: (Breach(clause="beauty", what=""),)
    )
    with pytest.raises(ValidateError, match=r"no clause of the contract: \['beauty'\]"):
        run_conformance(broken, tiny.right)


def test_two_points_of_one_name_are_an_error() -> None:
    import dataclasses

    twice = dataclasses.replace(
        tiny.OPERATION, cases=lambda effort, settings: iter((tiny.case(1, 4), tiny.case(1, 4)))
    )
    with pytest.raises(ValidateError, match="two sweep points are named B1-H4-s0"):
        run_conformance(twice, tiny.right)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"sing": "plus"}, "double has no setting 'sing'; did you mean 'sign'?"),
        ({"sign": "minos"}, "'minos' is no value of 'sign'; did you mean 'minus'?"),
    ],
)
def test_unknown_setting_is_refused_with_the_nearest(settings, text: str) -> None:
    with pytest.raises(InputError) as caught:
        run(tiny.right, settings=settings)

    assert text in str(caught.value)


def test_device_that_is_not_here_is_inconclusive() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    result = run(tiny.right, device="cuda")

    assert result.verdict == "INCONCLUSIVE"
    assert result.reason == "nothing ran: there is no CUDA device here"
    assert result.points == 0


def test_progress_is_told_after_each_point() -> None:
    told: list[tuple[int, int, str]] = []
    settings = {"sign": "plus"}
    sweep(
        tiny.OPERATION,
        direct(tiny.right, tiny.OPERATION, settings),
        settings,
        progress=lambda *what: told.append(what),
    )

    assert told[0] == (1, 18, "double B1-H4-s0")
    assert told[-1][:2] == (18, 18)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "clause", "reason"),
    [("hangs", "time", "processes hung or died"), ("crashes", "returns", "died of SIGSEGV")],
)
def test_process_that_hangs_or_dies_stops_the_sweep(name: str, clause: str, reason: str) -> None:
    result = run_conformance(f"{HERE}:OPERATION", f"{HERE}:{name}", time_limit=0.5)

    assert result.verdict == "FAIL"
    assert result.isolated
    assert result.points == 3
    assert result.clauses[clause] == 3
    assert any("processes hung or died" in one.why for one in result.unrun)
    assert reason in result.model_dump_json()


@pytest.mark.slow
def test_hangs_at_a_long_limit_stop_the_sweep_after_the_seconds_they_may_cost(monkeypatch) -> None:
    monkeypatch.setattr("validate.conformance.engine.WAITED", 0.9)
    result = run_conformance(f"{HERE}:OPERATION", f"{HERE}:hangs", time_limit=0.5)

    assert result.verdict == "FAIL"
    assert result.points == 2
    assert result.smallest is not None
    assert result.smallest.tried == 0, "no smaller input is looked for at that price"
    why = "calls that hung cost 1 s; the sweep was stopped there"
    assert why in [one.why for one in result.unrun]


def test_two_hangs_at_the_default_limit_are_all_that_is_waited_for() -> None:
    assert TIME_LIMIT < WAITED <= 2 * TIME_LIMIT


@pytest.mark.parametrize("seconds", [math.inf, math.nan, 1e10, 0.0, -1.0])
def test_limit_that_no_call_can_be_held_to_is_refused(seconds: float) -> None:
    with pytest.raises(InputError, match=r"above 0 and at most at 86400 \(a day\)"):
        run(tiny.right, time_limit=seconds)
