"""The command: measure every kernel at every point within a time budget, and write the report."""

import argparse
import gc
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from validate.conformance.head_padding.kernels import DECODE, PREFILL, SCALE, Kernel
from validate.conformance.head_padding.measure import (
    Operands,
    Point,
    measure,
    operands,
    rounded,
    sampled_rows,
    truth_of,
)
from validate.conformance.head_padding.report import environment, write
from validate.conformance.head_padding.truth import numpy_truth, rows_truth

PREFILL_CONTEXTS = (1024, 8192, 32768, 172032)
DECODE_CONTEXTS = (1024, 8192, 32768, 172032, 1048576)
QUICK = (64, 200)
SEED = 20260925


def points(*, quick: bool) -> Iterator[Point]:
    """All bfloat16 points, then all float8 ones: the answer first."""
    prefill = QUICK if quick else PREFILL_CONTEXTS
    decode = QUICK if quick else DECODE_CONTEXTS
    for dtype in ("bfloat16", "float8_e4m3fn"):
        for context in prefill:
            yield Point(phase="prefill", context=context, queries=context, dtype=dtype)
        for context in decode:
            for queries in (1, 8):
                yield Point(phase="decode", context=context, queries=queries, dtype=dtype)


def kernels(point: Point, device: str) -> list[Kernel]:
    """Kernels that this device and point are for."""
    known = PREFILL if point.phase == "prefill" else DECODE
    return [
        one
        for one in known.values()
        if device in one.devices
        and point.context <= one.most
        and (point.phase == "prefill" or point.queries <= one.most_queries)
    ]


def _log(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _oracle_check(device: str) -> float:
    """Greatest relative difference of the blocked oracle to NumPy's, on a small slice."""
    point = Point(phase="prefill", context=40, queries=40, dtype="bfloat16")
    data = operands(point, device=device, seed=SEED)
    rows = torch.tensor([0, 1, 17, 39], device=device)
    mine = rows_truth(data.q[rows], data.k, data.v, visible=rows + 1, scale=SCALE)
    wide = [x.double().cpu().numpy() for x in (data.q[rows], data.k, data.v)]
    out, lse = numpy_truth(*wide, visible=rows.cpu().numpy() + 1, scale=SCALE)
    off = np.abs(mine.out.cpu().numpy() - out).max() / np.abs(out).max()
    logs = np.abs(mine.lse.cpu().numpy() - lse).max() / np.abs(lse).max()
    return float(np.maximum(off, logs))


def _one_point(point: Point, device: str, late: "Clock") -> Iterator[dict[str, Any]]:
    """Each kernel at one point: its results, or why there are none."""
    made = operands(point, device=device, seed=SEED)
    rows = sampled_rows(point)
    truths = {"kernel": truth_of(point, made, rows)}
    data, saturated = made, 0
    if point.dtype == "float8_e4m3fn":
        q, a = rounded(made.q)
        k, b = rounded(made.k)
        v, c = (k, 0) if point.phase == "decode" else rounded(made.v)
        data, saturated = Operands(q=q, k=k, v=v), a + b + c
        truths = {"kernel": truth_of(point, data, rows), "bfloat16": truths["kernel"]}
    for kernel in kernels(point, device):
        at: dict[str, Any] = {
            "phase": point.phase,
            "context": point.context,
            "queries": point.queries,
            "dtype": point.dtype,
            "kernel": kernel.name,
            "rows_judged": len(rows),
        }
        if late.over():
            yield {**at, "failed": f"not run: the time budget of {late.budget:g} s was used up"}
            continue
        given = data
        if point.dtype == "float8_e4m3fn":
            at["saturated"] = saturated
            if kernel.float8:
                cache = data.k.to(torch.float8_e4m3fn)
                given = Operands(q=data.q, k=cache, v=cache)
        start = time.monotonic()
        try:
            found = measure(
                kernel,
                point,
                given,
                truths=truths,
                rows=rows,
                device=device,
                timed=point.dtype == "bfloat16" or kernel.float8,
            )
        except Exception as error:  # noqa: BLE001  a kernel that fails is a result
            text = " ".join(str(error).split())[:400]
            found = {"failed": f"{type(error).__name__}: {text}"}
        _log(
            f"{point.phase} {point.context} x{point.queries} {point.dtype} {kernel.name}: "
            f"{found.get('failed', 'done')} ({time.monotonic() - start:.1f} s)"
        )
        yield {**at, **found}


class Clock:
    """A time budget."""

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self._start = time.monotonic()

    def over(self) -> bool:
        """Whether it is used up."""
        return not self.took() < self.budget

    def took(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start


def main(arguments: list[str] | None = None) -> int:
    """Measure and write; returns 1 when no kernel ran at all."""
    parser = argparse.ArgumentParser(
        prog="python -m validate.conformance.head_padding", description=__doc__
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="tiny contexts, to try the program")
    parser.add_argument(
        "--budget", type=float, default=330.0, help="seconds before points are left out"
    )
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error(
            "--device cuda: torch sees no CUDA or ROCm device here; use --device cpu --quick"
        )
    clock = Clock(options.budget)
    report: dict[str, Any] = {
        **environment(options.device, quick=options.quick),
        "oracle_check": _oracle_check(options.device),
        "results": [],
    }
    for point in points(quick=options.quick):
        try:
            report["results"] += list(_one_point(point, options.device, clock))
        except (RuntimeError, MemoryError) as error:
            # The oracle or the operands did not fit: this point is missing, and says so.
            text = " ".join(str(error).split())[:400]
            at = {"phase": point.phase, "context": point.context, "queries": point.queries}
            failed = f"operands or oracle: {type(error).__name__}: {text}"
            report["results"].append(
                {**at, "dtype": point.dtype, "kernel": "(all)", "failed": failed}
            )
        gc.collect()
        if options.device == "cuda":
            torch.cuda.empty_cache()
        report["seconds"] = clock.took()
        write(report, options.out)
    ran = any("failed" not in row for row in report["results"])
    _log(f"wrote {options.out / 'k3-head-padding.json'} and .md in {clock.took():.0f} s")
    return 0 if ran else 1


if __name__ == "__main__":
    sys.exit(main())
