"""Clean candidates: right paths, each run another way; how often does a gate alarm on one?"""

import datetime as dt
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import binom

from validate.capture.project import Project, load_project
from validate.capture.reader import open_capture
from validate.capture.resolve import record_path
from validate.metrics import Metric
from validate.run import compare
from validate.run.sides import capture_digest
from validate.schema import Prompt, Side
from validate.schema.selftest import CaseReport, CleanReport
from validate.schema.verdict import Outcome
from validate.selftest.cases import AREAS, Case
from validate.selftest.judge import judged_gates, note_of, row_of, sources
from validate.selftest.notes import read_row, write_note
from validate.selftest.pool import Done, spread
from validate.selftest.recall import recalling
from validate.selftest.stage import Bench, Stage, set_stage
from validate.selftest.trim import trim
from validate.suite import limits_digest, load_limits, load_suite

__all__ = ["allowed_alarms", "choose_options", "clean_selftest"]

Progress = Callable[[int, int, str], None]
SEED = 20261201
DRAWN_EVERY = 10
"""One candidate in so many draws streams at T > 0, with a seed of its own; the others are judged
on everything else."""
SHORTEST = 32
"""Prompts beside the eleven that are looked inside of: the shortest. ``logits.kl_exceed_rate``
PASSes on 43 prompts at least (no prompt of 43 beyond gives an upper limit inside its limit), the
p90 gates on 29; on fewer every candidate is INCONCLUSIVE there and no alarm can be told from one."""
DRAWN_TOKENS = "32"
RATE, QUANTILE = 0.01, 0.99
PADS = ("zero", "tile", "repeat")
CHUNKS = ("1", "3", "5", "8", "16", "32", "64")
VARIED = ("batch", "splits", "pad", "chunk", "state", "threads", "seed")


class _Run(NamedTuple):
    """One candidate: which, and how it is run."""

    number: int
    options: dict[str, str]
    """Keys of the path, and ``threads``."""
    drawn: bool


def allowed_alarms(runs: int) -> int:
    """The 99 % quantile of the alarms of ``runs`` candidates at a rate of 1 %.

    Example:
        >>> allowed_alarms(300)
        8
    """
    return int(binom.ppf(QUANTILE, runs, RATE))


def choose_options(number: int) -> dict[str, str]:
    """How candidate ``number`` runs; always the same for a number."""
    rng = np.random.default_rng([SEED, number])
    options = {
        "batch": str(int(rng.integers(1, 17))),
        "splits": str(int(rng.integers(1, 9))),
        "pad": PADS[int(rng.integers(len(PADS)))],
        "chunk": CHUNKS[int(rng.integers(len(CHUNKS)))],
        "threads": str(int(rng.integers(1, 3))),
        "seed": str(int(rng.integers(1, 1_000_000))),
    }
    if rng.random() < 0.25:  # noqa: PLR2004  one in four declares the deviation
        options["state"] = "bf16"
    return options


