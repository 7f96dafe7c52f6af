"""The selftest of an area: what holds, what is missed, and what is said of it."""

import json
import re
from pathlib import Path

import pytest

from tests.unit.run.made import run, side
from validate.cli import main
from validate.errors import InputError
from validate.faults import FAULTS
from validate.report.area_selftest import area_selftest_console, area_selftest_markdown
from validate.schema.report import GateReport, LimitReport, MeasurementReport, Report
from validate.schema.selftest import CaseReport
from validate.schema.verdict import Outcome
from validate.selftest.area import planned, summed_up
from validate.selftest.cases import Case, cases_of, find_area, long_prompts, random_prompts
from validate.selftest.judge import row_of
from validate.suite import load_prompts

ROOT = Path(__file__).resolve().parents[3]
UNIFORM, SUPPORT = "speculative.uniform", "speculative.support"
ISSUED = (
    *("SA-01", "VX-10", "VX-11", "VX-12", "VX-13", "SA-05", "VX-14", "SP-07", "SP-09", "VX-15"),
    *("VX-16", "SP-10", "SP-02", "SP-03", "SP-05", "SP-06", "LA-05", "VX-17", "LA-03", "VX-18"),
    *("SP-01", "SP-14", "SP-11", "VX-19", "SA-13", "VX-20", "VX-21"),
)


def gate(name: str, outcome: Outcome, *, detects: float | None = None) -> GateReport:
    """A gate of 1,000 units whose stated effect is 0.3."""
    measured = MeasurementReport(
        metric=name, value=0.5, unit="p-value", n=1000, n_of="tokens", detects=detects
    )
    return GateReport(
        name=name,
        outcome=outcome,
        kind="exact" if detects is None else "lossless",
        alpha_share=0.0,
        measurement=measured,
        limit=LimitReport(value=0.3, source="derived", pointer="suite"),
        noise=None,
        reason=None if outcome is Outcome.PASS else f"{name} said so",
        rerun="",
    )


def report(*gates: GateReport) -> Report:
    whole = run(side("rocm"))
    cand = whole.cand.model_copy(update={"label": "rocm:fault=A"})
    return whole.model_copy(update={"gates": gates, "cand": cand})


def case(*, expect="FAIL", gates=(UNIFORM,), is_fault=True, severity=None, leading=True) -> Case:
    return Case(
        id="A",
        is_fault=is_fault,
        title="t",
        source="s",
        target="rocm:fault=A",
        expect=expect,
        gates=gates if is_fault else (),
        severity=severity,
        leading=leading,
    )


def row(one: Case, *gates: GateReport) -> CaseReport:
    return row_of(one, report(*gates), areas=("speculative",), prompts=16)


def test_fault_holds_when_every_gate_of_its_record_fails() -> None:
    held = row(case(), gate(UNIFORM, Outcome.FAIL), gate(SUPPORT, Outcome.PASS))

    assert (held.held, held.caught_by, held.missed_by) == (True, (UNIFORM,), ())
    assert held.finding == "speculative.uniform: speculative.uniform said so"


def test_fault_that_another_gate_catches_is_missed_by_its_own() -> None:
    missed = row(case(), gate(UNIFORM, Outcome.PASS), gate(SUPPORT, Outcome.FAIL))

    assert (missed.held, missed.caught_by, missed.missed_by) == (False, (SUPPORT,), (UNIFORM,))


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.INCOMPARABLE])
def test_fault_that_does_not_fail_does_not_hold(outcome: Outcome) -> None:
    assert not row(case(), gate(UNIFORM, outcome)).held


def test_gates_of_other_areas_say_nothing() -> None:
    found = row(case(), gate("logits.kl_p90", Outcome.FAIL), gate(UNIFORM, Outcome.PASS))

    assert (found.verdict, found.caught_by) == (Outcome.PASS, ())


def test_inconclusive_holds_with_the_number_of_units_alone() -> None:
    """Detects 0.6 with 1,000 units: 0.3 takes 1.05 x 1,000 x (0.6 / 0.3)^2 = 4,200."""
    told = row(case(expect="INCONCLUSIVE"), gate(UNIFORM, Outcome.INCONCLUSIVE, detects=0.6))
    silent = row(case(expect="INCONCLUSIVE"), gate(UNIFORM, Outcome.INCONCLUSIVE))

    assert (told.held, told.needed) == (True, 4200)
    assert (silent.held, silent.needed) == (False, None)
    assert not row(case(expect="INCONCLUSIVE"), gate(UNIFORM, Outcome.PASS)).held
    assert row(case(expect="INCONCLUSIVE"), gate(UNIFORM, Outcome.FAIL)).held


def test_control_holds_when_every_gate_passes() -> None:
    control = case(is_fault=False, expect="PASS")

    assert row(control, gate(UNIFORM, Outcome.PASS)).held
    assert not row(control, gate(UNIFORM, Outcome.INCONCLUSIVE, detects=0.6)).held
    assert not row(control, gate(UNIFORM, Outcome.PASS), gate(SUPPORT, Outcome.FAIL)).held


