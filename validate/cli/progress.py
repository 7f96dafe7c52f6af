"""Progress of long work on stderr: a bar on a terminal, else a line now and then."""

import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, cast

__all__ = ["show_progress"]

EVERY = 5.0
"""Seconds between two lines when stderr is no terminal."""

Report = Callable[[int, int, str], None]


@contextmanager
def show_progress(stream: io.TextIOBase | None = None) -> Iterator[Report]:
    """Give a function that is called with (done, total, what) and shows it on stderr.

    A total of 0 says that nobody knows how much there is.
    """
    stream = cast("io.TextIOBase", sys.stderr) if stream is None else stream
    if stream.isatty():
        with _bar(stream) as report:
            yield report
    else:
        yield _lines(stream)


@contextmanager
def _bar(stream: io.TextIOBase) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=Console(file=cast("IO[str]", stream)), transient=True
    ) as progress:
        task = progress.add_task("", total=None)

        def report(done: int, total: int, what: str) -> None:
            progress.update(task, completed=done, total=total or None, description=what)

        yield report


def _lines(stream: io.TextIOBase) -> Report:
    last = time.monotonic()

    def report(done: int, total: int, what: str) -> None:
        nonlocal last
        now = time.monotonic()
        if (total and done >= total) or now - last >= EVERY:
            last = now
            count = f"{done}/{total} " if total else ""
            print(f"{count}{what}", file=cast("IO[str]", stream), flush=True)

    return report
