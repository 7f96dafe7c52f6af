"""Sweep points of the filters: one list of row shapes, whatever the parameter is called."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from validate.conformance.ops._prob_rows import KINDS, Array, as_dtype, rows_of, tailed, widened
from validate.conformance.records import Case, Effort

__all__ = [
    "CROWD",
    "FULL_VOCAB",
    "LONG_VOCAB",
    "Mix",
    "Plan",
    "filter_cases",
    "in_any_order",
    "plans",
    "sharp_of",
]

Number = int | float
Mix = Number | tuple[Number, ...]
"""One number for all rows, or numbers that rows take in turn."""

FULL_VOCAB = 163_840
"""Kimi K3's vocabulary."""
LONG_VOCAB = 32_001
"""Longer than most scratch, and a multiple of no block."""
CROWD = 130
"""More rows than two wavefronts of 64, each with a parameter of its own."""
DTYPES = ("float32", "bfloat16", "float16")
_SHORT = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Rows of one sweep point, before a parameter is given to them."""

    kind: str
    vocab: int
    rows: int
    dtype: str = "float32"
    scale: float = 1.0
    """What a row sums to."""
    tail: bool = False
    """The largest entry of each row is its last."""
    hazard: str = "none"
    """``zero-row``, ``nan-row``, ``inf-row``, planted in row 1 of several; else ``none``."""

    def probs(self) -> np.ndarray:
        """The rows, from a seed of their own."""
        seed = [self.vocab, self.rows, KINDS.index(self.kind)]
        rows = rows_of(self.kind, self.rows, self.vocab, np.random.default_rng(seed)) * self.scale
        if self.tail:
            rows = tailed(rows)
        if self.hazard != "none":
            row = 1 % self.rows
            if self.hazard == "zero-row":
                rows[row] = 0.0
            else:
                rows[row, self.vocab // 3] = np.nan if self.hazard == "nan-row" else np.inf
        return as_dtype(rows, self.dtype)


def plans(effort: Effort) -> tuple[Plan, ...]:
    """Row shapes, the cheapest first; every axis value once in quick, crossed in full."""
    quick = (
        Plan(kind="ties", vocab=8, rows=1),
        Plan(kind="peaked", vocab=8, rows=2),
        Plan(kind="flat", vocab=37, rows=3),
        Plan(kind="ties", vocab=37, rows=3),
        Plan(kind="peaked", vocab=37, rows=0),
        Plan(kind="sparse", vocab=37, rows=2),
        Plan(kind="sparse", vocab=37, rows=2, scale=3.7),
        Plan(kind="peaked", vocab=500, rows=3),
        Plan(kind="peaked", vocab=500, rows=2, scale=3.7),
        Plan(kind="peaked", vocab=500, rows=2, scale=0.01),
        Plan(kind="peaked", vocab=500, rows=2, scale=1.0 + 1e-6),
        Plan(kind="wide", vocab=500, rows=2),
        Plan(kind="peaked", vocab=500, rows=5, dtype="bfloat16"),
        Plan(kind="peaked", vocab=500, rows=3, dtype="float16"),
        Plan(kind="ties", vocab=500, rows=2, dtype="bfloat16"),
        Plan(kind="peaked", vocab=500, rows=3, hazard="zero-row"),
        Plan(kind="peaked", vocab=500, rows=3, hazard="nan-row"),
        Plan(kind="peaked", vocab=500, rows=3, hazard="inf-row"),
        Plan(kind="peaked", vocab=2047, rows=1),
        Plan(kind="peaked", vocab=2048, rows=2),
        Plan(kind="gentle", vocab=500, rows=8),
        Plan(kind="peaked", vocab=2049, rows=2, tail=True),
        Plan(kind="peaked", vocab=37, rows=CROWD),
        Plan(kind="gentle", vocab=LONG_VOCAB, rows=3, tail=True),
        Plan(kind="peaked", vocab=FULL_VOCAB, rows=2),
    )
    if effort is Effort.QUICK:
        return quick
    crossed = (
        Plan(kind=kind, vocab=vocab, rows=rows, dtype=dtype, scale=scale)
        for vocab in (8, 37, 500, 2047, 2048, 2049, 32_000)
        for rows in (1, 2, 3, 5)
        for kind in KINDS
        for dtype in DTYPES
        for scale in (1.0, 3.7, 0.01)
    )
    wide = (
        Plan(kind=kind, vocab=FULL_VOCAB, rows=2, dtype=dtype) for kind in KINDS for dtype in DTYPES
    )
    return (*quick, *crossed, *wide)


def filter_cases(
    plan: Plan, parameter: str, mixes: Sequence[tuple[str, Mix]], *, dtype: str
) -> Iterator[Case]:
    """One sweep point a parameter mix.

    Args:
        plan: Rows.
        parameter: Argument name.
        mixes: Label and value.
        dtype: Dtype of the parameter when it is an array.
    """
    probs = plan.probs()
    for label, mix in mixes:
        if isinstance(mix, tuple):
            value: Number | np.ndarray = _in_turn(mix, plan.rows).astype(dtype)
        else:
            value = mix
        size = "" if plan.scale == 1.0 else f"-sum{plan.scale:g}"
        hazard = "" if plan.hazard == "none" else f"-{plan.hazard}"
        tail = "-tail" if plan.tail else ""
        name = f"B{plan.rows}-V{plan.vocab}-{plan.kind}{tail}-{_SHORT[plan.dtype]}{size}{hazard}-{label}"
        yield Case(
            id=name,
            axes={
                "rows": plan.rows,
                "vocab": plan.vocab,
                "kind": f"{plan.kind}{tail}",
                "dtype": plan.dtype,
                "row sum": plan.scale,
                "hazard": plan.hazard,
                parameter: label,
            },
            inputs={"probs": probs, parameter: value},
        )


def in_any_order(values: Sequence[Number], rows: int) -> tuple[Number, ...]:
    """A value a row in no period: a row index taken modulo anything meets another value."""
    picks = np.random.default_rng([len(values), rows]).integers(0, len(values), size=rows)
    return tuple(values[int(pick)] for pick in picks)


def _sharp(edges: Array, *, band: float) -> float:
    """A parameter beside an edge, on whose other side its float16 lies.

    Args:
        edges: Where the kept set changes, in (0, 1).
        band: What the contract leaves free about an edge.

    Returns:
        The first such parameter that is ``2 band`` away from every edge, as is its float16.
    """
    apart = 2 * band + 1e-5
    for edge in edges[(edges > 0.5) & (edges < 0.999)]:  # noqa: PLR2004  float16's step is 2^-11 there
        for offset in (-1e-4, 1e-4, -5e-5, 5e-5):
            exact = float(np.float32(edge + offset))
            rounded = float(np.float16(exact))
            far = np.abs(edges[:, None] - np.array([exact, rounded])).min() > apart
            if far and (exact < edge) != (rounded < edge):
                return exact
    msg = f"none of {len(edges)} edges has a parameter that float16 takes over it"
    raise AssertionError(msg)


def sharp_of(plan: Plan, edges_of: Callable[[Array], Array], *, band: float) -> Mix:
    """A sharp parameter a row.

    Args:
        plan: Rows.
        edges_of: From a row to where its kept set changes.
        band: What the contract leaves free about an edge.
    """
    return tuple(_sharp(edges_of(row), band=band) for row in widened(plan.probs()))


def _in_turn(mix: tuple[Number, ...], rows: int) -> NDArray[np.float64]:
    return np.array([mix[row % len(mix)] for row in range(rows)], np.float64)
