"""Packed ragged batches: sequences one after another in one token axis, bounds in ``cu_seqlens``.

``cu_seqlens`` [sequences + 1] int64 holds the start of each sequence and the end of the
last. Tokens past ``cu_seqlens[-1]`` are padding: what they hold must move nothing, and
what an operation returns there is not looked at.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from validate.conformance.records import Case

__all__ = ["bounds", "lengths", "padded", "piece", "shrunk", "take", "typed", "with_tokens"]

Span = tuple[int, int]


def bounds(inputs: Mapping[str, Any]) -> list[Span]:
    """Start and end of every sequence."""
    cu = [int(i) for i in inputs["cu_seqlens"]]
    return list(itertools.pairwise(cu))


def lengths(inputs: Mapping[str, Any]) -> list[int]:
    """Tokens of every sequence."""
    return [end - start for start, end in bounds(inputs)]


def with_tokens(
    inputs: Mapping[str, Any],
    spans: Sequence[Span],
    *,
    per_token: Sequence[str],
) -> dict[str, Any]:
    """The inputs with the token axis repacked from ``spans``; no padding is kept."""
    index = np.concatenate([np.arange(*span) for span in spans] or [np.arange(0)]).astype(np.int64)
    made = dict(inputs)
    for name in per_token:
        made[name] = np.ascontiguousarray(inputs[name][index])
    steps = [end - start for start, end in spans]
    made["cu_seqlens"] = np.cumsum([0, *steps], dtype=np.int64)
    return made


def take(
    inputs: Mapping[str, Any],
    order: Sequence[int],
    *,
    per_token: Sequence[str],
    per_sequence: Sequence[str],
) -> dict[str, Any]:
    """The sequences ``order``, in that order, each with its own rows of ``per_sequence``."""
    spans = bounds(inputs)
    made = with_tokens(inputs, [spans[n] for n in order], per_token=per_token)
    for name in per_sequence:
        if inputs[name] is not None:
            made[name] = np.ascontiguousarray(inputs[name][np.asarray(order, dtype=np.int64)])
    return made


def piece(
    inputs: Mapping[str, Any], cut: int, *, first: bool, per_token: Sequence[str]
) -> dict[str, Any]:
    """The first ``cut`` tokens of every sequence, or what follows them; states are left alone."""
    spans = [
        (start, min(start + cut, end)) if first else (min(start + cut, end), end)
        for start, end in bounds(inputs)
    ]
    return with_tokens(inputs, spans, per_token=per_token)


def padded(array: np.ndarray, pad: int, *, fill: float) -> np.ndarray:
    """``pad`` more rows of ``fill`` on the token axis, in the array's dtype."""
    rows = np.full((pad, *array.shape[1:]), fill, dtype=array.dtype)
    return np.concatenate([array, rows])


def typed(array: np.ndarray, dtype: str) -> np.ndarray:
    """``array`` rounded to ``dtype`` (``bfloat16`` or a NumPy name)."""
    held: np.ndarray = array.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    return held


def shrunk(
    case: Case,
    *,
    per_token: Sequence[str],
    per_sequence: Sequence[str],
    head_axes: Mapping[str, int],
    heads: str = "heads",
) -> Iterator[Case]:
    """Smaller cases: one sequence alone, half the heads, half or one less of the tokens.

    Args:
        case: A packed case.
        per_token: Inputs whose first axis is the token axis.
        per_sequence: Inputs whose first axis is the sequence axis.
        head_axes: Axis of the heads (or channels) in each input that has one.
        heads: Name of that coordinate in ``case.axes``.
    """
    count = len(case.inputs["cu_seqlens"]) - 1
    if count > 1:
        for n in range(count):
            taken = take(case.inputs, [n], per_token=per_token, per_sequence=per_sequence)
            yield _again(case, taken, f"sequence{n}", heads, head_axes)
    longest = max(lengths(case.inputs), default=0)
    for cut in sorted({longest // 2, longest - 1} - {longest, 0, -1}):
        first = piece(case.inputs, cut, first=True, per_token=per_token)
        yield _again(case, first, f"first{cut}", heads, head_axes)
    for slicer, name in _head_cuts(case.inputs, head_axes):
        made = dict(case.inputs)
        for key, axis in head_axes.items():
            if made[key] is not None:
                made[key] = np.ascontiguousarray(slicer(made[key], axis))
        yield _again(case, made, name, heads, head_axes)


Slicer = Callable[[np.ndarray, int], np.ndarray]


def _head_cuts(
    inputs: Mapping[str, Any], head_axes: Mapping[str, int]
) -> Iterator[tuple[Slicer, str]]:
    key, axis = next(iter(head_axes.items()))
    count = inputs[key].shape[axis]
    for low, high in ((0, count // 2), (count // 2, count), (0, count - 1)):
        if 0 < high - low < count:

            def cut(array: np.ndarray, axis: int, low: int = low, high: int = high) -> np.ndarray:
                part: np.ndarray = np.take(array, np.arange(low, high), axis=axis)
                return part

            yield cut, f"part{low}to{high}"


def _again(
    case: Case, inputs: dict[str, Any], how: str, heads: str, head_axes: Mapping[str, int]
) -> Case:
    key, axis = next(iter(head_axes.items()))
    axes = dict(case.axes)
    axes |= {
        "tokens": max(lengths(inputs), default=0),
        "sequences": len(inputs["cu_seqlens"]) - 1,
        heads: int(inputs[key].shape[axis]),
    }
    return Case(id=f"{case.id}-{how}", axes=axes, inputs=inputs)
