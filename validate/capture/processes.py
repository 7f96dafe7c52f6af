"""Python processes of ours: what they are started with, and how their end is told.

A child runs this very package, answers over a pipe, and never outlives the
process that started it.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, NamedTuple

__all__ = ["ROOT", "Child", "child_environment", "die_with_parent", "how_it_ended", "start_child"]

ROOT = Path(__file__).parents[2]
"""Folder that holds the package."""
_PR_SET_PDEATHSIG = 1
_TAIL = 400
"""Characters of its last line that are shown."""


class Child(NamedTuple):
    """A process, and our end of its pipe."""

    process: subprocess.Popen[bytes]
    pipe: Connection


def start_child(
    *words: str, said: IO[bytes], environment: Mapping[str, str] | None = None
) -> Child:
    """Start Python with ``words`` and, behind them, the file descriptor of its end of the pipe.

    It has a session of its own: an interruption from the keyboard is ours to handle.

    Args:
        words: As after ``python``.
        said: File that takes all that it writes.
        environment: Instead of ``child_environment()``.
    """
    ours, theirs = Pipe(duplex=True)
    with contextlib.closing(theirs):
        process = subprocess.Popen(
            [sys.executable, *words, str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            env=child_environment() if environment is None else environment,
        )
    return Child(process, ours)


def child_environment() -> dict[str, str]:
    """This process's environment, with the folder of the package first in ``PYTHONPATH``.

    Empty entries, which Python reads as the working directory, are left out.
    """
    entries = (str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in entries if entry)}


def die_with_parent() -> None:
    """On Linux, have this process killed when the one that started it ends.

    A parent that ended before this call is not noticed.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def how_it_ended(code: int | None, said: IO[bytes]) -> str:
    """``died of SIGKILL`` or ``ended with exit code 1``, with the last line that it wrote."""
    if code is not None and code < 0:
        how = f"died of {signal.Signals(-code).name}"
    else:
        how = f"ended with exit code {code}"
    said.seek(0)
    lines = said.read().decode("utf-8", "replace").strip().splitlines()
    return f"{how}; it last wrote: {lines[-1][:_TAIL]}" if lines else how
