"""Draw mutants, try them side by side until the time is over, and write each result as it comes."""

import gc
import hashlib
import json
import platform
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

from tests.mutation.baseline import Baseline, Judges, closest, measure
from tests.mutation.graph import dependents, preload, tests_of_room
from tests.mutation.mutants import ROOT, Mutant, files_of, mutants_of, path_of, shuffled
from tests.mutation.pool import Answer, Task, work
from tests.mutation.trial import try_mutant

__all__ = ["Plan", "run", "sources_digest"]

SLOWEST = 60.0
"""Seconds for a mutant whose judges nobody has timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to try."""

    rooms: Sequence[str]
    sample: int | None
    """So many mutants; None for all."""
    seed: int
    jobs: int
    time_limit: float | None
    """Seconds of wall time, the honest run among them."""
    measured: bool
    """Run all tests on honest code first, and ask only those that call the bent function."""
    only: str = ""
    """A part of the module's name, e.g. ``metrics._structure``."""
    skipped: frozenset[str] = frozenset()
    """Keys that are not drawn."""


def sources_digest(rooms: Sequence[str]) -> str:
    """Of the rooms' sources and of their unit tests, together."""
    files = [path_of(module) for room in rooms for module in files_of(room)]
    files += [ROOT / name for room in rooms for name in tests_of_room(room)]
    told = "".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}\n" for p in sorted(files))
    return hashlib.sha256(told.encode()).hexdigest()


def code_digest(room: str) -> str:
    """Of the room's sources alone: what its mutants are mutants of."""
    files = sorted(path_of(module) for module in files_of(room))
    told = "".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}\n" for p in files)
    return hashlib.sha256(told.encode()).hexdigest()


def run(plan: Plan, *, out: Path, settings_in: Any) -> None:
    """Append a result a line to ``out``; mutants that stand there already are not tried again."""
    until = None if plan.time_limit is None else time.monotonic() + plan.time_limit
    head, drawn = _draw(plan)
    done = _already(out, head)
    out.parent.mkdir(parents=True, exist_ok=True)
    preload(plan.rooms)
    for module in {mutant.module for mutant in drawn}:
        dependents(module)  # the parent reads the imports once, for all its children
    gc.freeze()
    with tempfile.TemporaryDirectory() as name, out.open("a", encoding="utf-8") as lines:
        folder = Path(name)
        settings = settings_in(folder)
        base = Baseline()
        if plan.measured:
            base = measure(plan.rooms, settings=settings, jobs=plan.jobs, folder=folder)
        if not done:
            _write(lines, head | _honest(base))
        by_key = {m.key: m for m in drawn if m.key not in done}
        tasks = _tasks(by_key.values(), base=base, measured=plan.measured, settings=settings)
        for answer in work(tasks, jobs=plan.jobs, folder=folder, until=until):
            mutant = by_key[answer.name]
            result = _result(answer)
            if result["status"] == "killed" and not plan.measured:
                result = _confirm(mutant, result, settings=settings, folder=folder)
            _write(lines, {"key": mutant.key} | asdict(mutant) | result)


def _draw(plan: Plan) -> tuple[dict[str, Any], Sequence[Mutant]]:
    found: list[Mutant] = []
    left_out: dict[str, Counter[str]] = {}
    counts: dict[str, int] = {}
    for room in plan.rooms:
        source = mutants_of(room)
        mutants = [mutant for mutant in source.mutants if plan.only in mutant.module]
        found += mutants
        left_out[room], counts[room] = source.left_out, len(mutants)
    drawn = [m for m in shuffled(found, seed=plan.seed) if m.key not in plan.skipped]
    head = {
        "head": True,
        "tool": f"cosmic-ray {version('cosmic-ray')}",
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "date": datetime.now(UTC).date().isoformat(),
        "sources": sources_digest(plan.rooms),
        "code": {room: code_digest(room) for room in plan.rooms},
        "rooms": list(plan.rooms),
        "seed": plan.seed,
        "sample": plan.sample,
        "only": plan.only,
        "mutants": counts,
        "left_out": {room: dict(sorted(c.items())) for room, c in left_out.items()},
    }
    return head, drawn if plan.sample is None else drawn[: plan.sample]


def _honest(base: Baseline) -> dict[str, Any]:
    return {"failed_on_honest_code": base.failed, "unread": base.unread}


def _already(out: Path, head: Mapping[str, Any]) -> set[str]:
    if not out.exists() or not out.read_text(encoding="utf-8").strip():
        return set()
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    for name in ("sources", "rooms", "seed", "sample", "only"):
        if lines[0].get(name) != head[name]:
            told = (
                f"{out}: was written with another {name} ({lines[0].get(name)}, now {head[name]})"
            )
            raise SystemExit(f"{told}. Next: give --out another file, or delete this one.")
    return {"head", *(line["key"] for line in lines[1:])}


def _tasks(mutants: Any, *, base: Baseline, measured: bool, settings: Path) -> Iterator[Task]:
    for mutant in mutants:
        if measured:
            judges = base.judges(mutant)
        else:
            judges = Judges(files=closest(mutant), tests=[], others=True, seconds=None)
        limit = SLOWEST if judges.seconds is None else 10.0 + 3.0 * judges.seconds
        call = partial(try_mutant, mutant, judges, settings=settings, honest=False)
        yield Task(name=mutant.key, call=call, limit=limit)


def _result(answer: Answer) -> dict[str, Any]:
    if answer.timed_out:
        told = {"status": "timeout", "by": "time limit"}
    elif not isinstance(answer.value, dict):
        told = {"status": "killed", "by": "the process died"}
    elif "broke" in answer.value:
        told = {"status": "killed", "by": "the run broke", "how": answer.value["broke"]}
    else:
        told = answer.value
    return told | {"seconds": answer.seconds}


def _confirm(
    mutant: Mutant, result: dict[str, Any], *, settings: Path, folder: Path
) -> dict[str, Any]:
    """Only a test that passes on honest code, planted the same way, has killed anything."""
    by = result["by"]
    if "::" not in by:
        return result
    judges = Judges(files=[by.partition("::")[0]], tests=[by], others=False, seconds=None)
    call = partial(try_mutant, mutant, judges, settings=settings, honest=True)
    task = Task(name=f"{mutant.key}-honest", call=call, limit=SLOWEST)
    (answer,) = work(iter([task]), jobs=1, folder=folder, until=None)
    value = answer.value or {}
    if value.get("status") == "survived":
        return result
    return result | {"status": "unjudged", "how": f"{by} fails on honest code too: {value}"}


def _write(lines: TextIO, record: Mapping[str, Any]) -> None:
    lines.write(json.dumps(record, ensure_ascii=False) + "\n")
    lines.flush()
