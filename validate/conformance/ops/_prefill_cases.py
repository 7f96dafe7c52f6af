"""Sweep points of mla_prefill: ragged batches, cached prefixes, float8 operands with scales."""

import itertools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from validate.conformance.captured_attention import captured
from validate.conformance.ops._decode_cases import HEADS, K3_SCALE
from validate.conformance.ops._heads import poison_for
from validate.conformance.records import Case, Effort, Settings
from validate.numerics import dtype_of

__all__ = ["Point", "prefill_cases", "smaller"]

_TAIL = 5
"""Rows of keys and values behind the last request that belong to nobody."""
_FLOAT8_SCALES = (0.5, 0.3, 0.25)
"""Of q, k and v: none 1, one no power of two, all different."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Coordinates of one sweep point."""

    heads: int = 12
    kv_heads: int = 0
    """As ``heads`` when 0."""
    new: tuple[int, ...] = (17, 33)
    """Queries of each request."""
    past: tuple[int, ...] = (0, 0)
    """Keys before them; -1 for a request without any key."""
    causal: bool = True
    dtype: str = "bfloat16"
    scale: float = 24**-0.5
    amplitude: float = 1.0
    scales: tuple[float, float, float] = (1.0, 1.0, 1.0)
    source: str = "random"
    width: int = 24
    value: int = 16


_QUICK = (
    *(Point(heads=heads, new=(5, 9)) for heads in HEADS),
    Point(new=(1, 1), past=(0, 63)),
    Point(new=(2, 2, 2), past=(0, 30, 62), heads=6),
    Point(new=(4,) * 5, past=(0, 1, 28, 59, 60), heads=8),
    Point(new=(8, 8), past=(56, 57), heads=16),
    Point(new=(31, 32, 33), past=(0, 0, 0)),
    Point(new=(63, 65), past=(1, 0), heads=4),
    Point(new=(129,), past=(0,), heads=4),
    Point(new=(1, 48, 3), past=(64, 16, 127), heads=24),
    Point(new=(3, 0, 2), past=(4, 9, 0)),
    Point(new=(7, 5), past=(20, 33), causal=False),
    Point(new=(2, 3, 4), past=(-1, 12, -1), causal=False),
    Point(heads=12, kv_heads=4),
    Point(heads=24, kv_heads=8, new=(9, 4), past=(0, 7)),
    Point(heads=6, kv_heads=1, new=(9, 4)),
    Point(scale=1.0, dtype="float32"),
    Point(scale=K3_SCALE, dtype="float16", amplitude=4.0, past=(3, 0)),
    Point(scale=0.25, amplitude=16.0, heads=8),
    Point(amplitude=4.0, heads=24, past=(2, 1)),
    Point(dtype="float8_e4m3fn"),
    Point(dtype="float8_e4m3fn", scales=_FLOAT8_SCALES, heads=16),
    Point(dtype="float8_e4m3fn", scales=_FLOAT8_SCALES, amplitude=16.0, past=(30, 1)),
    Point(source="captured", new=(40, 24), past=(0, 65), width=48, value=32),
    Point(source="captured", new=(8,), past=(64,), width=48, value=32),
)


def _full() -> Iterator[Point]:
    layouts = (
        ((1,), (0,)),
        ((2, 2), (0, 127)),
        ((4, 4, 4), (0, 60, 124)),
        ((8, 8, 8, 8, 8), (0, 56, 57, 120, 121)),
        ((1, 64, 3, 33, 2), (255, 0, 61, 31, 0)),
        ((257,), (0,)),
    )
    for layout, heads, dtype, amplitude in itertools.product(
        layouts, HEADS, ("bfloat16", "float16", "float8_e4m3fn"), (1.0, 4.0, 16.0)
    ):
        at = heads + int(amplitude)
        yield Point(
            heads=heads,
            new=layout[0],
            past=layout[1],
            dtype=dtype,
            scales=_FLOAT8_SCALES if dtype == "float8_e4m3fn" else (1.0, 1.0, 1.0),
            amplitude=amplitude,
            scale=(24**-0.5, 1.0, K3_SCALE, 0.25)[at % 4],
            causal=at % 5 != 0,
        )
    yield Point(heads=12, new=(600,), past=(424,), width=192, value=128, scale=K3_SCALE)
    yield Point(heads=12, new=(64,), past=(8129,), width=192, value=128, scale=K3_SCALE)


def prefill_cases(effort: Effort, settings: Settings) -> Iterator[Case]:
    """Sweep points, cheapest first within each effort."""
    points = iter(_QUICK) if effort is Effort.QUICK else itertools.chain(_QUICK, _full())
    for point in points:
        if settings["kv_heads"] == "equal" and point.kv_heads not in (0, point.heads):
            continue
        if settings["widths"] == "any":
            yield _build(point, settings["tail"])
        elif point.source == "random":
            scale = point.scale * (24 / 192) ** 0.5
            yield _build(replace(point, width=192, value=128, scale=scale), settings["tail"])


