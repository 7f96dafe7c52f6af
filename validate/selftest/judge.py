"""One planted fault or control: captured, compared with the reference, and held against its record."""

import math
import tempfile
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from validate.capture.project import Project, load_project
from validate.errors import IncomparableError
from validate.gates.lossless import MARGIN
from validate.metrics import Metric
from validate.run import compare
from validate.run.selftest_summary import selftest_sources
from validate.schema import Side
from validate.schema.report import GateReport, Report
from validate.schema.selftest import PAIRING, CaseReport, GateFinding, said_of
from validate.schema.suite import Limits, Suite
from validate.schema.verdict import Outcome
from validate.selftest.cases import AREAS, Case
from validate.selftest.notes import read_row, write_note
from validate.selftest.planted import planted_folders, planted_sides
from validate.selftest.recall import recalling
from validate.selftest.stage import Bench, Stage, digest, make_cand, set_stage, stage_key
from validate.suite import limits_digest, load_limits, load_suite

__all__ = ["judge_case", "judged_gates", "note_of", "row_of", "sources"]

MOST_REASON = 300
"""Characters kept of what a gate or pairing said."""
EVALS_SUITE = "suites/evals.toml"
"""Suite of two lm-eval folders, below the project's root."""
sources = selftest_sources
"""Digest of every source that could change a row."""


class _Set(NamedTuple):
    """A stage with the metrics that remember its sides, and the digests that it stands for."""

    stage: Stage
    metrics: Mapping[str, Metric]


_STAGES: dict[tuple[object, ...], _Set] = {}
"""Stages that this process has opened."""


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
    project = _project(bench.project)
    suite, limits = _suite(bench, case, project)
    law = {"sources": sources(), "suite": suite.digest, "limits": limits_digest(limits)}
    if case.stage == "evals":
        note = note_of(bench, case.key, {"case": repr(case)} | law)
        kept = None if fresh else read_row(note, case, gates=judged_gates(suite, case))
        row = kept or _evals(case, suite, limits)
    else:
        found = _stage(bench, case, project, suite)
        note = note_of(bench, case.key, stage_key(case, found.stage, project) | law)
        kept = None if fresh else read_row(note, case, gates=judged_gates(suite, case))
        row = kept or _judged(bench, case, found, project=project, suite=suite, limits=limits)
    if kept is not None:
        return kept.model_copy(update={"reused": True})
    row = row.model_copy(update={"seconds": time.monotonic() - began})
    write_note(note, row.model_dump_json(indent=1))
    return row


def judged_gates(suite: Suite, case: Case) -> tuple[str, ...]:
    """Gates of the suite that a comparison judges the case by."""
    judges = AREAS[case.stage].judges
    return tuple(gate.name for gate in suite.gates if gate.area in judges)


def note_of(bench: Bench, name: str, key: Mapping[str, str]) -> Path:
    """The file that keeps a row, named by everything that the row rests on."""
    folder = bench.rows or _project(bench.project).runs / "selftest"
    return folder / f"{name.replace(' ', '-')}-{digest(dict(key))[:20]}.json"


@cache
def _project(path: Path) -> Project:
    return load_project(path)


def _stage(bench: Bench, case: Case, project: Project, suite: Suite) -> _Set:
    """The stage of a case; sides that many cases share are opened once a process."""
    sample = case.sample
    own = case.id if case.where == "ref" else None
    drawn = None if sample.prompts == "default" else (sample.tokens, sample.ref)
    key = (bench, case.stage, sample.prompts, drawn, own)
    if key not in _STAGES:
        stage = set_stage(bench, case, area=AREAS[case.stage], project=project, suite=suite)
        shared = [stage.ref, *stage.repeats]
        if stage.oracle is not None:
            shared.append(stage.oracle)
        _STAGES[key] = _Set(stage, recalling(shared))
    return _STAGES[key]


