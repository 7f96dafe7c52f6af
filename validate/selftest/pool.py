"""Work that is handed out to processes of one thread each, until time is up."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from types import FrameType
from typing import Generic, TypeVar

from validate.errors import CaptureError

__all__ = ["Done", "spread"]

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Generic[Result]):
    """What became of one task: a result, or why there is none."""

    result: Result | None
    why: str | None = None
    """Null where there is a result."""


class _OutOfTimeError(BaseException):
    """Raised inside a task when the time limit passes; no handler of the task may swallow it."""


def spread(
    tasks: Sequence[Task],
    work: Callable[[Task], Result],
    *,
    processes: int,
    seconds: float | None = None,
    done: Callable[[Task, Done[Result]], None],
) -> None:
    """Do every task, the first ones first, and tell ``done`` of each.

    Args:
        tasks: In the order in which they are begun.
        work: Does one; must be picklable.
        processes: How many at a time; 1 does them in this process.
        seconds: A task still running then is broken off, and none is begun after it.
        done: Told of every task, also of those that were not begun.

    Raises:
        CaptureError: A stored capture is stale or damaged, or none can be written.
    """
    deadline = None if seconds is None else time.time() + seconds
    if processes < 2 or len(tasks) < 2:  # noqa: PLR2004  nothing to share out
        for task in tasks:
            done(task, _timed(work, task, deadline))
        return
    # Spawned, for torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_one_thread) as pool:
        waiting = {pool.submit(_timed, work, task, deadline): task for task in tasks}
        try:
            for future in as_completed(waiting):
                done(waiting[future], future.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _timed(work: Callable[[Task], Result], task: Task, deadline: float | None) -> Done[Result]:
    left = None if deadline is None else deadline - time.time()
    if left is not None and left <= 0:
        return Done(result=None, why="not begun within the time limit")
    before = signal.signal(signal.SIGALRM, _ring) if left is not None else None
    try:
        if left is not None:
            signal.setitimer(signal.ITIMER_REAL, left)
        return Done(result=work(task))
    except _OutOfTimeError:
        return Done(result=None, why="broken off at the time limit")
    except CaptureError:
        raise
    except Exception as error:  # noqa: BLE001  one case must not take all others with it
        return Done(result=None, why=f"{type(error).__name__}: {error}")
    finally:
        if left is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def _ring(_number: int, _frame: FrameType | None) -> None:
    raise _OutOfTimeError


def _one_thread() -> None:
    """Before torch is imported: the number of threads is part of a capture's key."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
