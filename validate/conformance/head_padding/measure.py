"""One kernel at one context: errors of each padding against the oracle, bits against unpadded, cost."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from validate.conformance.head_padding.kernels import LATENT, ROPE, SCALE, VALUE, WIDTH, Kernel
from validate.conformance.head_padding.padding import HEADS, PADDINGS, Padding
from validate.conformance.head_padding.truth import Truth, rows_truth

__all__ = ["Operands", "Point", "measure", "operands", "rounded", "sampled_rows", "truth_of"]

FLOAT8_MAX = 448.0
SCORES_STD = 2.0
"""Standard deviation of the scaled scores: neither flat nor one key alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What is measured."""

    phase: str
    """``prefill`` or ``decode``."""
    context: int
    """Keys; in prefill the queries too."""
    queries: int
    dtype: str
    """``bfloat16``, or ``float8_e4m3fn``: operands rounded with scale 1, bfloat16 arithmetic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    """q, k and v of one request, bfloat16; in decode k and v are the one latent cache."""

    q: Tensor
    k: Tensor
    v: Tensor


def operands(point: Point, *, device: str, seed: int) -> Operands:
    """Gaussian operands whose scaled scores have a standard deviation of 2."""
    made = torch.Generator(device=device).manual_seed(seed)

    def normal(*shape: int, std: float = 1.0) -> Tensor:
        x = torch.randn(shape, generator=made, device=device, dtype=torch.float32)
        return x.mul_(std).to(torch.bfloat16)

    if point.phase == "prefill":
        std = SCORES_STD / (SCALE * WIDTH**0.5)
        return Operands(
            q=normal(point.context, HEADS, WIDTH, std=std),
            k=normal(point.context, HEADS, WIDTH),
            v=normal(point.context, HEADS, VALUE),
        )
    width = LATENT + ROPE
    cache = normal(point.context, width)
    std = SCORES_STD / (SCALE * width**0.5)
    return Operands(q=normal(point.queries, HEADS, width, std=std), k=cache, v=cache)


def rounded(x: Tensor) -> tuple[Tensor, int]:
    """float8_e4m3fn with scale 1, widened again; and how many entries saturated."""
    beyond = int((x.abs() > FLOAT8_MAX).sum())
    return x.clamp(-FLOAT8_MAX, FLOAT8_MAX).to(torch.float8_e4m3fn).to(x.dtype), beyond


def sampled_rows(point: Point, *, most: int = 48) -> list[int]:
    """Query rows that meet the oracle: both ends, block boundaries, and others spread between."""
    n = point.queries if point.phase == "decode" else point.context
    if n <= most:
        return list(range(n))
    edges = [0, 1, 15, 16, 63, 64, 127, 128, 129, 255, 256, 1023, 1024, n // 2, n - 129, n - 1]
    kept = {i for i in edges if 0 <= i < n}
    step = n / (most - len(kept) + 1)
    kept |= {int(step * i) for i in range(1, most - len(kept) + 1)}
    return sorted(kept)


def truth_of(point: Point, data: Operands, rows: list[int]) -> Truth:
    """The float64 oracle on the sampled rows."""
    index = torch.tensor(rows, device=data.q.device)
    last = index + point.context - len(data.q)
    if point.phase == "prefill":
        k, v = data.k, data.v
    else:
        k, v = data.k.unsqueeze(1), data.v[:, :LATENT].unsqueeze(1)
    return rows_truth(data.q[index], k, v, visible=last + 1, scale=SCALE)


def _errors(out: Tensor, lse: Tensor | None, truth: Truth, rows: list[int]) -> dict[str, Any]:
    """Errors of real heads on the sampled rows; numbers that are not finite are counted, not used."""
    index = torch.tensor(rows, device=out.device)
    given = out[index].double()
    beyond = int((~torch.isfinite(given)).sum())
    if beyond:
        return {"nonfinite": beyond}
    error = given - truth.out
    by_head = error.pow(2).sum((0, 2)).sqrt() / truth.out.pow(2).sum((0, 2)).sqrt()
    by_row = error.pow(2).sum(2).sqrt() / truth.out.pow(2).sum(2).sqrt()
    found: dict[str, Any] = {
        "nonfinite": 0,
        "rel_l2_by_head": [float(e) for e in by_head],
        "worst_row_rel_l2": float(by_row.max()),
        "max_abs_err": float(error.abs().max()),
    }
    if lse is not None:
        found["lse_max_abs_err"] = float((lse[index].double() - truth.lse).abs().max())
    return found


def _differing(one: Tensor, other: Tensor) -> dict[str, Any]:
    """How many elements differ in any bit, and by how much at most."""
    bits = {2: torch.int16, 4: torch.int32}[one.element_size()]
    unlike = one.contiguous().view(bits) != other.contiguous().view(bits)
    count = int(unlike.sum())
    most = float((one[unlike].double() - other[unlike].double()).abs().max()) if count else 0.0
    if not most < float("inf"):
        return {"differ": count, "of": one.numel(), "max_abs_diff": None}
    return {"differ": count, "of": one.numel(), "max_abs_diff": most}


class _Runner:
    """One kernel on one set of operands, unpadded or padded."""

    def __init__(self, kernel: Kernel, point: Point, data: Operands) -> None:
        self.kernel, self.point, self.data = kernel, point, data

    def padded(self, padding: Padding | None) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.data.q, self.data.k, self.data.v
        if padding is None:
            return q, k, v
        if self.point.phase == "decode":
            return padding.pad(q, axis=1), k, v
        return padding.pad(q, axis=1), padding.pad(k, axis=1), padding.pad(v, axis=1)

    def whole(self, padding: Padding | None) -> tuple[Tensor, Tensor | None]:
        """Pad, kernel, unpad of output and LSE by one rule."""
        out, lse = self.kernel.run(*self.padded(padding))
        if padding is None:
            return out, lse
        logs = None if lse is None else padding.unpad(lse, axis=1)
        return padding.unpad(out, axis=1), logs


def _names_run(call: Callable[[], Any], device: str) -> list[str]:
    """Device kernels that a call launched, by the profiler: the proof of what ran."""
    if device == "cpu":
        return []
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            call()
            torch.cuda.synchronize()
        return sorted(
            {
                f"{event.key[:140]} x{event.count}"
                for event in seen.key_averages()
                if str(event.device_type).endswith("CUDA")
            }
        )
    except Exception as error:  # noqa: BLE001  a profiler that fails must not end the measurement
        return [f"profiler failed: {type(error).__name__}: {str(error)[:200]}"]


def _once(call: Callable[[], Any], device: str) -> float:
    """Milliseconds of one call."""
    if device == "cpu":
        start = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - start)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end))


