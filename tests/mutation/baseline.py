"""The honest run: what each test calls and how long it takes; and from it, whom to ask."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.mutation.graph import dependents, imports, tests_of_room
from tests.mutation.mutants import ROOT, Mutant
from tests.mutation.pool import Task, work
from tests.mutation.session import Calls, Chosen, run_tests

__all__ = ["Baseline", "Judges", "closest", "measure"]

LIMIT = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judges:
    """The tests that judge one mutant."""

    files: Sequence[str]
    tests: Sequence[str]
    """In this order; the other tests of ``files`` come after them."""
    others: bool
    seconds: float | None
    """What all of them take on honest code; None when nobody has measured it."""


@dataclass(slots=True, kw_only=True)
class Baseline:
    """What the honest run of every file of tests has shown."""

    seconds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, set[str]] = field(default_factory=dict)
    """Function, as ``module:name``, to the tests that call it."""
    failed: dict[str, str] = field(default_factory=dict)
    """Tests that fail on honest code, and how: they judge nothing."""
    unread: list[str] = field(default_factory=list)
    """Files of which no answer came."""

    known: dict[tuple[str, str], Judges] = field(default_factory=dict)
    """Judges by module and function, once found."""

    def judges(self, mutant: Mutant) -> Judges:
        """Tests that call the function, quickest first, then the others of the same files.

        A test that finds a value ready, because another test has had it computed,
        calls nothing; therefore the others too. Where no test calls the function, as
        outside of functions, those that call into the module stand for it.
        """
        place = (mutant.module, mutant.function)
        if place not in self.known:
            self.known[place] = self._judges(mutant)
        return self.known[place]

    def _judges(self, mutant: Mutant) -> Judges:
        inside = f"{mutant.module}:"
        chosen = self.calls.get(inside + mutant.function, set())
        if not chosen:
            parts = (tests for told, tests in self.calls.items() if told.startswith(inside))
            chosen = set().union(*parts)
        files = sorted({test.partition("::")[0] for test in chosen}) or closest(mutant)
        mine = [t for t in self.seconds if t.partition("::")[0] in files and t not in self.failed]
        tests = sorted(mine, key=lambda test: (test not in chosen, self.seconds[test], test))
        seconds = sum(self.seconds[test] for test in tests)
        return Judges(files=files, tests=tests, others=False, seconds=seconds)


def closest(mutant: Mutant) -> list[str]:
    """Files of the room that depend on the module, those that name it or its users first."""
    users = dependents(mutant.module)
    found = []
    for name in tests_of_room(mutant.room):
        asked = imports(ROOT / name)
        stem = mutant.module.rpartition(".")[2].strip("_")
        near = (stem not in name, mutant.module not in asked, not asked & users, name)
        if asked & users or f"validate.{mutant.room}" in asked or stem in name:
            found.append(near)
    return [near[-1] for near in sorted(found)]


def measure(rooms: Sequence[str], *, settings: Path, jobs: int, folder: Path) -> Baseline:
    """Run every file of the unit tests of ``rooms`` once on honest code, each in its own fork."""
    base = Baseline()
    for answer in work(_tasks(rooms, settings), jobs=jobs, folder=folder, until=None):
        value = answer.value
        if not value or "broke" in value:
            base.unread.append(f"{answer.name.replace('-', '/')}: {value or 'no answer'}")
            continue
        base.seconds |= {name: s for name, s in value["seconds"].items() if "::" in name}
        base.failed |= value["failed"]
        for test, functions in value["calls"].items():
            told = test or value["file"]
            for function in functions:
                base.calls.setdefault(_named(function), set()).add(told)
    return base


def _named(function: str) -> str:
    path, _, name = function.partition(":")
    return f"validate.{path.removesuffix('.py').replace('/', '.')}:{name}"


def _tasks(rooms: Sequence[str], settings: Path) -> Iterator[Task]:
    files = [name for room in rooms for name in tests_of_room(room)]
    for name in sorted(files, key=lambda n: -(ROOT / n).stat().st_size):
        call = partial(_observe, name, settings)
        yield Task(name=name.replace("/", "-"), call=call, limit=LIMIT)


def _observe(file: str, settings: Path) -> dict[str, Any]:
    chosen, calls = Chosen([], others=True), Calls(ROOT / "validate")
    sys.setprofile(calls)
    run_tests([file], settings=settings, plugins=[chosen, calls], first=False)
    sys.setprofile(None)
    return {
        "file": file,
        "seconds": chosen.seconds,
        "failed": chosen.failed,
        "calls": calls.functions(),
    }
