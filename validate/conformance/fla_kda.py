"""What conformance says of fla-core's KDA kernels on a GPU: one command, one report.

    python -m validate.conformance.fla_kda --device cuda --out golden/reports

runs ``chunk_kda`` and ``fused_recurrent_kda`` at 12 heads x 128 (one of eight ranks of
Kimi K3) through the quick sweeps of ``kda_chunk`` and ``kda_recurrent`` and through prompts
of up to 8,192 tokens, and writes ``fla-kda.json`` and ``fla-kda.md``. With ``--device cpu``
our PyTorch implementations stand in, so that the report can be made without a GPU.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from validate.conformance.engine import run_conformance
from validate.conformance.engines import foreign_fla, torch_linear
from validate.conformance.fla_kda_page import page
from validate.conformance.ops import kda_chunk, kda_recurrent
from validate.conformance.ops._kda_truth import HeadTruth, kda_truth, merge_heads, of_head
from validate.conformance.ops._packed_check import PackedForm, check_packed
from validate.conformance.ops._rounding import Expected, joined, largest_ratios
from validate.conformance.records import Breach, Call, Case, Effort, Implementation, Settings
from validate.errors import InputError
from validate.numerics import rel_l2, to_float64
from validate.schema.conformance import ConformanceResult

__all__ = ["Measured", "judge_kernel", "main"]

TIME_LIMIT = 600.0
"""Seconds a call may take: the first one compiles and tunes the kernels."""
LONGEST = 8192
_MODULES: Mapping[str, ModuleType] = {"kda_chunk": kda_chunk, "kda_recurrent": kda_recurrent}
_KERNELS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "cuda": (("kda_chunk", "fla:chunk_kda"), ("kda_recurrent", "fla:fused_recurrent_kda")),
    "cpu": (("kda_chunk", "torch:solve64"), ("kda_recurrent", "torch:recurrent")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Error of one output at one long point against the float64 oracle."""

    point: str
    output: str
    rel_l2: float
    """Over everything."""
    worst_row: float
    """Largest rel-L2 of a row (of ``final_state``: of a column of the state)."""
    rounded: float
    """Rel-L2 of the oracle itself rounded to the dtype of the output: what no kernel beats."""
    over_model: float
    """Length of the error over that of the modelled rounding error; the limit is 2."""


def judge_kernel(
    op: str, implementation: Implementation, *, device: str, longest: int, pool: Executor
) -> tuple[ConformanceResult, tuple[Measured, ...], float]:
    """The quick sweep and the long points of one kernel.

    Args:
        op: ``kda_chunk`` or ``kda_recurrent``.
        implementation: What is judged.
        device: ``cpu`` or ``cuda``.
        longest: Long points of more tokens are left out.
        pool: Runs the oracle of the heads side by side.

    Returns:
        The verdict, the errors at the long points, and the seconds of the first call.
    """
    module = _MODULES[op]
    operation = module.OPERATION
    form = replace(module.FORM, truths=partial(_truths, module, pool))
    points = [point for point in module.k3_points() if max(point.lengths) <= longest]
    long_ids = {point.id for point in points}
    measured: list[Measured] = []
    seconds: list[float] = []

    def cases(effort: Effort, settings: Settings) -> Iterator[Case]:
        long = (module.make_case(point, settings) for point in points)
        return chain(operation.cases(effort, settings), long)

    def check(case: Case, call: Call, settings: Settings) -> tuple[Breach, ...]:
        timed = _timed(call, seconds)
        _say(f"{op} {case.id}")
        if case.id not in long_ids:
            return check_packed(case, timed, settings, form=form)
        truths = form.truths(case.inputs, settings)
        got = timed(case.inputs)
        whole = {name: joined([one[name] for one in truths]) for name in truths[0]}
        measured.extend(_errors(case, form, got, whole, settings))
        known = replace(form, truths=lambda *_: truths)
        return check_packed(case, lambda _: got, settings, form=known)

    widened = replace(operation, cases=cases, check=check, shrink=_fewer_tokens(operation.shrink))
    settings = {"shape": "12x128", "dtype": "bfloat16"}
    result = run_conformance(
        widened,
        implementation,
        settings=settings,
        device=device,
        time_limit=TIME_LIMIT,
        isolated=False,
    )
    return result, tuple(measured), seconds[0] if seconds else 0.0


