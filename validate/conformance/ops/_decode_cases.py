"""Sweep points of mla_decode: paged latent caches with poison in every slot that is no key."""

import itertools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from validate.conformance.captured_attention import LATENT, ROPE, captured
from validate.conformance.ops._heads import poison_for
from validate.conformance.records import Case, Effort, Settings
from validate.numerics import dtype_of

__all__ = ["HEADS", "Point", "decode_cases", "smaller"]

HEADS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
K3_SCALE = 192**-0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Coordinates of one sweep point."""

    heads: int = 12
    queries: tuple[int, ...] = (1, 1)
    """Queries of each request; lengths count them."""
    lengths: tuple[int, ...] = (65, 129)
    dtype: str = "bfloat16"
    cache: str | None = None
    """Format of the cache; as ``dtype`` when None."""
    splits: int = 4
    scale: float = 24**-0.5
    amplitude: float = 1.0
    kv_scale: float = 1.0
    source: str = "random"
    latent: int = 16
    rope: int = 8
    page: int = 16
    pages: int = 0
    """Pages of the cache; twice the need when 0."""


_QUICK = (
    *(Point(heads=heads) for heads in HEADS),
    Point(lengths=(0, 1), queries=(1, 1), splits=3),
    Point(queries=(1,) * 5, lengths=(16, 0, 17, 64, 1), splits=8),
    Point(queries=(1, 1, 1), lengths=(63, 64, 65), splits=2),
    Point(queries=(1, 1, 1), lengths=(127, 128, 129), splits=1),
    Point(heads=16, queries=(1,), lengths=(257,), splits=8),
    Point(queries=(2, 2), lengths=(33, 66), heads=48),
    Point(queries=(4, 4), lengths=(33, 66), heads=96),
    Point(queries=(8, 8), lengths=(8, 66)),
    Point(queries=(1, 4, 2), lengths=(31, 48, 65), heads=32),
    Point(queries=(3, 1, 8), lengths=(255, 5, 256), heads=6),
    Point(scale=1.0, dtype="float32"),
    Point(scale=K3_SCALE, dtype="float16", amplitude=4.0),
    Point(scale=0.25, amplitude=16.0, heads=8),
    Point(amplitude=16.0, heads=24, queries=(2, 1)),
    Point(cache="float8_e4m3fn", kv_scale=0.3, amplitude=4.0),
    Point(cache="float8_e4m3fn", kv_scale=0.25, heads=16),
    Point(cache="float8_e4m3fn", amplitude=16.0, queries=(4, 1)),
    Point(kv_scale=0.06),
    Point(source="captured", queries=(1, 8), lengths=(89, 64), latent=LATENT, rope=ROPE),
    Point(source="captured", lengths=(1, 33), latent=LATENT, rope=ROPE, splits=2),
    Point(pages=400, queries=(1, 2), lengths=(40, 70)),
    # Pages of one key and of 64; page ids past what 16 bits hold.
    Point(page=1, pages=70_000, queries=(1, 2), lengths=(40, 70)),
    Point(page=64, queries=(2, 1), lengths=(63, 130)),
    # Long rows and many parts, more parts than keys among them.
    Point(heads=16, queries=(1,), lengths=(1100,), splits=16),
    Point(heads=4, queries=(1,), lengths=(4100,), page=64, splits=32),
    Point(heads=8, queries=(1, 1), lengths=(40, 300), splits=64),
    # Scores whose exponentials overflow and underflow float32 unless shifted.
    Point(heads=16, queries=(2, 1), lengths=(2, 65), scale=1.0, amplitude=64.0),
    Point(latent=512, rope=64, scale=K3_SCALE, queries=(1, 2), lengths=(33, 70), page=64),
)


def _full() -> Iterator[Point]:
    layouts = (
        ((1,), (129,)),
        ((1, 1), (0, 64)),
        ((2, 2), (63, 257)),
        ((4, 4, 4), (4, 65, 255)),
        ((8, 8, 8, 8, 8), (8, 64, 65, 127, 129)),
        ((1, 4, 2, 8, 3), (1, 128, 17, 256, 48)),
    )
    formats: tuple[tuple[str, str | None, float], ...] = (
        ("bfloat16", None, 0.06),
        ("float16", None, 1.0),
        ("bfloat16", "float8_e4m3fn", 0.3),
    )
    for layout, heads, form, amplitude in itertools.product(
        layouts, HEADS, formats, (1.0, 4.0, 16.0)
    ):
        at = heads + int(amplitude)
        yield Point(
            heads=heads,
            queries=layout[0],
            lengths=layout[1],
            dtype=form[0],
            cache=form[1],
            kv_scale=form[2],
            amplitude=amplitude,
            scale=(24**-0.5, 1.0, K3_SCALE, 0.25)[at % 4],
            splits=(1, 2, 3, 8)[at % 4],
            page=(1, 16, 64)[at % 3],
        )
    yield Point(heads=12, latent=512, rope=64, scale=K3_SCALE, lengths=(1000, 8193), splits=8)
    yield Point(cache="float8_e4m3fn", pages=2**31 // (24 * 16) + 4096, queries=(1,), lengths=(70,))


def decode_cases(effort: Effort, settings: Settings) -> Iterator[Case]:
    """Sweep points, cheapest first within each effort."""
    points = iter(_QUICK) if effort is Effort.QUICK else itertools.chain(_QUICK, _full())
    for point in points:
        if settings["widths"] == "any":
            yield _build(point, settings["slots"])
        elif point.source == "random":
            # 512 + 64: scores keep their spread when the scale follows the width.
            scale = point.scale * (24 / 576) ** 0.5
            wide = replace(point, latent=512, rope=64, scale=scale, pages=min(point.pages, 400))
            yield _build(wide, settings["slots"])


def _name(p: Point) -> str:
    cache = f"-{p.cache}" if p.cache else ""
    queries = ",".join(str(n) for n in p.queries)
    lengths = ",".join(str(n) for n in p.lengths)
    far = f"-pages{p.pages}" if p.pages else ""
    return (
        f"H{p.heads}-Q{queries}-K{lengths}-{p.dtype}{cache}-x{p.amplitude:g}-scale{p.scale:.4g}"
        f"-kv{p.kv_scale:g}-splits{p.splits}-page{p.page}-D{p.latent}+{p.rope}-{p.source}{far}"
    )


def _build(p: Point, poison: str) -> Case:
    name = _name(p)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    dtype, cache_dtype = dtype_of(p.dtype), dtype_of(p.cache or p.dtype)
    queries, entries = _operands(p, rng)
    width = p.latent + p.rope
    need = [-(-length // p.page) for length in p.lengths]
    pages = p.pages or 2 * sum(need) + 2
    # A cache past 2^31 elements stays untouched zero pages: poison would fill gigabytes.
    fill = 0.0 if pages * p.page * width >= 2**31 else poison_for(cache_dtype, poison)
    cache = np.zeros((pages, p.page, width), dtype=cache_dtype)
    if np.isnan(fill) or fill != 0.0:
        cache[...] = np.float32(fill).astype(cache_dtype)
    # Page 0 belongs to nobody; far pages lie at the end of the cache.
    low = 1 if not p.pages else pages - 2 * sum(need)
    ids = rng.permutation(np.arange(low, pages))[: sum(need)].astype(np.int32)
    table = np.zeros((len(p.lengths), max([*need, 1]) + 1), dtype=np.int32)
    stored = 1.0 if p.cache is None else p.kv_scale
    at = 0
    for request, entry in enumerate(entries):
        own = ids[at : at + need[request]]
        at += need[request]
        table[request, : len(own)] = own
        for slot, row in enumerate(entry):
            cache[own[slot // p.page], slot % p.page] = (row / stored).astype(cache_dtype)
    starts = np.concatenate([[0], np.cumsum(p.queries)]).astype(np.int32)
    inputs: dict[str, Any] = {
        "q": np.concatenate(queries).astype(dtype),
        "kv_cache": cache,
        "block_table": table,
        "query_starts": starts,
        "lengths": np.array(p.lengths, dtype=np.int32),
        "latent": p.latent,
        "scale": float(p.scale),
        "num_splits": p.splits,
        "kv_scale": float(p.kv_scale),
    }
    return Case(id=name, axes=_axes(p), inputs=inputs)


def _axes(p: Point) -> dict[str, int | float | str | bool]:
    ragged = len(set(p.queries)) > 1
    return {
        "heads": p.heads,
        "queries": "ragged" if ragged else str(p.queries[0]),
        "most_queries": max(p.queries),
        "batch": len(p.queries),
        "shortest": min(p.lengths),
        "longest": max(p.lengths),
        "dtype": p.dtype,
        "cache": p.cache or p.dtype,
        "amplitude": p.amplitude,
        "kv_scale": p.kv_scale,
        "scale": round(p.scale, 6),
        "splits": p.splits,
        "page": p.page,
        "latent": p.latent,
        "far": p.pages > 0,
        "source": p.source,
    }


def _operands(p: Point, rng: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Queries [n, heads, width] and cache entries [length, width] of each request, float64."""
    width = p.latent + p.rope
    if p.source == "captured":
        q, kv = (captured()[name].astype(np.float64) for name in ("q_latent", "kv"))
        return (
            [
                q[length - n : length, : p.heads]
                for n, length in zip(p.queries, p.lengths, strict=True)
            ],
            [p.amplitude * kv[:length] for length in p.lengths],
        )
    queries = [rng.standard_normal((n, p.heads, width)) for n in p.queries]
    entries = [p.amplitude * rng.standard_normal((length, width)) for length in p.lengths]
    for q, entry in zip(queries, entries, strict=True):
        if len(entry) > len(q):
            # A needle at either end: one head looks at the first key, another at the last.
            entry[0] = _needle(q[-1, 0], p.scale)
            entry[-1] = _needle(q[-1, -1], p.scale)
    return queries, entries


