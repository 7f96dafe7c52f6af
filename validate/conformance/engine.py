"""The sweep: every point of an operation through an implementation, to one verdict."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from validate.conformance.assemble import Sweep, report_breach, result_of
from validate.conformance.guard import GENERAL, Broke, direct
from validate.conformance.isolation import Isolated, guarded
from validate.conformance.records import (
    Breach,
    Call,
    Case,
    Effort,
    Implementation,
    Operation,
    Settings,
)
from validate.conformance.registry import find_implementation, find_operation, settle, unavailable
from validate.conformance.shrink import size_of, smaller
from validate.conformance.stored import save_case
from validate.errors import InputError, ValidateError
from validate.schema.conformance import ConformanceResult, SmallestReport

__all__ = [
    "LONGEST",
    "LOST",
    "TIME_LIMIT",
    "WAITED",
    "fit_limit",
    "judge_case",
    "run_conformance",
    "sweep",
]

TIME_LIMIT = 30.0
"""Seconds a call may take; the first one of a process may compile a kernel."""
LONGEST = 86_400.0
"""The longest time limit, a day: a pipe cannot be waited on for ever."""
WAITED = 45.0
"""Seconds that hanging calls may cost before the sweep is stopped: two at the default limit."""
LOST = 3
"""Processes that may hang or die before the sweep is stopped."""
LOST_SMALLER = 2
"""The same while smaller failing inputs are looked for."""

Progress = Callable[[int, int, str], None]


def fit_limit(seconds: float) -> float:
    """A time limit that a call can be held to.

    Raises:
        InputError: It is no number of seconds above 0 and at most a day.
    """
    if not 0 < seconds <= LONGEST:  # NaN is neither
        msg = f"time limit of {seconds:g} s: it lies above 0 and at most at {LONGEST:.0f} (a day)"
        raise InputError(msg)
    return seconds


def judge_case(
    operation: Operation, case: Case, call: Call, settings: Settings
) -> tuple[Breach, ...]:
    """Run one point; whatever the implementation does becomes breaches.

    Raises:
        ValidateError: The check of the operation itself failed, or named a clause that
            its contract does not have: a bug of ours, never a match or a mismatch.
    """
    op = operation.contract.op
    try:
        found = operation.check(case, call, settings)
    except Broke as broke:
        return (broke.breach,)
    except ValidateError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        msg = f"{op}, point {case.id}: the check itself raised {type(error).__name__}: {text}"
        raise ValidateError(msg) from error
    known = {*operation.contract.clauses, *GENERAL}
    unknown = [breach.clause for breach in found if breach.clause not in known]
    if unknown:
        msg = f"{op}, point {case.id}: the check names no clause of the contract: {unknown}"
        raise ValidateError(msg)
    return tuple(found)


def sweep(
    operation: Operation,
    call: Call,
    settings: Settings,
    *,
    effort: Effort = Effort.QUICK,
    progress: Progress | None = None,
    ended: Callable[[], str | None] | None = None,
) -> Sweep:
    """Run every point of an operation.

    Args:
        operation: What is judged.
        call: Implementation behind guards.
        settings: Contract settings, every key present.
        effort: How much of the sweep.
        progress: Told (done, total, point) after each point.
        ended: Tells why no further point is run; None while the sweep goes on.

    Raises:
        ValidateError: The sweep has no point, or two points share an id.
    """
    op = operation.contract.op
    total = sum(1 for _ in operation.cases(effort, settings)) if progress is not None else 0
    done = Sweep()
    seen: set[str] = set()
    for case in operation.cases(effort, settings):
        done.stopped = None if ended is None else ended()
        if done.stopped is not None:
            break
        if case.id in seen:
            msg = f"{op}: two sweep points are named {case.id}"
            raise ValidateError(msg)
        seen.add(case.id)
        breaches = judge_case(operation, case, call, settings)
        done.add(case, breaches)
        if progress is not None:
            progress(len(done.points), total, f"{op} {case.id}")
    if not done.points:
        msg = f"{op}: the {effort} sweep has no point; nothing was judged"
        raise ValidateError(msg)
    return done


def run_conformance(
    op: str | Operation,
    implementation: str | Implementation | Callable[..., Any],
    *,
    settings: Settings | None = None,
    effort: Effort = Effort.QUICK,
    device: str = "cpu",
    time_limit: float = TIME_LIMIT,
    isolated: bool | None = None,
    case: Case | None = None,
    save_to: Path | None = None,
    command: str | None = None,
    progress: Progress | None = None,
) -> ConformanceResult:
    """Judge an implementation against the contract of an operation.

    Args:
        op: Name of an operation, or the operation.
        implementation: Registered name, ``module:function``, a record or a function.
        settings: Contract settings; what is not named stands as the implementation
            declares it, else at the contract's default.
        effort: How much of the sweep.
        device: ``cpu`` or ``cuda``.
        time_limit: Seconds a call may take.
        isolated: Run in a process of its own; by default whenever ``op`` and
            ``implementation`` are both names.
        case: One saved case in place of the sweep.
        save_to: Folder for the smallest failing case; it is not saved when None.
        command: The command that judges it again, told in the result.
        progress: Told (done, total, point).

    Returns:
        PASS when every point keeps every clause, FAIL when one does not, INCONCLUSIVE
        with the reason when nothing could run here.

    Raises:
        InputError: A name or setting is unknown, the time limit is none, or the
            implementation cannot be imported.
        ValidateError: The sweep has no point: an error, never PASS.
    """
    operation = find_operation(op) if isinstance(op, str) else op
    fit_limit(time_limit)
    own = isinstance(op, str) and isinstance(implementation, str)
    own = own if isolated is None else isolated
    record = _record(implementation, operation, imports=not own)
    chosen = settle(operation, settings or {}, record)
    started = time.monotonic()
    why = unavailable(record, device)
    done, tried, least = Sweep(), 0, None
    if why is None:
        with _behind_guards(op, operation, record, chosen, device, time_limit, own) as call:
            if case is None:
                ended = _ended(call, LOST)
                done = sweep(operation, call, chosen, effort=effort, progress=progress, ended=ended)
            else:
                done = _one(operation, case, call, chosen)
            least = done.least
            if least is not None and case is None:
                least, tried = _shrunk(operation, least, call, chosen, progress)
    return result_of(
        operation,
        record,
        done,
        settings=chosen,
        device=device,
        effort="case" if case is not None else effort.value,
        isolated=own,
        time_limit=time_limit,
        why=why,
        smallest=None
        if least is None
        else _save(least, tried, save_to, operation, record, chosen, device),
        seconds=time.monotonic() - started,
        command=command,
    )


def _record(
    implementation: str | Implementation | Callable[..., Any],
    operation: Operation,
    *,
    imports: bool,
) -> Implementation:
    if isinstance(implementation, Implementation):
        return implementation
    op = operation.contract.op
    if isinstance(implementation, str):
        return find_implementation(implementation, op, imports=imports)
    name = getattr(implementation, "__qualname__", type(implementation).__name__)
    module = getattr(implementation, "__module__", "")
    return Implementation(name=f"{module}:{name}", op=op, function=implementation, title=name)


@contextlib.contextmanager
def _behind_guards(
    op: str | Operation,
    operation: Operation,
    record: Implementation,
    settings: Settings,
    device: str,
    time_limit: float,
    own: bool,  # noqa: FBT001  passed on from a keyword
) -> Iterator[Call]:
    if not own:
        yield direct(record.function, operation, settings, device=device, time_limit=time_limit)
        return
    name = op if isinstance(op, str) else operation.contract.op
    with guarded(record.name, name, settings, device=device, time_limit=time_limit) as call:
        yield call


def _ended(call: Call, most: int) -> Callable[[], str | None]:
    """Why nothing more is run, once ``most`` processes are lost or hangs cost too long."""

    def why() -> str | None:
        if not isinstance(call, Isolated):
            return None
        if call.waited >= WAITED:
            return f"calls that hung cost {call.waited:.4g} s; the sweep was stopped there"
        if call.lost >= most:
            return f"{call.lost} processes hung or died; the sweep was stopped there"
        return None

    return why


def _one(operation: Operation, case: Case, call: Call, settings: Settings) -> Sweep:
    done = Sweep()
    done.add(case, judge_case(operation, case, call, settings))
    return done


def _shrunk(
    operation: Operation,
    least: tuple[Case, tuple[Breach, ...]],
    call: Call,
    settings: Settings,
    progress: Progress | None,
) -> tuple[tuple[Case, tuple[Breach, ...]], int]:
    ended = _ended(call, LOST_SMALLER + (call.lost if isinstance(call, Isolated) else 0))
    tried = 0

    def judge(case: Case) -> tuple[Breach, ...]:
        nonlocal tried
        if ended() is not None:
            return ()  # each of these costs the whole time limit
        tried += 1
        if progress is not None:
            progress(0, 0, f"{operation.contract.op} smaller: {case.id}")
        return judge_case(operation, case, call, settings)

    case, breaches, _ = smaller(*least, operation=operation, judge=judge)
    return (case, breaches), tried


def _save(
    least: tuple[Case, tuple[Breach, ...]],
    tried: int,
    folder: Path | None,
    operation: Operation,
    record: Implementation,
    settings: Settings,
    device: str,
) -> SmallestReport:
    case, breaches = least
    if folder is not None:
        save_case(
            case,
            folder,
            op=operation.contract.op,
            implementation=record.name,
            settings=settings,
            device=device,
            breaches=breaches,
        )
    rerun = None if folder is None else f"validate conformance --case {folder} --impl {record.name}"
    return SmallestReport(
        id=case.id,
        axes=dict(case.axes),
        breaches=tuple(report_breach(breach) for breach in breaches),
        size=size_of(case),
        tried=tried,
        folder=None if folder is None else str(folder),
        rerun=rerun,
    )