def _truths(
    module: ModuleType, pool: Executor, inputs: Mapping[str, Any], settings: Settings
) -> HeadTruth:
    """The oracle of every sequence, one head a task."""
    before = module.INITIAL(inputs)
    if before is not None and settings["layout"] == "v_first":
        before = before.swapaxes(-1, -2)
    rounding = module.ROUNDING(inputs, settings)
    heads = range(inputs["q"].shape[1])
    tasks = [pool.submit(kda_truth, *of_head(inputs, before, head), rounding) for head in heads]
    return merge_heads([task.result() for task in tasks])


Shrink = Callable[[Case], Iterator[Case]]


def _fewer_tokens(shrink: Shrink) -> Shrink:
    """Smaller cases of the same heads: another number of heads is compiled anew."""

    def smaller(case: Case) -> Iterator[Case]:
        return (one for one in shrink(case) if one.axes["heads"] == case.axes["heads"])

    return smaller


def _timed(call: Call, seconds: list[float]) -> Call:
    def timed(inputs: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
        started = time.monotonic()
        try:
            return call(inputs)
        finally:
            seconds.append(time.monotonic() - started)

    return timed


def _errors(
    case: Case,
    form: PackedForm,
    got: Mapping[str, np.ndarray],
    truths: Mapping[str, Expected],
    settings: Settings,
) -> Iterator[Measured]:
    for name, truth in truths.items():
        values = form.view(name, got[name], settings)
        if not np.isfinite(to_float64(values)).all():
            continue  # told as a breach; no number is drawn from NaN
        stored = truth.values.astype(got[name].dtype)
        yield Measured(
            point=case.id,
            output=name,
            rel_l2=float(rel_l2(truth.values, values)),
            worst_row=float(np.max(rel_l2(truth.values, values, axes=-1))),
            rounded=float(rel_l2(truth.values, stored)),
            over_model=largest_ratios(truth, values)[2],
        )


def _say(words: str) -> None:
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for package in ("fla-core", "triton", "torch", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _kernel(op: str, name: str, options: argparse.Namespace, pool: Executor) -> dict[str, Any]:
    known = (*foreign_fla.IMPLEMENTATIONS, *torch_linear.IMPLEMENTATIONS)
    implementation = next(one for one in known if (one.op, one.name) == (op, name))
    result, measured, first = judge_kernel(
        op, implementation, device=options.device, longest=options.longest, pool=pool
    )
    _say(f"{name}: {result.verdict.value}, {result.points_failed} of {result.points} points failed")
    return {
        "result": result.model_dump(mode="json"),
        "measured": [asdict(one) for one in measured],
        "first_call_seconds": round(first, 2),
    }


def main(arguments: list[str] | None = None) -> int:
    """Judge both kernels and write the report; 0 when it was written, whatever it says."""
    parser = argparse.ArgumentParser(description="Conformance of fla-core's KDA kernels")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path, required=True, help="folder of fla-kda.json and .md")
    parser.add_argument("--longest", type=int, default=LONGEST, help="longest prompt, in tokens")
    options = parser.parse_args(arguments)
    if options.device == "cuda":
        why = foreign_fla.available()
        if why is not None:
            msg = f"fla-kda: {why}\n  do next: run it on a GPU machine, or with --device cpu"
            raise InputError(msg)
    command = (
        f"python -m validate.conformance.fla_kda --device {options.device} --out golden/reports"
    )
    report: dict[str, Any] = {"schema_version": 1, "command": command, "versions": _versions()}
    started = time.monotonic()
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        kernels = [_kernel(op, name, options, pool) for op, name in _KERNELS[options.device]]
    report |= {"kernels": kernels, "seconds": round(time.monotonic() - started, 1)}
    options.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report, indent=1, allow_nan=False)
    (options.out / "fla-kda.json").write_text(text + "\n", encoding="utf-8")
    (options.out / "fla-kda.md").write_text(page(report), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
