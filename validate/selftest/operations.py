"""Every planted operation fault and every control through the conformance sweeps."""

import multiprocessing
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import validate
from validate.conformance.engine import sweep
from validate.conformance.guard import direct
from validate.conformance.pattern import find_patterns
from validate.conformance.records import Implementation, Operation
from validate.conformance.registry import OPERATIONS, find_operation, settle
from validate.errors import InputError
from validate.faults.kernels import OPERATION_CONTROLS, OPERATION_FAULTS
from validate.faults.operations import OperationControl, OperationFault
from validate.schema.conformance import ConformanceSelftest, PlantedReport

__all__ = ["conformance_selftest", "judge_named", "judge_planted"]

Planted = OperationFault | OperationControl
Progress = Callable[[int, int, str], None]


def conformance_selftest(
    *, op: str | None = None, processes: int = 2, progress: Progress | None = None
) -> ConformanceSelftest:
    """Judge every planted fault and every control, each by the sweep of its operation.

    Args:
        op: One operation alone; all when None.
        processes: How many run at a time; 1 runs them in this process.
        progress: Told (done, total, which) after each.

    Returns:
        One row each, in the order of the catalogue.

    Raises:
        InputError: The operation is unknown, or nothing is planted in it.
    """
    started = time.monotonic()
    if op is not None:
        find_operation(op)
    planted: list[Planted] = [*OPERATION_FAULTS, *OPERATION_CONTROLS]
    planted = [one for one in planted if op is None or one.op == op]
    if not planted:
        msg = f"no fault and no control is planted{'' if op is None else f' in {op}'}"
        raise InputError(msg)
    rows = _rows(planted, processes=processes, progress=progress)
    with_fault = {one.op for one in planted if isinstance(one, OperationFault)}
    return ConformanceSelftest(
        tool_version=validate.__version__,
        rows=tuple(rows),
        unplanted=tuple(n for n in OPERATIONS if n not in with_fault) if op is None else (),
        held=all(row.held for row in rows),
        seconds=time.monotonic() - started,
    )


def judge_planted(planted: Planted, operation: Operation) -> PlantedReport:
    """One fault or control through the sweep of its operation."""
    started = time.monotonic()
    implementation = Implementation(
        name=planted.id, op=planted.op, function=planted.make(), title=planted.title
    )
    settings = settle(operation, planted.settings, implementation)
    call = direct(implementation.function, operation, settings)
    done = sweep(operation, call, settings, effort=planted.effort)
    failed = done.failed
    is_fault = isinstance(planted, OperationFault)
    clauses: dict[str, int] = {}
    for point in failed:
        for clause in dict.fromkeys(breach.clause for breach in point.breaches):
            clauses[clause] = clauses.get(clause, 0) + 1
    return PlantedReport(
        id=planted.id,
        op=planted.op,
        kind="fault" if is_fault else "control",
        title=planted.title,
        source=planted.source,
        settings=dict(settings),
        effort=planted.effort.value,
        points=len(done.points),
        points_failed=len(failed),
        clauses=clauses,
        first=failed[0].id if failed else None,
        finding=f"{failed[0].breaches[0].clause}: {failed[0].breaches[0].what}" if failed else None,
        pattern=find_patterns(done.points),
        held=bool(failed) == is_fault,
        seconds=time.monotonic() - started,
    )


def _rows(
    planted: Sequence[Planted], *, processes: int, progress: Progress | None
) -> list[PlantedReport]:
    if processes < 2 or len(planted) < 2:  # noqa: PLR2004  nothing to share out
        return [
            _told(_judge(_key(one)), done, len(planted), progress)
            for done, one in enumerate(planted, 1)
        ]
    # Spawned, for torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    found: dict[tuple[str, str, str], PlantedReport] = {}
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_one_thread) as pool:
        waiting = {pool.submit(_judge, _key(one)): _key(one) for one in _mixed(planted)}
        for done, future in enumerate(as_completed(waiting), 1):
            row = future.result()
            found[waiting[future]] = _told(row, done, len(planted), progress)
    return [found[_key(one)] for one in planted]


def _told(row: PlantedReport, done: int, total: int, progress: Progress | None) -> PlantedReport:
    if progress is not None:
        progress(done, total, f"{row.id} in {row.op}")
    return row


def _mixed(planted: Sequence[Planted]) -> Iterable[Planted]:
    """Operations side by side, so that the last to end is not one operation's whole row."""
    return sorted(planted, key=lambda one: one.id)


def _key(one: Planted) -> tuple[str, str, str]:
    return ("fault" if isinstance(one, OperationFault) else "control", one.op, one.id)


def _judge(key: tuple[str, str, str]) -> PlantedReport:
    return judge_named(*key)


def judge_named(kind: str, op: str, name: str) -> PlantedReport:
    """The same by name, which any process can be sent; ``kind`` is ``fault`` or ``control``."""
    catalogue: Sequence[Planted] = OPERATION_FAULTS if kind == "fault" else OPERATION_CONTROLS
    planted = next(one for one in catalogue if (one.op, one.id) == (op, name))
    return judge_planted(planted, find_operation(op))


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