def _needle(query: np.ndarray, scale: float) -> np.ndarray:
    """A key whose score with ``query`` is 6."""
    return query * (6.0 / (scale * float(query @ query)))


def smaller(case: Case) -> Iterator[Case]:
    """Fewer requests, fewer heads, fewer keys, one split: the boldest first."""
    inputs = case.inputs
    batch, heads = len(inputs["lengths"]), inputs["q"].shape[1]
    if batch > 1:
        for keep in (slice(0, batch // 2), slice(batch // 2, batch)):
            yield _requests(case, range(batch)[keep])
    if heads > 1:
        for part in (slice(0, heads // 2), slice(heads // 2, heads)):
            cut = {"q": np.ascontiguousarray(inputs["q"][:, part])}
            yield _changed(case, cut, f"heads{part.start}:{part.stop}", heads=cut["q"].shape[1])
    counts = np.diff(inputs["query_starts"])
    halved = np.maximum(inputs["lengths"] // 2, counts).astype(np.int32)
    if (halved < inputs["lengths"]).any():
        yield _changed(case, {"lengths": halved}, "half", longest=int(halved.max()))
    if inputs["num_splits"] > 1:
        yield _changed(case, {"num_splits": 1}, "splits1", splits=1)


def _requests(case: Case, keep: range) -> Case:
    inputs, starts = case.inputs, case.inputs["query_starts"]
    rows = [np.arange(starts[i], starts[i + 1]) for i in keep]
    cut = {
        "q": np.ascontiguousarray(inputs["q"][np.concatenate(rows)]),
        "block_table": np.ascontiguousarray(inputs["block_table"][list(keep)]),
        "lengths": np.ascontiguousarray(inputs["lengths"][list(keep)]),
        "query_starts": np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int32),
    }
    return _changed(case, cut, f"requests{keep.start}:{keep.stop}", batch=len(keep))


def _changed(case: Case, inputs: dict[str, Any], what: str, **axes: int) -> Case:
    return replace(
        case,
        id=f"{case.id}/{what}",
        axes={**case.axes, **axes},
        inputs={**case.inputs, **inputs},
    )
