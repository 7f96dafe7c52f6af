"""Relations that hold whatever the truth is: repeats, row order, rows alone.

Each runs the implementation on related inputs and demands the same bits, or values
within a stated limit where the contract allows another order of sums.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from validate.conformance.records import Breach, Call, Case

__all__ = ["permuted_rows", "repeats", "solo_rows"]

Outputs = Mapping[str, np.ndarray]
Limits = Mapping[str, Any]
"""Output name to the largest |difference| allowed: a number, or an array of the output's shape."""


def repeats(
    case: Case,
    call: Call,
    *,
    base: Outputs | None = None,
    times: int = 2,
    clause: str = "repeats",
) -> tuple[Breach, ...]:
    """The same call gives the same bits.

    Args:
        case: Sweep point.
        call: Implementation behind guards.
        base: Outputs of an earlier call with the same inputs; saves one call.
        times: How many calls are held against each other, ``base`` included.
        clause: Clause of the contract that a difference breaks.
    """
    first = call(case.inputs) if base is None else base
    for _ in range(times - 1):
        again = call(case.inputs)
        for name, value in first.items():
            differing = _differing(value, again[name], limit=None)
            if differing.any():
                what = f"{name}: {_count(differing)} differ between two equal calls; {_place(value, again[name], differing)}"
                return (Breach(clause=clause, what=what, at=_first(differing)),)
    return ()


def permuted_rows(
    case: Case,
    call: Call,
    rows: Mapping[str, int],
    out_rows: Mapping[str, int],
    *,
    base: Outputs | None = None,
    limits: Limits | None = None,
    order: np.ndarray | None = None,
    clause: str = "row-order",
) -> tuple[Breach, ...]:
    """Rows in another order give the same results in that order.

    Args:
        case: Sweep point.
        call: Implementation behind guards.
        rows: Input name to the axis along which its rows lie.
        out_rows: Output name to the axis along which its rows lie.
        base: Outputs for the inputs as they stand; saves one call.
        limits: Largest |difference| by output; bits must be equal for those not named.
        order: Permutation; rows reversed when None.
        clause: Clause of the contract that a difference breaks.
    """
    count = _rows_of(case, rows)
    if count < 2:  # noqa: PLR2004  one row has one order
        return ()
    first = call(case.inputs) if base is None else base
    order = np.arange(count)[::-1] if order is None else order
    moved = {
        name: np.ascontiguousarray(np.take(value, order, axis=rows[name]))
        if name in rows
        else value
        for name, value in case.inputs.items()
    }
    found = call(moved)
    for name, axis in out_rows.items():
        expected = np.take(first[name], order, axis=axis)
        limit = _moved_limit(limits, name, order, axis)
        breach = _rows_breach(
            name, expected, found[name], axis, limit, clause, labels=order, why="in another order"
        )
        if breach is not None:
            return (breach,)
    return ()


def solo_rows(
    case: Case,
    call: Call,
    rows: Mapping[str, int],
    out_rows: Mapping[str, int],
    *,
    base: Outputs | None = None,
    limits: Limits | None = None,
    only: tuple[int, ...] | None = None,
    clause: str = "solo",
) -> tuple[Breach, ...]:
    """Each row alone gives what it gave in the batch.

    Args:
        case: Sweep point.
        call: Implementation behind guards.
        rows: Input name to the axis along which its rows lie.
        out_rows: Output name to the axis along which its rows lie.
        base: Outputs for the whole batch; saves one call.
        limits: Largest |difference| by output; bits must be equal for those not named.
        only: Rows that are run alone; all when None.
        clause: Clause of the contract that a difference breaks.
    """
    count = _rows_of(case, rows)
    if count < 2:  # noqa: PLR2004  one row is alone already
        return ()
    first = call(case.inputs) if base is None else base
    wrong: list[int] = []
    told: Breach | None = None
    for row in range(count) if only is None else only:
        here = np.array([row])
        alone = {
            name: np.ascontiguousarray(np.take(value, here, axis=rows[name]))
            if name in rows
            else value
            for name, value in case.inputs.items()
        }
        found = call(alone)
        for name, axis in out_rows.items():
            expected = np.take(first[name], here, axis=axis)
            limit = _moved_limit(limits, name, here, axis)
            breach = _rows_breach(
                name, expected, found[name], axis, limit, clause, labels=here, why="alone"
            )
            if breach is not None:
                wrong.append(row)
                told = told or breach
                break
    if told is None:
        return ()
    return (
        Breach(
            clause=clause,
            what=told.what,
            at=told.at,
            wrong={**told.wrong, "row": tuple(wrong)},
            ratio=told.ratio,
        ),
    )


def _rows_of(case: Case, rows: Mapping[str, int]) -> int:
    counts = {name: case.inputs[name].shape[axis] for name, axis in rows.items()}
    if len(set(counts.values())) != 1:
        msg = f"{case.id}: inputs differ in their number of rows: {counts}"
        raise ValueError(msg)
    return int(next(iter(counts.values())))


def _moved_limit(limits: Limits | None, name: str, order: np.ndarray, axis: int) -> Any:
    limit = None if limits is None else limits.get(name)
    if isinstance(limit, np.ndarray) and limit.ndim:
        return np.take(limit, order, axis=axis)
    return limit


def _rows_breach(
    name: str,
    expected: np.ndarray,
    found: np.ndarray,
    axis: int,
    limit: Any,
    clause: str,
    *,
    labels: np.ndarray,
    why: str,
) -> Breach | None:
    differing = _differing(expected, found, limit=limit)
    if not differing.any():
        return None
    others = tuple(other for other in range(differing.ndim) if other != axis)
    bad = np.flatnonzero(differing.any(axis=others))
    wrong = tuple(sorted(int(labels[row]) for row in bad))
    at = {"row": int(labels[bad[0]])}
    what = (
        f"{name}: row {at['row']} {why} differs from the same row in the batch, "
        f"{_count(differing)}; {_place(expected, found, differing)}"
    )
    return Breach(clause=clause, what=what, at=at, wrong={"row": wrong})


def _differing(one: np.ndarray, other: np.ndarray, *, limit: Any) -> np.ndarray:
    """True where bits differ and, with a limit, the values do by more than it."""
    a, b = np.ascontiguousarray(one), np.ascontiguousarray(other)
    if a.size == 0:
        return np.zeros(a.shape, dtype=bool)
    bits = np.dtype(f"u{a.dtype.itemsize}")
    unequal: np.ndarray = a.view(bits) != b.view(bits)
    if limit is None or not unequal.any():
        return unequal
    with np.errstate(invalid="ignore"):
        gap = np.abs(a.astype(np.float64) - b.astype(np.float64))
        within: np.ndarray = gap <= limit
    both: np.ndarray = unequal & ~within
    return both


def _first(differing: np.ndarray) -> dict[str, int]:
    place = np.unravel_index(int(np.flatnonzero(differing)[0]), differing.shape)
    return {f"axis{axis}": int(index) for axis, index in enumerate(place)}


def _count(differing: np.ndarray) -> str:
    return f"{int(differing.sum())} of {differing.size} values"


def _place(one: np.ndarray, other: np.ndarray, differing: np.ndarray) -> str:
    index = int(np.flatnonzero(differing)[0])
    place = tuple(int(i) for i in np.unravel_index(index, differing.shape))
    a, b = (float(np.ravel(array)[index]) for array in (one, other))
    return f"first at {place}: {a:.6g} and {b:.6g}"
