"""Progress of long work on stderr: a bar on a terminal, else a line now and then."""

import io
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, cast

__all__ = ["show_progress"]

EVERY = 5.0
"""Seconds between two lines when stderr is no terminal; none is silent for longer."""

Report = Callable[[int, int, str], None]


@contextmanager
def show_progress(stream: io.TextIOBase | None = None) -> Iterator[Report]:
    """Give a function that is called with (done, total, what) and shows it on stderr.

    A total of 0 says that nobody knows how much there is. Work that reports nothing for a while
    is shown to be alive all the same.
    """
    stream = cast("io.TextIOBase", sys.stderr) if stream is None else stream
    with _bar(stream) if stream.isatty() else _lines(stream) as report:
        yield report


@contextmanager
def _bar(stream: io.TextIOBase) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=Console(file=cast("IO[str]", stream)), transient=True
    ) as progress:
        task = progress.add_task("", total=None)

        def report(done: int, total: int, what: str) -> None:
            # A full bar would look finished: what comes next has no measure of its own yet.
            more = done < total
            progress.update(task, completed=done, total=total if more else None, description=what)

        yield report


@contextmanager
def _lines(stream: io.TextIOBase) -> Iterator[Report]:
    talk = _Talk(stream)
    beat = threading.Thread(target=talk.beat, name="progress", daemon=True)
    beat.start()
    try:
        yield talk.report
    finally:
        talk.over.set()
        beat.join()


class _Talk:
    """Lines of one piece of work; a thread beside it speaks up when the work itself is silent."""

    def __init__(self, stream: io.TextIOBase) -> None:
        self.stream = cast("IO[str]", stream)
        self.over = threading.Event()
        self._lock = threading.Lock()
        self._last = self._since = time.monotonic()
        self._line = ""

    def report(self, done: int, total: int, what: str) -> None:
        count = f"{done}/{total} " if total else ""
        with self._lock:
            now = self._since = time.monotonic()
            self._line = f"{count}{what}"
            if (total and done >= total) or now - self._last >= EVERY:
                self._last = now
                print(self._line, file=self.stream, flush=True)

    def beat(self) -> None:
        """Every few seconds say what was told last, and how long ago, until the work is over."""
        while not self.over.wait(EVERY / 10):
            with self._lock:
                now = time.monotonic()
                if self._line and now - self._last >= EVERY:
                    self._last = now
                    words = f"{self._line} (told {now - self._since:.0f} s ago, still at work)"
                    print(words, file=self.stream, flush=True)