def test_table_names_silent_gates_lone_gates_and_the_smallest_severity() -> None:
    rows = [
        row(case(severity="1"), gate(UNIFORM, Outcome.FAIL), gate(SUPPORT, Outcome.PASS)),
        row(
            case(severity="0.5", leading=False),
            gate(UNIFORM, Outcome.FAIL),
            gate(SUPPORT, Outcome.PASS),
        ),
        row(
            case(severity="0.1", leading=False),
            gate(UNIFORM, Outcome.PASS),
            gate(SUPPORT, Outcome.PASS),
        ),
    ]
    found = summed_up(
        rows, area="speculative", suite="default", gates=(UNIFORM, SUPPORT), seconds=1.0
    )

    assert (found.silent, found.alone) == ((SUPPORT,), {UNIFORM: ("A", "A at 0.5")})
    assert (found.smallest, found.held) == ({"A": "0.5"}, True)
    text = area_selftest_console(found)
    assert "1 of 1 planted faults do what their record says" in text
    assert re.search(r"^too small +A at 0.1 +FAIL +PASS", text, re.MULTILINE)
    assert "A: smallest severity caught 0.5" in text
    assert "no fault makes these gates FAIL: speculative.support" in text
    assert "| A at 1 | [F] | · |" in area_selftest_markdown(found)


@pytest.mark.parametrize(
    ("many", "console"),
    [(3, "a0, a1, a2"), (4, "a0, a1, a2, 1 more"), (18, "a0, a1, a2, 15 more")],
)
def test_the_console_shows_three_gates_and_the_page_all(many: int, console: str) -> None:
    """Names of eighteen gates made every line of the table 600 characters wide."""
    gates = tuple(f"speculative.a{at}" for at in range(many))
    one = row(case(gates=gates[:1]), *(gate(name, Outcome.FAIL) for name in gates))
    found = summed_up([one], area="speculative", suite="default", gates=gates, seconds=1.0)

    line = next(x for x in area_selftest_console(found).splitlines() if x.startswith("caught "))
    assert re.search(rf"  {console}  +-", line)
    page = area_selftest_markdown(found)
    assert f"| {', '.join(f'a{at}' for at in range(many))} |" in page


def test_every_fault_of_sampling_and_speculation_is_planted() -> None:
    planted = {one.id for one in cases_of(find_area("speculative"))}

    assert set(ISSUED) <= set(FAULTS)
    assert set(ISSUED) - {"SA-05"} <= planted
    assert {"OK-2", "OK-3", "OK-4", "OK-10", "VX-23", "VX-24"} <= planted


def test_unknown_area_and_unknown_fault_are_refused() -> None:
    with pytest.raises(InputError, match=r"--area speculativ: .*did you mean 'speculative'"):
        find_area("speculativ")
    with pytest.raises(InputError, match=r"--area nonsense: there is no such area"):
        planned("nonsense")
    with pytest.raises(InputError, match=r"--only-fault SA-1: no fault and no control"):
        planned("speculative", ids=["SA-1"])


def test_unknown_prompt_is_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)

    assert main(["selftest", "--only-fault", "VX-01", "--prompt", "text-0"]) == 2
    assert (
        "--prompt text-0: the suite's prompt set has no such prompt; did you mean 'text-"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("option", ["--out", "--rows"])
@pytest.mark.parametrize("given", [[""], [" "]])
def test_empty_place_is_refused(
    option: str, given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["selftest", option, *given]) == 2
    assert main(["selftest", f"{option}={given[0]}"]) == 2
    assert f'{option} "": no place is named' in capsys.readouterr().err


def test_random_prompts_are_short_and_always_the_same() -> None:
    prompts = random_prompts()

    assert prompts == random_prompts()
    assert {len(one.token_ids) for one in prompts} <= set(range(3, 13))
    assert len(prompts) == 48


def test_long_prompts_reach_the_positions_that_a_record_names() -> None:
    """LC-07: an angle formed in bfloat16 is off by order one at 1,000."""
    texts = load_prompts(ROOT / "suites/prompts/default.jsonl")
    prompts = long_prompts(texts)

    assert prompts == long_prompts(texts)
    assert len({one.token_ids for one in prompts}) == len(prompts) == 8
    assert {len(one.token_ids) for one in prompts} == {1000}
    assert all(find_area("speculative").wants(one) for one in prompts)


@pytest.mark.slow
@pytest.mark.long
def test_command_plants_a_fault_and_a_control(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On two prompts: too few for a control to PASS, enough for constant log-probabilities to FAIL."""
    monkeypatch.chdir(ROOT)
    command = ["selftest", "--area", "speculative", "--ref", "reference", "--format", "json"]
    command += ["--prompt", "inside-09,text-00", "--processes", "1", "--only-fault"]

    assert main([*command, "SP-11"]) == 0
    (fault,) = json.loads(capsys.readouterr().out)["rows"]
    assert main([*command, "OK-2"]) == 1
    (control,) = json.loads(capsys.readouterr().out)["rows"]

    assert (fault["verdict"], fault["caught_by"]) == ("FAIL", ["speculative.logprob"])
    assert (control["verdict"], control["caught_by"]) == ("INCONCLUSIVE", [])
    assert control["needed"] > control["prompts"]
