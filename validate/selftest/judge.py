"""One planted fault or control: captured, compared with the reference, and held against its record."""

import math
import os
import time

from validate.capture.project import load_project
from validate.capture.provenance import sources_digest
from validate.gates.lossless import MARGIN
from validate.run import compare
from validate.schema.report import GateReport, Report
from validate.schema.selftest import CaseReport, GateFinding
from validate.schema.suite import Suite
from validate.schema.verdict import Outcome
from validate.selftest.cases import Case, find_area
from validate.selftest.stage import Bench, digest, make_cand, set_stage, stage_key
from validate.suite import limits_digest, load_limits, load_suite

__all__ = ["judge_case", "row_of", "sources"]

CAUGHT = (Outcome.FAIL, Outcome.INCOMPARABLE)
GRAVEST = (Outcome.INCOMPARABLE, Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS)
JUDGING = (
    *("schema", "numerics", "stats", "oracle", "pairing", "metrics", "gates"),
    *("faults", "suite", "run", "selftest"),
)
"""Rooms whose source could change a row, beside those that a capture's key holds."""


def sources() -> str:
    """Digest of every source that could change a row."""
    return sources_digest(*JUDGING, "models", "capture")


def judge_case(bench: Bench, case: Case, *, fresh: bool) -> CaseReport:
    """The row of one case; taken from an earlier selftest where nothing it rests on has changed.

    Args:
        bench: Where.
        case: What.
        fresh: Judge anew in any case; captures are still taken where they are unchanged.

    Raises:
        CaptureError: A golden is stale, or a capture cannot be written.
    """
    began = time.monotonic()
    project = load_project(bench.project)
    suite, limits = _suite(bench, case), load_limits(project.root / load_suite(bench.suite).limits)
    stage = set_stage(bench, case, area=find_area(bench.area), project=project, suite=suite)
    key = stage_key(case, stage, project) | {
        "sources": sources(),
        "suite": suite.digest,
        "limits": limits_digest(limits),
    }
    note = project.runs / "selftest" / f"{case.id}-{digest(key)[:20]}.json"
    if note.is_file() and not fresh:
        row = CaseReport.model_validate_json(note.read_bytes())
        return row.model_copy(update={"reused": True})
    report = compare(
        ref=stage.ref,
        cand=make_cand(case, stage, project),
        suite=suite,
        limits=limits,
        repeats=stage.repeats,
        oracle=stage.oracle,
        only=(bench.area,),
    )
    row = row_of(case, report, area=bench.area, prompts=len(stage.prompts))
    row = row.model_copy(update={"seconds": time.monotonic() - began})
    note.parent.mkdir(parents=True, exist_ok=True)
    part = note.with_suffix(f".{os.getpid()}")
    part.write_text(row.model_dump_json(indent=1) + "\n", "utf-8")
    part.replace(note)
    return row


def row_of(case: Case, report: Report, *, area: str, prompts: int) -> CaseReport:
    """What a comparison said of a case, held against its record.

    A control holds when every gate of the area PASSes. A fault holds when the gravest outcome
    is that of its record and every gate that the record names reached it; where the record
    expects INCONCLUSIVE, being caught is no less.
    """
    judged = [gate for gate in report.gates if gate.name.partition(".")[0] == area]
    gates = tuple(_finding(gate) for gate in judged)
    verdict = next(one for one in GRAVEST if any(gate.outcome is one for gate in gates))
    caught = tuple(gate.gate for gate in gates if gate.outcome in CAUGHT)
    outcome = {gate.gate: gate.outcome.value for gate in gates}
    wanted = case.gates if case.is_fault else ()
    missed = tuple(
        gate for gate in wanted if outcome.get(gate) not in (case.expect, Outcome.FAIL.value)
    )
    needed = [gate.needed for gate in gates if gate.needed is not None]
    if not case.is_fault:
        held = verdict is Outcome.PASS
    elif case.expect == Outcome.INCONCLUSIVE.value:
        told = verdict is Outcome.INCONCLUSIVE and bool(needed)
        held = told or verdict is Outcome.FAIL
    else:
        held = verdict.value == case.expect and not missed
    return CaseReport(
        id=case.id,
        kind="fault" if case.is_fault else "control",
        title=case.title,
        source=case.source,
        cand=report.cand.label,
        ref=report.ref.label,
        prompts=prompts,
        severity=case.severity,
        expect=case.expect,
        expected_gates=wanted,
        effect=dict(case.sample.effects),
        verdict=verdict,
        caught_by=caught,
        missed_by=missed,
        needed=max(needed, default=None),
        gates=gates,
        finding=_loudest(case, gates, verdict),
        held=held,
        seconds=0.0,
    )


def _finding(gate: GateReport) -> GateFinding:
    measured = gate.measurement
    return GateFinding(
        gate=gate.name,
        outcome=gate.outcome,
        value=None if measured is None else measured.value,
        reason=gate.reason,
        needed=_needed(gate) if gate.outcome is Outcome.INCONCLUSIVE else None,
    )


def _needed(gate: GateReport) -> int | None:
    """Units at which a gate would see its effect, by the law of the square root."""
    measured, limit = gate.measurement, gate.limit
    if measured is None or limit is None:
        return None
    if gate.kind != "lossless" or measured.detects is None:
        return measured.n_needed
    return math.ceil(MARGIN * measured.n * (measured.detects / limit.value) ** 2)


def _loudest(case: Case, gates: tuple[GateFinding, ...], verdict: Outcome) -> str | None:
    """What the gravest gate said; of several, first those that the record names."""
    loud = [gate for gate in gates if gate.outcome is verdict and gate.reason is not None]
    loud.sort(key=lambda gate: case.gates.index(gate.gate) if gate.gate in case.gates else 99)
    return f"{loud[0].gate}: {loud[0].reason}" if loud else None


def _suite(bench: Bench, case: Case) -> Suite:
    """The suite, with the fault's own size in place of the effects that it is below."""
    suite = load_suite(bench.suite)
    gates = tuple(
        gate.model_copy(update={"effect": case.sample.effects[gate.name]})
        if gate.name in case.sample.effects
        else gate
        for gate in suite.gates
    )
    return suite.model_copy(update={"gates": gates})
