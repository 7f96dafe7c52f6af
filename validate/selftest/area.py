"""All faults and controls of an area, two at a time."""

import datetime as dt
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import validate
from validate.schema.selftest import CaseReport, Selftest
from validate.schema.verdict import Outcome
from validate.selftest.cases import Case, cases_of, chosen, find_area
from validate.selftest.judge import judge_case, sources
from validate.selftest.stage import Bench
from validate.suite import load_suite

__all__ = ["area_selftest", "summed_up"]

Progress = Callable[[int, int, str], None]


def area_selftest(
    bench: Bench,
    *,
    ids: Sequence[str] = (),
    processes: int = 2,
    fresh: bool = False,
    progress: Progress | None = None,
) -> Selftest:
    """Plant every fault and every control of an area and judge each against the reference.

    Rows that were judged earlier from the same sources, captures, suite and limits are taken
    as they are, so that an interrupted selftest goes on where it stopped.

    Args:
        bench: The area, and against what.
        ids: Faults and controls to judge; empty: all.
        processes: How many at a time; 1 runs them in this process.
        fresh: Judge all anew.
        progress: Told (done, total, which) after each.

    Returns:
        One row a case, in the order of the catalogue.

    Raises:
        InputError: The area, an id or the reference is unknown.
        CaptureError: A golden is stale, or a capture is damaged or cannot be written.
    """
    began = time.monotonic()
    cases = chosen(cases_of(find_area(bench.area)), ids)
    rows = _rows(bench, cases, processes=processes, fresh=fresh, progress=progress)
    return summed_up(
        rows,
        area=bench.area,
        suite=load_suite(bench.suite).name,
        gates=() if ids else gates_of(bench),
        seconds=time.monotonic() - began,
    )


def gates_of(bench: Bench) -> tuple[str, ...]:
    """Gates of the area in its suite."""
    return tuple(g.name for g in load_suite(bench.suite).gates if g.area == bench.area)


def summed_up(
    rows: Sequence[CaseReport], *, area: str, suite: str, gates: Sequence[str], seconds: float
) -> Selftest:
    """Rows with what they say together: silent gates, gates that alone see a fault, severities."""
    faults = [row for row in rows if row.kind == "fault"]
    caught = {
        row.id: {f.gate for f in row.gates if f.outcome is Outcome.FAIL}
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
    return Selftest(
        tool_version=validate.__version__,
        area=area,
        suite=suite,
        sources_digest=sources(),
        date=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        rows=tuple(rows),
        smallest={row.id: row.severity for row in graded if row.severity is not None},
        silent=tuple(gate for gate in gates if gate not in loud),
        alone=alone,
        held=all(row.held for row in rows),
        seconds=seconds,
    )


def _rows(
    bench: Bench,
    cases: Sequence[Case],
    *,
    processes: int,
    fresh: bool,
    progress: Progress | None,
) -> list[CaseReport]:
    total = len(cases)
    found: dict[str, CaseReport] = {}

    def told(case: Case, row: CaseReport) -> None:
        found[case.key] = row
        if progress is not None:
            progress(len(found), total, f"{case.key}: {row.verdict.value}")

    if processes < 2 or total < 2:  # noqa: PLR2004  nothing to share out
        for case in cases:
            told(case, judge_case(bench, case, fresh=fresh))
    else:
        # Spawned, for torch's threads do not survive a fork.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(processes, mp_context=context, initializer=_one_thread) as pool:
            waiting = {pool.submit(judge_case, bench, case, fresh=fresh): case for case in cases}
            try:
                for future in as_completed(waiting):
                    told(waiting[future], future.result())
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    return [found[case.key] for case in cases]


def _one_thread() -> None:
    """Before torch is imported: the number of threads is part of a capture's key."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
