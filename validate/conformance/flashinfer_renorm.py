"""What conformance says of flashinfer's renorm kernels on a GPU: one command, one report.

    python -m validate.conformance.flashinfer_renorm --device cuda --out golden/reports

runs ``top_k_renorm_probs`` and ``top_p_renorm_probs`` of flashinfer, our PyTorch renorm in
both tie rules and our Triton kernels through the quick sweeps, times them at
[64, 163840] beside each other, and writes ``flashinfer-renorm.json`` and ``.md``.
flashinfer runs in a process of its own: a kernel that hangs or breaks the device is a
finding, and rows with NaN or an infinity come last, by themselves. With ``--device cpu``
what cannot run there is listed as not run.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from validate.conformance.engine import run_conformance
from validate.conformance.flashinfer_renorm_page import page
from validate.conformance.ops import top_k_renorm_prob, top_p_renorm_prob
from validate.conformance.records import Case, Effort, Implementation, Operation, Settings
from validate.conformance.registry import find_implementation, unavailable
from validate.schema.conformance import ConformanceResult

__all__ = [
    "TOP_K_DAMAGED",
    "TOP_K_WHOLE",
    "TOP_P_DAMAGED",
    "TOP_P_WHOLE",
    "judged",
    "main",
    "timed",
]

HERE = "validate.conformance.flashinfer_renorm"
COMMAND = f"python -m {HERE} --device {{device}} --out golden/reports"
ROWS, VOCAB, TOP_K, TOP_P = 64, 163_840, 50, 0.95
ROUNDS = 20
COMPILED_LIMIT, DAMAGED_LIMIT = 120.0, 8.0
"""Seconds a call: the first one loads or compiles; a row of NaN hangs or does not."""
DAMAGED = ("nan-row", "inf-row")

Record = dict[str, Any]


def _only(operation: Operation, *, damaged: bool) -> Operation:
    """The points of an operation with damaged rows, or those without; the former never shrunk."""

    def cases(effort: Effort, settings: Settings) -> Iterator[Case]:
        for case in operation.cases(effort, settings):
            if (case.axes["hazard"] in DAMAGED) is damaged:
                yield case

    return replace(
        operation, cases=cases, shrink=(lambda _: iter(())) if damaged else operation.shrink
    )


TOP_K_WHOLE = _only(top_k_renorm_prob.OPERATION, damaged=False)
TOP_K_DAMAGED = _only(top_k_renorm_prob.OPERATION, damaged=True)
TOP_P_WHOLE = _only(top_p_renorm_prob.OPERATION, damaged=False)
TOP_P_DAMAGED = _only(top_p_renorm_prob.OPERATION, damaged=True)
_NAMES: Mapping[str, tuple[str, str]] = {
    "top_k_renorm_prob": ("TOP_K_WHOLE", "TOP_K_DAMAGED"),
    "top_p_renorm_prob": ("TOP_P_WHOLE", "TOP_P_DAMAGED"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One implementation under one contract."""

    op: str
    name: str
    settings: Mapping[str, str]
    """What is asked beyond what it declares."""
    why: str = ""
    """Why it is asked."""


ENTRIES: tuple[Entry, ...] = (
    Entry(op="top_k_renorm_prob", name="flashinfer:renorm", settings={}),
    Entry(
        op="top_k_renorm_prob",
        name="flashinfer:renorm",
        settings={"low_k": "clamp"},
        why="k <= 0 is outside its documented range (0, vocab); what does it do?",
    ),
    Entry(op="top_k_renorm_prob", name="triton:radix", settings={}),
    Entry(op="top_k_renorm_prob", name="torch:all_ties", settings={}),
    Entry(op="top_k_renorm_prob", name="torch:exactly_k", settings={}),
    Entry(
        op="top_k_renorm_prob",
        name="torch:exactly_k",
        settings={"ties": "all"},
        why="may the ROCm rewrite stand in for flashinfer's kernel?",
    ),
    Entry(op="top_k_renorm_prob", name="torch:sort", settings={}),
    Entry(op="top_p_renorm_prob", name="flashinfer:renorm", settings={}),
    Entry(op="top_p_renorm_prob", name="triton:bits", settings={}),
    Entry(op="top_p_renorm_prob", name="torch:all_ties", settings={}),
    Entry(op="top_p_renorm_prob", name="torch:exactly_k", settings={}),
    Entry(op="top_p_renorm_prob", name="torch:sort", settings={}),
    Entry(op="top_p_renorm_prob", name="torch:hip_sort", settings={}),
)
BESIDE: tuple[Entry, ...] = (
    Entry(op="sample", name="flashinfer:min_p", settings={}),
    Entry(op="verify_chain", name="flashinfer:chain", settings={}),
    Entry(op="verify_chain", name="triton:chain", settings={}),
)
"""Not renorm, but of the same module of flashinfer and compiled with it."""


def judged(entry: Entry, *, device: str) -> Record:
    """One entry through its sweep; a foreign package in a process of its own.

    Returns:
        The entry, ``not_run`` with the reason or null, and its results: whole rows, then
        damaged ones.
    """
    implementation = find_implementation(entry.name, entry.op)
    why = unavailable(implementation, device)
    record: Record = {
        "op": entry.op,
        "implementation": entry.name,
        "title": implementation.title,
        "asked": dict(entry.settings),
        "because": entry.why,
        "not_run": why,
        "results": [],
    }
    if why is None:
        found = _run(entry, implementation, device)
        record["results"] = [result.model_dump(mode="json") for result in found]
    return record