def _timed(calls: dict[str, Callable[[], Any]], device: str, *, most: int) -> dict[str, Any]:
    """Median milliseconds of each call; they run in turn, so that a drift meets all alike."""
    slowest = 0.0
    for call in calls.values():
        call()
        slowest = max(slowest, _once(call, device))
    repeats = max(3, min(most, int(1000.0 / max(slowest, 1e-3))))
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            taken[name].append(_once(call, device))
    return {"repeats": repeats, "ms": {n: statistics.median(t) for n, t in taken.items()}}


def measure(
    kernel: Kernel,
    point: Point,
    data: Operands,
    *,
    truths: dict[str, Truth],
    rows: list[int],
    device: str,
    timed: bool,
    most_repeats: int = 30,
) -> dict[str, Any]:
    """Everything about one kernel at one point.

    Args:
        kernel: What runs.
        point: Where.
        data: Operands as the kernel gets them.
        truths: Oracle results by name; ``kernel`` on these operands, and in float8 ``bfloat16``
            on the operands before they were rounded.
        rows: Query rows that the oracle was run on.
        device: ``cpu`` or ``cuda``.
        timed: Whether cost is measured.
        most_repeats: Of each timing.
    """
    run = _Runner(kernel, point, data)
    names = ("zero", "tile", "repeat") if point.phase == "decode" else ("zero", "tile")
    out, lse = run.whole(None)
    found: dict[str, Any] = {
        "unpadded": {name: _errors(out, lse, truth, rows) for name, truth in truths.items()},
        "again": _differing(out, run.whole(None)[0]),
        "variants": {},
    }
    zero: Tensor | None = None
    for name in names:
        given, logs = run.whole(PADDINGS[name])
        row: dict[str, Any] = {
            "heads": PADDINGS[name].count,
            "against_unpadded": _differing(out, given),
        }
        if lse is not None and logs is not None:
            row["lse_against_unpadded"] = _differing(lse, logs)
        row["errors"] = {key: _errors(given, logs, truth, rows) for key, truth in truths.items()}
        found["variants"][name] = row
        zero = given if name == "zero" else zero
        if name == "tile" and zero is not None:
            found["zero_against_tile"] = _differing(zero, given)
    if zero is not None:
        found["zero_against_nan_heads"] = _differing(zero, run.whole(PADDINGS["nan"])[0])
    if timed:
        found["kernels_run"] = {
            "unpadded": _names_run(lambda: run.whole(None), device),
            "zero": _names_run(lambda: run.whole(PADDINGS["zero"]), device),
        }
        found["cost"] = _cost(run, names, device, most_repeats)
    return found


def _cost(run: _Runner, names: tuple[str, ...], device: str, most: int) -> dict[str, Any]:
    """Milliseconds, and ratios to unpadded: of pad + kernel + unpad, and of the kernel alone."""
    calls: dict[str, Callable[[], Any]] = {"unpadded": partial(run.whole, None)}
    for name in names:
        calls[name] = partial(run.whole, PADDINGS[name])
        calls[f"{name} kernel"] = partial(run.kernel.run, *run.padded(PADDINGS[name]))
    timing = _timed(calls, device, most=most)
    base = timing["ms"]["unpadded"]
    ratios = {
        name: {
            "whole": timing["ms"][name] / base,
            "kernel": timing["ms"][f"{name} kernel"] / base,
        }
        for name in names
    }
    return {**timing, "ratio": ratios}
