"""One planted fault or control: captured, compared with the reference, and held against its record."""

import math
import os
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
from validate.schema.selftest import CaseReport, GateFinding
from validate.schema.suite import Limits, Suite
from validate.schema.verdict import Outcome
from validate.selftest.cases import AREAS, Case
from validate.selftest.planted import planted_folders, planted_sides
from validate.selftest.recall import recalling
from validate.selftest.stage import Bench, Stage, digest, make_cand, set_stage, stage_key
from validate.suite import limits_digest, load_limits, load_suite

__all__ = ["judge_case", "note_of", "row_of", "sources", "write_note"]

CAUGHT = (Outcome.FAIL, Outcome.INCOMPARABLE)
GRAVEST = (Outcome.INCOMPARABLE, Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS)
MOST_REASON = 300
"""Characters kept of what a gate or pairing said."""
PAIRING = "pairing"
"""What catches a case whose captures do not match."""
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
        kept = None if fresh else _read(note)
        row = kept or _evals(case, suite, limits)
    else:
        found = _stage(bench, case, project, suite)
        note = note_of(bench, case.key, stage_key(case, found.stage, project) | law)
        kept = None if fresh else _read(note)
        row = kept or _judged(bench, case, found, project=project, suite=suite, limits=limits)
    if kept is not None:
        return kept.model_copy(update={"reused": True})
    row = row.model_copy(update={"seconds": time.monotonic() - began})
    write_note(note, row.model_dump_json(indent=1))
    return row


def note_of(bench: Bench, name: str, key: Mapping[str, str]) -> Path:
    """The file that keeps a row, named by everything that the row rests on."""
    folder = bench.rows or _project(bench.project).runs / "selftest"
    return folder / f"{name.replace(' ', '-')}-{digest(dict(key))[:20]}.json"


def write_note(note: Path, text: str) -> None:
    """Keep a row; whoever is interrupted leaves the file as it was."""
    note.parent.mkdir(parents=True, exist_ok=True)
    part = note.with_suffix(f".{os.getpid()}")
    part.write_text(text + "\n", "utf-8")
    part.replace(note)


def _read(note: Path) -> CaseReport | None:
    return CaseReport.model_validate_json(note.read_bytes()) if note.is_file() else None


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
    verdict = Outcome.INCOMPARABLE
    why = " ".join(" ".join(str(error).split()).split(" do next:")[:1])
    # A gate that would have been INCOMPARABLE is, for nothing can be judged.
    wanted = verdict.value == case.expect
    return CaseReport(
        id=case.id,
        kind="fault" if case.is_fault else "control",
        title=case.title,
        source=case.source,
        cand=cand.label,
        ref=ref.label,
        prompts=len(cand.prompts),
        severity=case.severity,
        expect=case.expect,
        expected_gates=case.gates,
        verdict=verdict,
        caught_by=(PAIRING,),
        missed_by=() if wanted else case.gates,
        gates=(GateFinding(gate=PAIRING, outcome=verdict, value=None, reason=why[:MOST_REASON]),),
        finding=f"{PAIRING}: {why[:MOST_REASON]}",
        held=wanted or not case.leading,
        stage=case.stage,
        where=case.where,
        leading=case.leading,
        seconds=0.0,
    )


def row_of(case: Case, report: Report, *, areas: tuple[str, ...], prompts: int) -> CaseReport:
    """What a comparison said of a case, held against its record.

    A control holds when every gate of the areas PASSes. A fault holds when the gravest outcome
    is that of its record and every gate that the record names reached it; where the record
    expects INCONCLUSIVE, being caught is no less. Smaller severities than the record's hold
    whatever is said of them.
    """
    judged = [gate for gate in report.gates if gate.name.partition(".")[0] in areas]
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
    held = held or not case.leading
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