def _run(entry: Entry, implementation: Implementation, device: str) -> list[ConformanceResult]:
    foreign = entry.name.startswith("flashinfer:")
    if entry.op not in _NAMES:
        return [
            run_conformance(
                entry.op,
                entry.name if foreign else implementation,
                settings=entry.settings,
                device=device,
                time_limit=COMPILED_LIMIT,
                isolated=foreign,
            )
        ]
    found = []
    for attribute, limit in zip(_NAMES[entry.op], (COMPILED_LIMIT, DAMAGED_LIMIT), strict=True):
        if entry.settings and attribute.endswith("DAMAGED"):
            continue  # asked a second time for its whole rows alone
        operation: Operation = globals()[attribute]
        found.append(
            run_conformance(
                f"{HERE}:{attribute}" if foreign else operation,
                entry.name if foreign else implementation,
                settings=entry.settings,
                device=device,
                time_limit=limit,
                isolated=foreign,
            )
        )
    return found


def timed(device: str, *, rows: int = ROWS, vocab: int = VOCAB, rounds: int = ROUNDS) -> Record:
    """Median time of one call of each implementation, in turns, in one run.

    CUDA events round each call on a GPU (a host synchronisation within the call counts), the
    clock on a CPU. Rows are a softmax of normal logits of width 3, float32.
    """
    generator = torch.Generator(device).manual_seed(0)
    logits = torch.randn((rows, vocab), generator=generator, device=device)
    probs = torch.softmax(3.0 * logits, dim=1)
    top_k = torch.full((rows,), TOP_K, dtype=torch.int32, device=device)
    top_p = torch.full((rows,), TOP_P, dtype=torch.float32, device=device)
    costs: Record = {"rows": rows, "vocab": vocab, "top_k": TOP_K, "top_p": TOP_P, "ops": {}}
    costs["rounds"] = rounds
    for op, parameter in (
        ("top_k_renorm_prob", {"top_k": top_k}),
        ("top_p_renorm_prob", {"top_p": top_p}),
    ):
        calls: dict[str, Callable[[], Any]] = {}
        for name in dict.fromkeys(entry.name for entry in ENTRIES if entry.op == op):
            implementation = find_implementation(name, op)
            if unavailable(implementation, device) is None:
                calls[name] = _bound(implementation.function, probs, parameter)
        costs["ops"][op] = _medians(calls, device, rounds)
    return costs


def _bound(
    function: Callable[..., Any], probs: torch.Tensor, parameter: Mapping[str, torch.Tensor]
) -> Callable[[], Any]:
    return lambda: function(probs, **parameter)


def _medians(calls: Mapping[str, Callable[[], Any]], device: str, rounds: int) -> dict[str, float]:
    """Milliseconds a call, median over rounds in which every implementation has its turn."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 3):  # three turns warm up
        for name, call in calls.items():
            milliseconds = _once(call, device)
            if turn >= 3:  # noqa: PLR2004  warm
                taken[name].append(milliseconds)
    return {name: round(statistics.median(values), 5) for name, values in taken.items()}


def _once(call: Callable[[], Any], device: str) -> float:
    if device == "cpu":
        started = time.perf_counter()
        call()
        return 1000.0 * (time.perf_counter() - started)
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    before.record()
    call()
    after.record()
    torch.cuda.synchronize()
    return float(before.elapsed_time(after))


def _versions() -> dict[str, str]:
    found = {}
    for package in ("flashinfer-python", "triton", "torch", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _compiled(device: str) -> float | None:
    """Seconds of flashinfer's first call, which compiles its sampling module; None without it."""
    implementation = find_implementation("flashinfer:renorm", "top_k_renorm_prob")
    if unavailable(implementation, device) is not None:
        return None
    _say("flashinfer: first call, compiles")
    started = time.monotonic()
    probs = torch.full((2, 64), 1.0 / 64, device=device)
    implementation.function(probs=probs, top_k=torch.tensor([3, 4], device=device))
    torch.cuda.synchronize()
    return round(time.monotonic() - started, 1)


def _say(words: str) -> None:
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


def main(arguments: list[str] | None = None) -> int:
    """Judge, time and write the report; 0 when it was written, whatever it says."""
    parser = argparse.ArgumentParser(description="Conformance of flashinfer's renorm kernels")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path, required=True, help="folder of flashinfer-renorm.*")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the timed call")
    parser.add_argument("--vocab", type=int, default=VOCAB, help="columns of the timed call")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    report: Record = {
        "schema_version": 1,
        "command": COMMAND.format(device=options.device),
        "device": options.device,
        "versions": _versions(),
        "compile_seconds": _compiled(options.device),
    }
    costs = timed(options.device, rows=options.rows, vocab=options.vocab)
    entries = []
    for entry in (*ENTRIES, *BESIDE):
        record = judged(entry, device=options.device)
        entries.append(record)
        verdicts = [result["verdict"] for result in record["results"]]
        _say(f"{entry.op} {entry.name}: {', '.join(verdicts) or record['not_run']}")
    report |= {"entries": entries, "costs": costs}
    report["seconds"] = round(time.monotonic() - started, 1)
    options.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report, indent=1, allow_nan=False)
    (options.out / "flashinfer-renorm.json").write_text(text + "\n", encoding="utf-8")
    (options.out / "flashinfer-renorm.md").write_text(page(report), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
