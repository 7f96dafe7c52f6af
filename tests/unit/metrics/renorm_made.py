"""Sides with renorm rows, filtered by a few lines of float32 NumPy that stand for an engine."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.fakes import FakeSide, make_manifest, make_pair, make_prompt
from validate.schema import Levels, Pair

__all__ = [
    "LEVELS",
    "OFF",
    "ROW",
    "TIED",
    "artifact",
    "divided",
    "engine",
    "first",
    "made_pair",
    "side",
]

LEVELS = Levels(low=0.99)
ROW = (0.35, 0.25, 0.20, 0.15, 0.05)
TIED = (0.1, 0.3, 0.3, 0.3, 0.0)
OFF = 2**30
Array = NDArray[Any]
Engine = Callable[[Array, int, float], Array]


def engine(row: Array, k: int, p: float, *, ties: str = "all") -> Array:
    """Top-k, division, top-p, division, in float32, on one row."""
    within = divided(row, first(row, min(max(k, 1), len(row)), ties))
    if p >= 1:
        return within
    falling = np.sort(within)[::-1]
    reached = np.cumsum(falling, dtype=np.float32) >= np.float32(p)
    return divided(within, first(within, int(np.argmax(reached)) + 1, ties))


def first(row: Array, count: int, ties: str) -> Array:
    order = np.argsort(-row, kind="stable")
    if ties == "all":
        return np.asarray(row >= row[order[count - 1]])
    mask = np.zeros(len(row), bool)
    mask[order[:count]] = True
    return mask


def divided(row: Array, mask: Array) -> Array:
    kept = np.where(mask, row, np.float32(0))
    return kept / np.float32(kept.sum(dtype=np.float32))


def artifact(
    rows: Sequence[Sequence[float]],
    k: Sequence[int],
    p: Sequence[float],
    *,
    by: Engine = engine,
    **changes: Array,
) -> dict[str, Array]:
    """The renorm tensors of one prompt; ``changes`` replace tensors by name."""
    given = np.asarray(rows, np.float32)
    parameters = zip(given, k, np.asarray(p, np.float32), strict=True)
    out = np.stack([by(row, one, float(share)) for row, one, share in parameters])
    digest = hashlib.sha256(given.tobytes()).digest()
    held: dict[str, Array] = {
        "renorm.positions": np.arange(len(given), dtype=np.int32),
        "renorm.in": given,
        "renorm.top_k": np.asarray(k, np.int32),
        "renorm.top_p": np.asarray(p, np.float32),
        "renorm.out": out.astype(np.float32),
        "renorm.in_after_sha256": np.frombuffer(digest, np.uint8),
    }
    return held | {f"renorm.{name}": array for name, array in changes.items()}


def side(label: str, held: Mapping[str, Mapping[str, Array]], ties: str | None = "all") -> FakeSide:
    """A side whose manifest declares ``ties``."""
    options = {"batch": "4"} | ({} if ties is None else {"renorm": ties})
    prompts = {name: make_prompt(name, (1, 2, 3, 4)) for name in held}
    return FakeSide(label, held, prompts=prompts, manifest=make_manifest(label, options=options))


def made_pair(ref: FakeSide, cand: FakeSide) -> Pair:
    return make_pair(ref, cand)
