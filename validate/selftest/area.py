"""All faults and controls, or those of one area, several at a time."""

import datetime as dt
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import validate
from validate.capture.targets import did_you_mean
from validate.errors import InputError
from validate.faults.kernels import OPERATION_CONTROLS, OPERATION_FAULTS
from validate.schema.conformance import PlantedReport
from validate.schema.selftest import CaseReport, CleanReport, Selftest
from validate.schema.verdict import Outcome
from validate.selftest.cases import AREAS, Case, all_cases, find_area, in_area
from validate.selftest.clean import allowed_alarms
from validate.selftest.judge import judge_case, note_of, sources
from validate.selftest.notes import read_planted, write_note
from validate.selftest.operations import judge_named
from validate.selftest.pool import Done, spread
from validate.selftest.stage import Bench
from validate.suite import load_suite

__all__ = ["ALL", "QUICK", "Planted", "area_selftest", "held", "planned", "summed_up"]

Progress = Callable[[int, int, str], None]
ALL, CONFORMANCE = "all", "conformance"
QUICK = (
    *("VX-01", "TV-09 stale", "VX-140", "TV-12", "OK-5"),
    *("SP-11", "OK-2", "TV-06", "OK-VX-93"),
    *("mla_decode HD-01", "kda_chunk LA-07", "top_k_renorm_prob SA-08", "mla_decode OK-5"),
)
"""A handful of every kind, with a control each, for every run of the tests."""
_OPERATION_SECONDS, _EVAL_SECONDS, _MODEL_SECONDS = 0.5, 1.0, 12.0
_DRAWN_SECONDS, _TOKENS, _EVERY_PROMPT_SECONDS = 30.0, 64, 60.0
"""About what a case takes on one core, to begin the longest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """Something that is planted: a case of captures or results, or one of an operation."""

    name: str
    """No other has it."""
    id: str
    seconds: float
    """About what it takes on one core."""
    case: Case | None = None
    operation: tuple[str, str, str] | None = None
    """Kind, operation and id."""

    @property
    def shares(self) -> object:
        """What must be captured before it and serves other cases as well; None: nothing."""
        case = self.case
        if case is None or case.stage == "evals":
            return None
        if case.sample.prompts != "default":
            return (case.sample.prompts, case.sample.tokens, case.sample.ref)
        return case.stage if case.where == "capture" else None


def area_selftest(
    bench: Bench,
    *,
    ids: Sequence[str] = (),
    processes: int = 2,
    fresh: bool = False,
    seconds: float | None = None,
    quick: bool = False,
    clean: CleanReport | None = None,
    progress: Progress | None = None,
) -> Selftest:
    """Plant every fault and every control and judge each against the reference.

    Rows that were judged earlier from the same sources, captures, suite and limits are taken
    as they are, so that an interrupted selftest goes on where it stopped.

    Args:
        bench: Which area, ``all`` for all, and against what.
        ids: Faults and controls to judge; empty: all.
        processes: How many at a time; 1 runs them in this process.
        fresh: Judge all anew.
        seconds: Stop then; what is left is named.
        quick: A handful of every kind instead.
        clean: Clean candidates, to stand in the table.
        progress: Told (done, total, which) after each.

    Returns:
        One row a case, in the order of the catalogue.

    Raises:
        InputError: The area, an id or the reference is unknown.
        CaptureError: A golden is stale, or a capture is damaged or cannot be written.
    """
    began = time.monotonic()
    tasks = planned(bench.area, ids=ids, quick=quick)
    found: dict[str, Done[CaseReport | PlantedReport]] = {}

    def told(task: Planted, what: Done[CaseReport | PlantedReport]) -> None:
        found[task.name] = what
        if progress is not None:
            progress(len(found), len(tasks), f"{task.name}: {_words(what)}")

    spread(
        ordered(tasks, processes),
        partial(_judge, bench, fresh),
        processes=processes,
        seconds=seconds,
        done=told,
    )
    results = [found[task.name].result for task in tasks]
    partly = bool(ids) or quick
    return summed_up(
        [row for row in results if isinstance(row, CaseReport)],
        area=bench.area,
        suite=load_suite(bench.suite).name,
        gates=() if partly else gates_of(bench),
        seconds=time.monotonic() - began,
        conformance=[row for row in results if isinstance(row, PlantedReport)],
        left=[f"{t.name}: {found[t.name].why}" for t in tasks if found[t.name].result is None],
        clean=clean,
    )


def gates_of(bench: Bench) -> tuple[str, ...]:
    """Gates of the area in its suite."""
    gates = load_suite(bench.suite).gates
    if bench.area == ALL:
        return tuple(gate.name for gate in gates)
    areas = AREAS[bench.area].judges if bench.area in AREAS else (bench.area,)
    return tuple(gate.name for gate in gates if gate.area in areas)


def planned(area: str, *, ids: Sequence[str] = (), quick: bool = False) -> tuple[Planted, ...]:
    """What is judged, in the order of the catalogue.

    Raises:
        InputError: The area or an id is unknown.
    """
    if area not in (ALL, CONFORMANCE, "pairing"):
        find_area(area)
    cases = all_cases() if area != CONFORMANCE else ()
    tasks = [
        Planted(name=case.key, id=case.id, seconds=_seconds(case), case=case)
        for case in cases
        if area == ALL or in_area(case, area)
    ]
    if area in (ALL, CONFORMANCE):
        for kind, catalogue in (("fault", OPERATION_FAULTS), ("control", OPERATION_CONTROLS)):
            tasks += [
                Planted(
                    name=f"{one.op} {one.id}",
                    id=one.id,
                    seconds=_OPERATION_SECONDS,
                    operation=(kind, one.op, one.id),
                )
                for one in catalogue
            ]
    known = list(dict.fromkeys(task.id for task in tasks))
    for name in ids:
        if name not in known:
            msg = (
                f"--only-fault {name}: no fault and no control here"
                f"{did_you_mean(name, known)}\n  known: {', '.join(known)}"
            )
            raise InputError(msg)
    return tuple(
        task for task in tasks if (not ids or task.id in ids) and (not quick or task.name in QUICK)
    )


def ordered(tasks: Sequence[Planted], processes: int) -> tuple[Planted, ...]:
    """The longest first; of those that wait for one and the same capture, one first."""
    by_length = sorted(tasks, key=lambda task: -task.seconds)
    first: dict[object, str] = {}
    for task in by_length:
        if task.shares is not None:
            first.setdefault(task.shares, task.name)
    makers = [task for task in by_length if task.name in first.values()]
    waiting = [t for t in by_length if t.shares is not None and t not in makers]
    others = [task for task in by_length if task.shares is None]
    ahead = max(0, 2 * processes - len(makers))
    later = sorted([*waiting, *others[ahead:]], key=lambda task: -task.seconds)
    return (*makers, *others[:ahead], *later)


def summed_up(
    rows: Sequence[CaseReport],
    *,
    area: str,
    suite: str,
    gates: Sequence[str],
    seconds: float,
    conformance: Sequence[PlantedReport] = (),
    left: Sequence[str] = (),
    clean: CleanReport | None = None,
) -> Selftest:
    """Rows with what they say together: silent gates, gates that alone see a fault, severities."""
    faults = [row for row in rows if row.kind == "fault"]
    caught = {
        row.id if row.leading else f"{row.id} at {row.severity}": _seen_by(row)
        for row in faults
        if row.caught_by
    }
    alone: dict[str, tuple[str, ...]] = {}
    for fault, by in caught.items():
        if len(by) == 1:
            alone[next(iter(by))] = (*alone.get(next(iter(by)), ()), fault)
    # Severities stand in the record from the public one down.
    graded = [row for row in faults if row.severity is not None and row.caught_by]
    loud = set().union(*caught.values())
    table = Selftest(
        tool_version=validate.__version__,
        area=area,
        suite=suite,
        sources_digest=sources(),
        date=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        rows=tuple(rows),
        smallest={row.id: row.severity for row in graded if row.severity is not None},
        silent=tuple(gate for gate in gates if gate not in loud),
        alone=alone,
        redundant=tuple(gate for gate in gates if gate in loud and gate not in alone),
        conformance=tuple(conformance),
        clean=clean,
        left=tuple(left),
        held=False,
        seconds=seconds,
    )
    return table.model_copy(update={"held": held(table)})


def held(table: Selftest) -> bool:
    """Whether every row held, none is left, and clean candidates alarm no more than allowed."""
    rows = [row.held for row in table.rows] + [row.held for row in table.conformance]
    clean = table.clean
    spared = clean is None or clean.runs == 0 or clean.alarms <= allowed_alarms(clean.runs)
    return all(rows) and not table.left and spared


def _seen_by(row: CaseReport) -> set[str]:
    """Gates that saw the fault; of INCOMPARABLE ones the first, for the others follow from it."""
    failed = {found.gate for found in row.gates if found.outcome is Outcome.FAIL}
    unlike = [found.gate for found in row.gates if found.outcome is Outcome.INCOMPARABLE]
    return failed | set(unlike[:1])


def _judge(bench: Bench, fresh: bool, task: Planted) -> CaseReport | PlantedReport:  # noqa: FBT001  partial
    if task.case is not None:
        return judge_case(bench, task.case, fresh=fresh)
    if task.operation is None:
        msg = f"{task.name}: neither a case nor an operation"
        raise InputError(msg)
    note = note_of(bench, task.name, {"task": task.name, "sources": sources()})
    kind, op, name = task.operation
    kept = None if fresh else read_planted(note, kind=kind, op=op, name=name)
    if kept is not None:
        return kept
    row = judge_named(kind, op, name)
    write_note(note, row.model_dump_json(indent=1))
    return row


def _words(what: Done[CaseReport | PlantedReport]) -> str:
    row = what.result
    if row is None:
        return what.why or "no row"
    told = row.verdict.value if isinstance(row, CaseReport) else f"{row.points_failed} points"
    return told if row.held else f"{told}, not what its record says"


def _seconds(case: Case) -> float:
    if case.stage == "evals":
        return _EVAL_SECONDS
    if case.stage == "model":
        return _MODEL_SECONDS
    if case.sample.prompts == "all":
        return _EVERY_PROMPT_SECONDS
    return _DRAWN_SECONDS * (case.sample.tokens or _TOKENS) / _TOKENS