def _judged(
    bench: Bench, case: Case, found: _Set, *, project: Project, suite: Suite, limits: Limits
) -> CaseReport:
    stage = found.stage
    judges = AREAS[case.stage].judges
    with tempfile.TemporaryDirectory(prefix="selftest-", dir=_scratch(project)) as folder:
        ref, cand = stage.ref, make_cand(case, stage, project)
        if case.where == "capture":
            ref, cand = planted_sides(
                case, stage, cand, golden=project.folder(bench.ref), folder=Path(folder)
            )
        try:
            report = compare(
                ref=ref,
                cand=cand,
                suite=suite,
                limits=limits,
                repeats=stage.repeats,
                oracle=stage.oracle,
                weights=stage.weights,
                config=stage.config,
                only=tuple(area for area in judges if area != "yardstick"),
                metrics=found.metrics,
            )
        except IncomparableError as error:
            return _refused(case, error, ref=ref, cand=cand)
        return row_of(case, report, areas=judges, prompts=len(stage.prompts))


def _scratch(project: Project) -> Path:
    project.runs.mkdir(parents=True, exist_ok=True)
    return project.runs


def _evals(case: Case, suite: Suite, limits: Limits) -> CaseReport:
    judges = AREAS[case.stage].judges
    with tempfile.TemporaryDirectory(prefix="selftest-") as folder:
        ref, cand = planted_folders(case, Path(folder))
        try:
            report = compare(ref=ref, cand=cand, suite=suite, limits=limits, only=judges)
        except IncomparableError as error:
            return _refused(case, error, ref=ref, cand=cand)
        return row_of(case, report, areas=judges, prompts=0)


def _refused(case: Case, error: IncomparableError, *, ref: Side, cand: Side) -> CaseReport:
    """The row of a case whose captures do not match: pairing alone says so."""
    why = " ".join(" ".join(str(error).split()).split(" do next:")[:1])[:MOST_REASON]
    found = GateFinding(gate=PAIRING, outcome=Outcome.INCOMPARABLE, value=None, reason=why)
    return _row(case, (found,), sides=(ref.label, cand.label), prompts=len(cand.prompts))


def row_of(case: Case, report: Report, *, areas: tuple[str, ...], prompts: int) -> CaseReport:
    """What a comparison said of a case, held against its record.

    Args:
        case: What was judged.
        report: What was said.
        areas: Areas of gates that count.
        prompts: How many were compared.
    """
    judged = [gate for gate in report.gates if gate.name.partition(".")[0] in areas]
    gates = tuple(_finding(gate) for gate in judged)
    sides = (report.ref.label, report.cand.label)
    return _row(case, gates, sides=sides, prompts=prompts, effect=dict(case.sample.effects))


def _row(
    case: Case,
    gates: tuple[GateFinding, ...],
    *,
    sides: tuple[str, str],
    prompts: int,
    effect: Mapping[str, float] | None = None,
) -> CaseReport:
    wanted = case.gates if case.is_fault else ()
    said = said_of(
        gates,
        is_fault=case.is_fault,
        expect=case.expect,
        expected_gates=wanted,
        leading=case.leading,
    )
    return CaseReport(
        id=case.id,
        kind="fault" if case.is_fault else "control",
        title=case.title,
        source=case.source,
        ref=sides[0],
        cand=sides[1],
        prompts=prompts,
        severity=case.severity,
        expect=case.expect,
        expected_gates=wanted,
        effect=dict(effect or {}),
        verdict=said.verdict,
        caught_by=said.caught_by,
        missed_by=said.missed_by,
        needed=said.needed,
        gates=gates,
        finding=_loudest(case, gates, said.verdict),
        held=said.held,
        stage=case.stage,
        where=case.where,
        leading=case.leading,
        seconds=0.0,
    )


def _finding(gate: GateReport) -> GateFinding:
    measured = gate.measurement
    return GateFinding(
        gate=gate.name,
        outcome=gate.outcome,
        value=None if measured is None else measured.value,
        reason=None if gate.reason is None else gate.reason[:MOST_REASON],
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


def _suite(bench: Bench, case: Case, project: Project) -> tuple[Suite, Limits]:
    """The suite, with the fault's own size in place of the effects that it is below; its limits."""
    suite = load_suite(project.root / EVALS_SUITE if case.stage == "evals" else bench.suite)
    gates = tuple(
        gate.model_copy(update={"effect": case.sample.effects[gate.name]})
        if gate.name in case.sample.effects
        else gate
        for gate in suite.gates
    )
    return suite.model_copy(update={"gates": gates}), load_limits(project.root / suite.limits)
