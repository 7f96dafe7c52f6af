"""Evals in a process of their own beside the capture that they belong to.

A capture and its evals share weights, path and header, and neither waits for the other. With a
second processor the evals run in a child, started by itself, so that a script which
records needs no main guard; else they follow in this process. What they answer is the same.
"""

import contextlib
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import torch

from validate.capture.backends.torch_batch import Runner
from validate.capture.backends.torch_paths import make_runner
from validate.capture.devices import processors
from validate.capture.eval_plan import EvalPlan
from validate.capture.processes import ROOT, die_with_parent, how_it_ended, start_child
from validate.capture.project import find_project
from validate.errors import CaptureError, ValidateError
from validate.schema import CaptureHeader
from validate.schema.evals import EvalSet

__all__ = ["EvalsAsked", "EvalsMade", "EvalsRunning", "main", "room_beside", "start_evals"]

Progress = Callable[[int, int, str], None]

_START = (
    f"import sys, validate; root = {str(ROOT)!r}; "
    "sys.flags.safe_path and root in sys.path and sys.path.append(sys.path.pop(sys.path.index(root))); "
    f"from {__name__} import main; sys.exit(main(*map(int, sys.argv[1:])))"
)
"""The package is found first; all else, where the path is to be safe, not in its folder, for that may
be the working directory."""
_EVERY = 2.0
"""Seconds between two reports of the child."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalsAsked:
    """Evals of one capture: the path they run on, and the tasks."""

    path: str
    options: Mapping[str, str]
    device: str
    """Of torch."""
    plan: EvalPlan
    header: CaptureHeader
    resume: bool
    recording: str
    """Id of the recording, which an interruption does not change; known once its folder is open."""
    beside: bool
    """In a process of their own, as ``room_beside`` allows; else in this one, when asked for."""


class EvalsMade(NamedTuple):
    """What the evals of a capture gave."""

    evals: EvalSet
    branches: Mapping[str, int]
    """That ran and are not counted in the runner's trace yet."""
    seconds: float


class EvalsRunning(NamedTuple):
    """Evals that were begun."""

    check: Callable[[], None]
    """Raise what ended them, if anything did; never waits for them."""
    wait: Callable[[Progress], EvalsMade]
    """Wait for them, showing how far they are."""


@contextlib.contextmanager
def room_beside(wanted: bool, *, device: str) -> Iterator[bool]:  # noqa: FBT001  the question itself
    """Whether evals run in a process beside the capture; if so, each gets half of torch's threads.

    With all threads twice, one process waits for processors that the other holds.

    Args:
        wanted: There are evals, and something to record meanwhile.
        device: Of torch; a card is not shared.
    """
    threads = torch.get_num_threads()
    if not wanted or device != "cpu" or processors() < 2:  # noqa: PLR2004
        yield False
        return
    torch.set_num_threads(max(1, threads // 2))
    try:
        yield True
    finally:
        torch.set_num_threads(threads)


@contextlib.contextmanager
def start_evals(asked: EvalsAsked, runner: Runner) -> Iterator[EvalsRunning]:
    """Begin evals that run beside the capture.

    Args:
        asked: Tasks, and the path that a child runs them on.
        runner: The same path here, for evals that run in this process.

    Raises:
        InputError: A task is unknown or asks for what the model cannot do.
        CaptureError: The answers on disk are another model's, or the child died.
    """
    if not asked.beside:
        yield EvalsRunning(lambda: None, lambda progress: _here(asked, runner, progress))
        return
    with _Child(asked) as child:
        yield EvalsRunning(child.check, child.wait)


def _here(asked: EvalsAsked, runner: Runner, progress: Progress) -> EvalsMade:
    from validate.capture.backends.lm_eval_target import run_evals  # lm-eval is an extra

    began = time.perf_counter()
    found = run_evals(
        runner,
        asked.plan,
        asked.header,
        resume=asked.resume,
        recording=asked.recording,
        progress=progress,
    )
    return EvalsMade(found, {}, time.perf_counter() - began)


class _Child:
    """The process that runs the evals, and our end of its pipe; it ends with the ``with`` block."""

    def __init__(self, asked: EvalsAsked) -> None:
        self._asked = asked
        self._made: EvalsMade | None = None

    def __enter__(self) -> "_Child":
        self._said = tempfile.TemporaryFile()
        self._process, self._pipe = start_child("-c", _START, str(os.getpid()), said=self._said)
        with contextlib.suppress(ConnectionError):  # dead already: check() tells how it died
            self._pipe.send((self._asked, torch.get_num_threads()))
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.kill()
        self._process.wait()
        self._said.close()

    def check(self) -> None:
        """Take what it has told by now."""
        while self._made is None and self._pipe.poll():
            self._take()

    def wait(self, progress: Progress) -> EvalsMade:
        """Show what it tells until it is done."""
        while self._made is None:
            told = self._take()
            if told is not None:
                progress(*told)
        return self._made

    def _take(self) -> tuple[int, int, str] | None:
        """Read one message; gives how far it is, where that is what it says."""
        try:
            kind, told = self._pipe.recv()
        except (EOFError, OSError) as error:
            ended = how_it_ended(self._process.wait(), self._said)
            msg = (
                f"target '{self._asked.header.target}': the process of its evals {ended}\n"
                "  do next: remove what ended it (of SIGKILL mostly too little memory), then take the "
                "recording up; what was answered is kept"
            )
            raise CaptureError(msg) from error
        if kind == "failed":
            raise told
        if kind == "made":
            self._made = told
            return None
        progress: tuple[int, int, str] = told
        return progress


def main(parent: int, descriptor: int) -> int:
    """Run the evals that the pipe asks for.

    Args:
        parent: Process that waits for them; without it there is nobody to write for.
        descriptor: Open file descriptor of the pipe.

    Returns:
        Exit code of the process, 0.
    """
    die_with_parent()
    if os.getppid() != parent:  # it died before the line above
        return 0
    with Connection(descriptor) as pipe, contextlib.suppress(EOFError, ConnectionError):
        asked, threads = pipe.recv()
        torch.set_num_threads(threads)
        pipe.send(_answer(asked, pipe))
    return 0


def _answer(asked: EvalsAsked, pipe: Connection) -> tuple[str, object]:
    last = 0.0

    def tell(done: int, total: int, what: str) -> None:
        # Seldom, for the pipe is read between batches of the capture alone, and a full one blocks.
        nonlocal last
        if done >= total or time.monotonic() - last >= _EVERY:
            last = time.monotonic()
            pipe.send(("progress", (done, total, what)))

    try:
        project = find_project(Path.cwd())
        runner = make_runner(asked.path, asked.options, project=project, device=asked.device)
        made = _here(asked, runner, tell)
    except (ValidateError, OSError) as error:
        return "failed", error
    except Exception:  # noqa: BLE001  a bug is told with its place
        return "failed", RuntimeError(traceback.format_exc())
    return "made", made._replace(branches=dict(runner.trace.branches))
