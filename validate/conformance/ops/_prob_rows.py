"""Probability rows of the sweeps, and the model of rounding that their judges share."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from validate.conformance.records import Case
from validate.numerics import dtype_of, to_float64, unit_roundoff

__all__ = [
    "U32",
    "accumulated",
    "as_dtype",
    "between",
    "is_damaged",
    "orders",
    "rows_of",
    "smaller_rows",
    "smallest_step",
    "tailed",
    "widened",
]

Array = NDArray[np.float64]

U32 = unit_roundoff("float32")
"""Unit roundoff of the accumulator that every contract here asks for."""
SUM_LAMBDA = 8.0
"""Higham and Mary 2019 (SIAM J. Sci. Comput. 41(5), theorem 2.4): a sum of n terms is off by
more than ``lambda sqrt(n) u`` times the sum of magnitudes with probability below
``2 exp(-lambda^2 / 2)``, 2.5e-14 for 8. Sums in blocks, as kernels make them, are closer."""
_SMALLEST = {"float32": 2.0**-149, "bfloat16": 2.0**-133, "float16": 2.0**-24}
KINDS = ("peaked", "ties", "flat", "sparse", "wide", "gentle")


def accumulated(terms: int) -> float:
    """Relative error of a float32 sum of ``terms`` numbers of one sign, any order of adding."""
    return SUM_LAMBDA * math.sqrt(terms) * U32 if terms > SUM_LAMBDA**2 else terms * U32


def smallest_step(dtype: str) -> float:
    """Distance of the smallest representable numbers of a dtype."""
    return _SMALLEST[dtype]


def as_dtype(rows: Array, dtype: str) -> np.ndarray:
    """Rows in the dtype that an implementation sees."""
    cast: np.ndarray = rows.astype(dtype_of(dtype))
    return cast


def rows_of(kind: str, rows: int, vocab: int, rng: np.random.Generator) -> Array:
    """Probability rows of one kind, float64, each summing to 1.

    ``peaked``: softmax of normal logits of width 3, no two equal. ``wide``: width 24, down to
    1e-40. ``ties``: eight levels, so that most entries tie. ``flat``: all equal. ``sparse``:
    three entries are not 0. ``gentle``: the largest is twice the smallest, no two equal, so
    that every entry counts.
    """
    if kind == "flat":
        return np.full((rows, vocab), 1.0 / vocab)
    if kind == "ties":
        level: Array = np.ldexp(1.0, -rng.integers(0, 8, size=(rows, vocab)))
        level /= level.sum(axis=1, keepdims=True)
        return level
    if kind == "sparse":
        out = np.zeros((rows, vocab))
        for row in range(rows):
            out[row, rng.choice(vocab, size=3, replace=False)] = (0.5, 0.3, 0.2)
        return out
    if kind == "gentle":
        rising = np.tile(np.linspace(1.0, 2.0, vocab), (rows, 1))
        mixed: Array = rng.permuted(rising, axis=1)
        return np.asarray(mixed / mixed.sum(axis=1, keepdims=True), np.float64)
    logits = rng.normal(size=(rows, vocab)) * (24.0 if kind == "wide" else 3.0)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.asarray(weights, np.float64)


def tailed(rows: Array) -> Array:
    """Rows rolled so that each one's largest entry is its last: nobody may leave the tail out."""
    last = rows.shape[1] - 1
    return np.stack([np.roll(row, last - int(np.argmax(row))) for row in rows])


def is_damaged(probs: Array) -> NDArray[np.bool_]:
    """Rows with a NaN, an infinity or a negative entry, [rows]."""
    damaged: NDArray[np.bool_] = np.any(~np.isfinite(probs) | (probs < 0), axis=1)
    return damaged


def orders(rows: int, *, every: bool = True) -> tuple[tuple[int, ...], ...]:
    """Row orders to run: all of up to three rows, else as given, reversed and rotated."""
    given = tuple(range(rows))
    if rows < 2:  # noqa: PLR2004  one row has one order
        return (given,)
    if every and rows <= 3:  # noqa: PLR2004  3! calls are few
        others = [tuple(int(i) for i in np.roll(given, shift)) for shift in range(rows)]
        both = others + [order[::-1] for order in others]
        return tuple(dict.fromkeys([given, *both]))
    return (given, given[::-1], given[1:] + given[:1])


def between(values: Array, wanted: float) -> float:
    """The middle of the gap of ``values`` that holds ``wanted``: far from every value."""
    edges = np.unique(np.concatenate([[0.0], values]))
    upper = int(np.clip(np.searchsorted(edges, wanted), 1, len(edges) - 1))
    return float(np.float32((edges[upper - 1] + edges[upper]) / 2))


def smaller_rows(
    case: Case, *, rows: Mapping[str, int], columns: Mapping[str, int] | None = None
) -> Iterator[Case]:
    """Sweep points with fewer rows, then with fewer columns.

    Args:
        case: The point that fails.
        rows: Input name to the axis of its rows; scalars are left alone.
        columns: Input name to the axis of its columns (the vocabulary); None where ids
            would lose their meaning.
    """
    yield from _taken(case, rows, "row", singles=True)
    if columns is not None:
        yield from _taken(case, columns, "column", singles=False)


def _taken(case: Case, axes: Mapping[str, int], word: str, *, singles: bool) -> Iterator[Case]:
    name = next(iter(axes))
    count = case.inputs[name].shape[axes[name]]
    whole = np.arange(count)
    pieces = [whole[: (count + 1) // 2], whole[count // 2 :]]
    if singles:
        pieces += [whole[i : i + 1] for i in range(count)][: 8 if count > 1 else 0]
    else:
        pieces += [whole[::2], whole[1::2]]
        pieces += [np.delete(whole, i) for i in range(count) if count <= 16]  # noqa: PLR2004
    for taken in pieces:
        if not 0 < len(taken) < count:
            continue
        inputs = {
            key: np.ascontiguousarray(np.take(value, taken, axis=axes[key]))
            if key in axes and isinstance(value, np.ndarray)
            else value
            for key, value in case.inputs.items()
        }
        label = f"{word}{taken[0]}" if len(taken) == 1 else f"{len(taken)}-{word}s-from-{taken[0]}"
        sizes = {"rows": len(taken)} if singles else {"vocab": len(taken)}
        axes_now = {**case.axes, **{key: value for key, value in sizes.items() if key in case.axes}}
        yield replace(case, id=f"{case.id}/{label}", inputs=inputs, axes=axes_now)


def widened(probs: np.ndarray) -> Array:
    """Exact float64 copy."""
    return np.asarray(to_float64(probs), np.float64)
