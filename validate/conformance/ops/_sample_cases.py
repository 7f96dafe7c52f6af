"""Sweep points of ``sample``: mixed parameters, coins on edges, and crowds of seeds."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from validate.conformance.ops._prob_rows import (
    Array,
    as_dtype,
    between,
    rows_of,
    tailed,
    widened,
)
from validate.conformance.records import Axis, Case, Effort
from validate.oracle import filtered

__all__ = ["LAW_ROWS", "coin_cases", "edge_case", "law_cases", "size_cases", "tail_case"]

LAW_ROWS = 1024
LAW_ROW = np.array([0.30, 0.22, 0.15, 0.11, 0.09, 0.07, 0.04, 0.02])
"""Eight ids; the least expected count over 8,192 draws is 164."""
FULL_VOCAB = 163_840
OFF = (2**30, 1.0, 0.0)
MIXES = (
    OFF,
    (4, 1.0, 0.0),
    (0, 0.82, 0.0),
    (4, 0.82, 0.0),
    (-1, 1.0, 0.1),
    (50, 0.95, 0.05),
    (1, 1.0, 0.0),
    (7, 0.5, 0.2),
    (500, 0.0, 0.0),
    (6, 0.9, 0.3),
)
"""(top_k, top_p, min_p) that rows take in turn: off, each filter alone, and together."""
DEEP = (
    (101, 1.0, 0.0),
    (500, 1.0, 0.0),
    (1025, 1.0, 0.0),
    (5000, 1.0, 0.0),
    (0, 0.97, 0.0),
    (5000, 0.8, 0.6),
)
"""Filters that leave more than 100 or 1,000 ids, where every id counts."""
CROWD = 130
"""More rows than two wavefronts of 64."""
BELOW_ONE = float(np.nextafter(np.float32(1), np.float32(0)))
KINDS = ("peaked", "sparse", "wide")


def edge_case() -> Case:
    """Rows of exact sums with coins on, below and beyond every edge."""
    row = np.array([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
    below = float(np.nextafter(np.float32(0.25), np.float32(0)))
    coins = (0.0, below, 0.25, 0.5, 0.75, BELOW_ONE)
    rows = len(coins)
    return _case(
        np.tile(row, (rows, 1)),
        mixes=(OFF,),
        uniforms=np.array(coins),
        kind="edges",
        dtype="float32",
    )


def tail_case() -> Case:
    """Eighths on both sides of 2^16 and 2^17 and on the last ids of the full vocabulary.

    Sums are exact, so no coin is within a band of an edge.
    """
    places = (0, 2**16 - 1, 2**16, 2**17 - 1, 2**17, *range(FULL_VOCAB - 3, FULL_VOCAB))
    row = np.zeros(FULL_VOCAB)
    row[list(places)] = 1.0 / len(places)
    coins = np.array([9 / 16, 13 / 16, BELOW_ONE])
    rows = np.tile(row, (len(coins), 1))
    return _case(rows, mixes=(OFF,), uniforms=coins, kind="edges", dtype="float32")


def size_cases(order: str) -> Iterator[Case]:
    """Kept sets beyond a scratch of 100 or 1,000 ids; a crowd of rows in no period."""
    rng = np.random.default_rng([CROWD, len(DEEP)])
    deep = tailed(rows_of("gentle", 2 * len(DEEP), 8192, rng))
    coins = rng.random(len(deep))
    yield _case(deep, mixes=DEEP, uniforms=coins, kind="gentle", dtype="float32", order=order)
    crowd = rows_of("peaked", CROWD, 37, rng)
    mixes = tuple(MIXES[int(pick)] for pick in rng.integers(0, len(MIXES), size=CROWD))
    coins = rng.random(CROWD)
    yield _case(crowd, mixes=mixes, uniforms=coins, kind="peaked", dtype="float32", order=order)


def coin_cases(effort: Effort, order: str) -> Iterator[Case]:
    """Mixed parameters over rows of several kinds; top-p and min-p are moved off every edge."""
    shapes = [
        ("peaked", 1, 8, "float32"),
        ("peaked", 3, 8, "float32"),
        ("peaked", 10, 37, "float32"),
        ("peaked", 10, 500, "float32"),
        ("peaked", 10, 500, "bfloat16"),
        ("sparse", 5, 37, "float32"),
        ("wide", 5, 500, "float32"),
        ("peaked", 64, 500, "float32"),
        ("peaked", 10, 2049, "float16"),
        ("peaked", 2, FULL_VOCAB, "float32"),
    ]
    if effort is Effort.FULL:
        shapes += [
            (kind, rows, vocab, dtype)
            for vocab in (8, 37, 500, 2048, 32_000)
            for rows in (1, 2, 3, 5, 64)
            for kind in KINDS
            for dtype in ("float32", "bfloat16", "float16")
        ]
    for kind, rows, vocab, dtype in dict.fromkeys(shapes):
        rng = np.random.default_rng([rows, vocab, KINDS.index(kind)])
        probs = rows_of(kind, rows, vocab, rng)
        coins = rng.random(rows)
        yield _case(probs, mixes=MIXES, uniforms=coins, kind=kind, dtype=dtype, order=order)
    for hazard, value in (("zero-row", 0.0), ("nan-row", np.nan)):
        rng = np.random.default_rng(len(hazard))
        probs = rows_of("peaked", 3, 500, rng)
        probs[1] = value
        coins = rng.random(3)
        yield _case(
            probs, mixes=MIXES[3:], uniforms=coins, kind="peaked", dtype="float32", hazard=hazard
        )


def law_cases(effort: Effort, random: str) -> Iterator[Case]:
    """One row many times over, each with a seed of its own (or one seed a call)."""
    for number, (label, mix) in enumerate((("off", OFF), ("filtered", (6, 0.9, 0.1)))):
        rows = LAW_ROWS
        probs = np.tile(LAW_ROW, (rows, 1)).astype(np.float32)
        inputs: dict[str, Any] = {"probs": probs, **_parameters(probs, (mix,), "top_k_first")}
        rng = np.random.default_rng([number, rows])
        if random == "row_seeds":
            inputs["seeds"] = rng.integers(0, 2**62, size=rows)
            inputs["step"] = 0
        else:
            inputs["seed"] = int(rng.integers(0, 2**31))
        axes: dict[str, Axis] = {
            "rows": rows,
            "vocab": len(LAW_ROW),
            "kind": "law",
            "filter": label,
        }
        yield Case(id=f"B{rows}-V{len(LAW_ROW)}-law-{label}", axes=axes, inputs=inputs)
        if effort is Effort.QUICK and random == "call_seed":
            return


def _case(
    probs: Array,
    *,
    mixes: tuple[tuple[int, float, float], ...],
    uniforms: Array,
    kind: str,
    dtype: str,
    order: str = "top_k_first",
    hazard: str = "none",
) -> Case:
    rows, vocab = probs.shape
    held = as_dtype(probs, dtype)
    coins = np.minimum(uniforms.astype(np.float32), np.float32(BELOW_ONE))
    inputs = {"probs": held, **_parameters(held, mixes, order), "uniforms": coins}
    label = "" if hazard == "none" else f"-{hazard}"
    return Case(
        id=f"B{rows}-V{vocab}-{kind}-{dtype}{label}",
        axes={"rows": rows, "vocab": vocab, "kind": kind, "dtype": dtype, "hazard": hazard},
        inputs=inputs,
    )


def _parameters(
    probs: np.ndarray, mixes: tuple[tuple[int, float, float], ...], order: str
) -> dict[str, np.ndarray]:
    """Rows take the mixes in turn; a threshold is moved to the middle of its gap.

    In the middle of a gap no rounding decides what is kept, so the law is one and not several.
    """
    wide = widened(probs)
    top_k = np.array([mixes[row % len(mixes)][0] for row in range(len(wide))], np.int32)
    top_p, min_p = (
        np.array([mixes[row % len(mixes)][i] for row in range(len(wide))], np.float32)
        for i in (1, 2)
    )
    known: dict[tuple[bytes, int], tuple[float, float]] = {}
    for row, probs_row in enumerate(wide):
        if not np.isfinite(probs_row).all() or not probs_row.any():
            continue
        key = (probs_row.tobytes(), row % len(mixes))
        if key not in known:
            known[key] = _settled(
                probs_row, int(top_k[row]), float(top_p[row]), float(min_p[row]), order
            )
        top_p[row], min_p[row] = known[key]
    return {"top_k": top_k, "top_p": top_p, "min_p": min_p}


def _settled(row: Array, k: int, p: float, share: float, order: str) -> tuple[float, float]:
    counted = row
    if order == "top_k_first":
        counted = filtered(row[None], top_k=k, top_p=1.0, min_p=0.0)[0]
    if 0 < p < 1:
        falling = -np.sort(-counted)
        p = between(np.cumsum(falling)[falling > 0] / falling.sum(), p)
    if 0 < share < 1:
        left = counted[counted > 0]
        share = between(left / left.max(), share)
    return p, share
