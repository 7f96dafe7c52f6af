"""Work in forked children, so many at a time, each with a limit of time and memory."""

import json
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Answer", "Task", "work"]

MEMORY = 6 * 2**30
"""Bytes of data a child may ask for: a mutant that fills memory fails in its own process."""

POLL = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Something for one child to do; its answer must be JSON."""

    name: str
    call: Callable[[], Any]
    limit: float
    """Seconds of wall time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of a task."""

    name: str
    value: Any
    """None when the child was stopped, or died."""
    timed_out: bool
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Child:
    task: Task
    since: float
    until: float
    answer: Path


def work(
    tasks: Iterator[Task], *, jobs: int, folder: Path, until: float | None
) -> Iterator[Answer]:
    """Answers as they come; at ``until`` (monotonic seconds) no task is begun or waited for."""
    running: dict[int, _Child] = {}
    more = True
    try:
        while more or running:
            over = until is not None and time.monotonic() >= until
            if over:
                return
            while more and len(running) < jobs:
                task = next(tasks, None)
                more = task is not None
                if task is not None:
                    pid, child = _begin(task, folder)
                    running[pid] = child
            done = list(_ended(running))
            yield from done
            if not done:
                time.sleep(POLL)
    finally:
        for pid in running:
            _stop(pid)


def _begin(task: Task, folder: Path) -> tuple[int, _Child]:
    now = time.monotonic()
    answer = folder / f"answer-{task.name}.json"
    answer.unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        _child(task, answer)
    return pid, _Child(task=task, since=now, until=now + task.limit, answer=answer)


def _child(task: Task, answer: Path) -> None:
    """Never returns."""
    status = 1
    try:
        os.setsid()
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, hard))
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        answer.write_text(json.dumps(task.call()), encoding="utf-8")
        status = 0
    except BaseException as error:  # noqa: BLE001  the parent must be told, whatever it was
        answer.write_text(json.dumps({"broke": repr(error)[:300]}), encoding="utf-8")
    finally:
        os._exit(status)


def _ended(running: dict[int, _Child]) -> Iterator[Answer]:
    now = time.monotonic()
    for pid, child in list(running.items()):
        gone = os.waitpid(pid, os.WNOHANG)[0] == pid
        late = not gone and now > child.until
        if late:
            _stop(pid)
        if not gone and not late:
            continue
        del running[pid]
        value = None
        if gone and child.answer.exists():
            value = json.loads(child.answer.read_text(encoding="utf-8") or "null")
        child.answer.unlink(missing_ok=True)
        yield Answer(
            name=child.task.name, value=value, timed_out=late, seconds=round(now - child.since, 3)
        )


def _stop(pid: int) -> None:
    """End a child of ours and all that it began."""
    for end in (lambda: os.killpg(pid, signal.SIGKILL), lambda: os.kill(pid, signal.SIGKILL)):
        try:
            end()
            break
        except ProcessLookupError:
            continue
    os.waitpid(pid, 0)
