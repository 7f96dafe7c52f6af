"""Sweep points of the filters: one list of row shapes, whatever the parameter is called."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from validate.conformance.ops._prob_rows import KINDS, as_dtype, rows_of
from validate.conformance.records import Case, Effort

__all__ = ["FULL_VOCAB", "Mix", "Plan", "filter_cases", "plans"]

Number = int | float
Mix = Number | tuple[Number, ...]
"""One number for all rows, or numbers that rows take in turn."""

FULL_VOCAB = 163_840
"""Kimi K3's vocabulary."""
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
    hazard: str = "none"
    """``zero-row``, ``nan-row``, ``inf-row``, planted in row 1 of several; else ``none``."""

    def probs(self) -> np.ndarray:
        """The rows, from a seed of their own."""
        seed = [self.vocab, self.rows, KINDS.index(self.kind)]
        rows = rows_of(self.kind, self.rows, self.vocab, np.random.default_rng(seed)) * self.scale
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
        name = f"B{plan.rows}-V{plan.vocab}-{plan.kind}-{_SHORT[plan.dtype]}{size}{hazard}-{label}"
        yield Case(
            id=name,
            axes={
                "rows": plan.rows,
                "vocab": plan.vocab,
                "kind": plan.kind,
                "dtype": plan.dtype,
                "row sum": plan.scale,
                "hazard": plan.hazard,
                parameter: label,
            },
            inputs={"probs": probs, parameter: value},
        )


def _in_turn(mix: tuple[Number, ...], rows: int) -> NDArray[np.float64]:
    return np.array([mix[row % len(mix)] for row in range(rows)], np.float64)