def clean_selftest(
    bench: Bench,
    runs: int,
    *,
    processes: int = 2,
    fresh: bool = False,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> CleanReport:
    """Judge ``runs`` clean candidates and count alarms.

    Each is the ROCm path over a reduced prompt set in an order of its own, with another batch
    size, split count, padding, chunk length, state dtype (declared) and thread count; one in ten
    draws streams, with another seed.

    Args:
        bench: Against what.
        runs: How many candidates.
        processes: How many at a time.
        fresh: Judge all anew.
        seconds: Stop then; what was judged is counted.
        progress: Told (done, total, which) after each.

    Raises:
        CaptureError: A golden is stale, or a capture cannot be written.
    """
    began = time.monotonic()
    tasks = []
    for number in range(runs):
        options = choose_options(number)
        drawn = number % DRAWN_EVERY == 0
        if not drawn:
            del options["seed"]
        tasks.append(_Run(number, options, drawn))
    found: dict[int, CaseReport] = {}
    told_of = 0

    def told(task: _Run, what: Done[CaseReport]) -> None:
        nonlocal told_of
        told_of += 1
        if what.result is not None:
            found[task.number] = what.result
        if progress is not None:
            said = what.why if what.result is None else what.result.verdict.value
            progress(told_of, runs, f"clean {task.number}: {said}")

    # Those that draw take the longest.
    order = sorted(tasks, key=lambda task: not task.drawn)
    spread(order, partial(_judge, bench, fresh), processes=processes, seconds=seconds, done=told)
    rows = [found[number] for number in sorted(found)]
    return _counted(rows, [task for task in tasks if task.number in found], began)


def _counted(rows: list[CaseReport], tasks: list[_Run], began: float) -> CleanReport:
    alarmed = [row for row in rows if row.caught_by]
    by_gate: dict[str, int] = {}
    for gate in (gate for row in alarmed for gate in row.caught_by):
        by_gate[gate] = by_gate.get(gate, 0) + 1
    return CleanReport(
        runs=len(rows),
        alarms=len(alarmed),
        allowed=allowed_alarms(len(rows)) if rows else 0,
        open=sum(row.verdict is Outcome.INCONCLUSIVE for row in rows),
        prompts=max((row.prompts for row in rows), default=0),
        by_gate=by_gate,
        options={
            name: tuple(sorted({t.options[name] for t in tasks if name in t.options}, key=_size))
            for name in VARIED
            if name != "seed"
        },
        alarmed=tuple(f"{row.cand}: {row.finding}" for row in alarmed),
        sources_digest=sources(),
        date=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        seconds=time.monotonic() - began,
    )


def _size(value: str) -> tuple[int, str]:
    return (int(value) if value.isdigit() else 0, value)


def _case(task: _Run) -> Case:
    told = ",".join(f"{key}={value}" for key, value in sorted(task.options.items()))
    return Case(
        id=f"clean-{task.number}",
        is_fault=False,
        title="A clean candidate, run another way",
        source="",
        target=f"rocm:{told}",
        expect="PASS",
        stage="speculative" if task.drawn else "model",
    )


class _Set(NamedTuple):
    """A stage, its stored sides, and metrics that remember them."""

    stage: Stage
    beside: tuple[Side, ...]
    metrics: dict[str, Metric]


_SETS: dict[tuple[Bench, str], _Set] = {}


def _judge(bench: Bench, fresh: bool, task: _Run) -> CaseReport:  # noqa: FBT001  partial
    project, case = load_project(bench.project), _case(task)
    suite = load_suite(bench.suite)
    limits = load_limits(project.root / suite.limits)
    stage, beside, metrics = _reduced(bench, case, project)
    note = note_of(
        bench,
        case.id,
        {
            "case": repr(case),
            "sources": sources(),
            "suite": suite.digest,
            "limits": limits_digest(limits),
            "beside": " ".join(capture_digest(side) for side in beside),
        },
    )
    kept = None if fresh else read_row(note, case, gates=judged_gates(suite, case))
    if kept is not None:
        return kept
    areas = AREAS[case.stage].judges
    project.runs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="clean-", dir=project.runs) as folder:
        report = compare(
            ref=stage.ref,
            cand=_recorded(task, case, stage, Path(folder) / "cand"),
            suite=suite,
            limits=limits,
            repeats=stage.repeats,
            oracle=stage.oracle,
            weights=stage.weights,
            config=stage.config,
            only=tuple(area for area in areas if area != "yardstick"),
            metrics=metrics,
        )
    row = row_of(case, report, areas=areas, prompts=len(stage.prompts))
    write_note(note, row.model_dump_json(indent=1))
    return row


def _reduced(bench: Bench, case: Case, project: Project) -> _Set:
    """The stage of a candidate, on fewer prompts; opened once a process."""
    key = (bench, case.stage)
    if key not in _SETS:
        suite, area = load_suite(bench.suite), AREAS[case.stage]
        stage = set_stage(bench, case, area=area, project=project, suite=suite)
        if not area.drawn and not bench.prompts:
            few = replace(bench, prompts=_few(stage.prompts))
            stage = set_stage(few, case, area=area, project=project, suite=suite)
        oracle = () if stage.oracle is None else (stage.oracle,)
        beside = (stage.ref, *stage.repeats, *oracle)
        _SETS[key] = _Set(stage, beside, recalling(beside))
    return _SETS[key]


def _few(prompts: tuple[Prompt, ...]) -> tuple[str, ...]:
    """Prompts that are looked inside of, and the shortest of the others."""
    inside = [prompt for prompt in prompts if prompt.tags and prompt.tags[0] == "tensors"]
    others = [prompt for prompt in prompts if prompt not in inside]
    others.sort(key=lambda prompt: len(prompt.token_ids))
    return tuple(prompt.id for prompt in (*inside, *others[:SHORTEST]))


def _recorded(task: _Run, case: Case, stage: Stage, out: Path) -> Side:
    """The candidate's capture, its prompts run in an order of its own, seen in that of ref."""
    import torch  # only what is recorded here needs it

    options = {key: value for key, value in task.options.items() if key != "threads"}
    if task.drawn:
        options["tokens"] = DRAWN_TOKENS
    order = np.random.default_rng([SEED, task.number, 1]).permutation(len(stage.prompts))
    mixed = [stage.prompts[int(i)] for i in order]
    before = torch.get_num_threads()
    torch.set_num_threads(int(task.options["threads"]))
    try:
        record_path(
            "rocm",
            options=options,
            label=case.target,
            prompts=stage.prompts if task.drawn else mixed,
            prompt_set=stage.prompt_set,
            out=out,
            device="cpu",
            resume=False,
            progress=lambda _done, _total, _what: None,
        )
    finally:
        torch.set_num_threads(before)
    made = open_capture(out, label=case.target)
    return made if task.drawn else trim(made, [prompt.id for prompt in stage.prompts])