def _name(p: Point) -> str:
    new = ",".join(str(n) for n in p.new)
    past = ",".join(str(n) for n in p.past)
    kv = f"/{p.kv_heads}" if p.kv_heads else ""
    mask = "causal" if p.causal else "full"
    scales = ",".join(f"{s:g}" for s in p.scales)
    return (
        f"H{p.heads}{kv}-Q{new}-past{past}-{mask}-{p.dtype}-x{p.amplitude:g}-scale{p.scale:.4g}"
        f"-s{scales}-D{p.width}/{p.value}-{p.source}"
    )


def _build(p: Point, poison: str) -> Case:
    name = _name(p)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    dtype = dtype_of(p.dtype)
    counts = [n + past if past >= 0 else 0 for n, past in zip(p.new, p.past, strict=True)]
    q, k, v = _operands(p, counts, rng)
    tail = np.full((_TAIL, 1, 1), poison_for(dtype, poison))
    k = np.concatenate([k / p.scales[1], np.broadcast_to(tail, (_TAIL, *k.shape[1:]))])
    v = np.concatenate([v / p.scales[2], np.broadcast_to(tail, (_TAIL, *v.shape[1:]))])
    inputs: dict[str, Any] = {
        "q": (q / p.scales[0]).astype(np.float32).astype(dtype),
        "k": k.astype(np.float32).astype(dtype),
        "v": v.astype(np.float32).astype(dtype),
        "query_starts": np.concatenate([[0], np.cumsum(p.new)]).astype(np.int32),
        "key_starts": np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        "scale": float(p.scale),
        "causal": p.causal,
        "q_scale": p.scales[0],
        "k_scale": p.scales[1],
        "v_scale": p.scales[2],
    }
    return Case(id=name, axes=_axes(p, counts), inputs=inputs)


def _axes(p: Point, counts: list[int]) -> dict[str, int | float | str | bool]:
    ragged = len(set(p.new)) > 1
    return {
        "heads": p.heads,
        "kv_heads": p.kv_heads or p.heads,
        "queries": "ragged" if ragged else str(p.new[0]),
        "most_queries": max(p.new),
        "batch": len(p.new),
        "prefix": max(p.past) > 0,
        "longest": max(counts),
        "causal": p.causal,
        "dtype": p.dtype,
        "scaled": p.scales != (1.0, 1.0, 1.0),
        "amplitude": p.amplitude,
        "scale": round(p.scale, 6),
        "source": p.source,
    }


def _operands(
    p: Point, counts: list[int], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q, k and v of all requests, float64; values keep their format's range at amplitude 16."""
    if p.source == "captured":
        held = {name: captured()[name].astype(np.float64) for name in ("q", "k", "v")}
        rows = [held["q"][total - n : total] for n, total in zip(p.new, counts, strict=True)]
        return (
            np.concatenate(rows),
            np.concatenate([held["k"][:total] for total in counts]),
            np.concatenate([held["v"][:total] for total in counts]),
        )
    total, kv_heads = sum(counts), p.kv_heads or p.heads
    q = rng.standard_normal((sum(p.new), p.heads, p.width))
    k = p.amplitude * rng.standard_normal((total, kv_heads, p.width))
    v = p.amplitude * rng.standard_normal((total, kv_heads, p.value))
    return q, k, v


def smaller(case: Case) -> Iterator[Case]:
    """Fewer requests, then fewer heads: the boldest first."""
    inputs = case.inputs
    batch, heads = len(inputs["query_starts"]) - 1, inputs["q"].shape[1]
    if batch > 1:
        for keep in (range(batch // 2), range(batch // 2, batch)):
            yield _changed(
                case, requests(inputs, list(keep)), f"requests{keep.start}:{keep.stop}", len(keep)
            )
    if heads > 1 and inputs["k"].shape[1] == heads:
        for part in (slice(0, heads // 2), slice(heads // 2, heads)):
            cut = {name: np.ascontiguousarray(inputs[name][:, part]) for name in ("q", "k", "v")}
            changed = _changed(case, cut, f"heads{part.start}:{part.stop}", batch)
            count = cut["q"].shape[1]
            yield replace(changed, axes={**changed.axes, "heads": count, "kv_heads": count})


def requests(inputs: dict[str, Any] | Any, order: list[int]) -> dict[str, Any]:
    """Inputs with the requests named by ``order``; the poisoned tail stays at the end."""
    rows, keys = inputs["query_starts"], inputs["key_starts"]
    picked = [np.arange(rows[i], rows[i + 1]) for i in order]
    held = [np.arange(keys[i], keys[i + 1]) for i in order]
    tail = np.arange(keys[-1], len(inputs["k"]))
    kept = np.concatenate([*held, tail])
    return {
        "q": np.ascontiguousarray(inputs["q"][np.concatenate(picked)]),
        "k": np.ascontiguousarray(inputs["k"][kept]),
        "v": np.ascontiguousarray(inputs["v"][kept]),
        "query_starts": np.cumsum([0, *(len(p) for p in picked)]).astype(np.int32),
        "key_starts": np.cumsum([0, *(len(h) for h in held)]).astype(np.int32),
    }


def _changed(case: Case, inputs: dict[str, Any], what: str, batch: int) -> Case:
    return replace(
        case,
        id=f"{case.id}/{what}",
        axes={**case.axes, "batch": batch},
        inputs={**case.inputs, **inputs},
    )
