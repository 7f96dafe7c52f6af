"""The check of an operation whose rows know nothing of each other."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validate.conformance.ops._rounding import CLAUSES as VALUE_CLAUSES, Expected, Multiples, judge
from validate.conformance.records import Breach, Call, Case
from validate.conformance.relations import permuted_rows, repeats, solo_rows

__all__ = [
    "CLAUSES",
    "MANY",
    "TINY",
    "check_rows",
    "logistic_condition",
    "outlier_rows",
    "shrunk_rows",
]

Array = NDArray[np.float64]

CLAUSES: Mapping[str, str] = {
    **VALUE_CLAUSES,
    "repeats": "The same call gives the same bits.",
    "alone": "A row alone gives what it gave in the batch, within its rounding error.",
    "order": "Rows may stand in any order.",
    "poison": "NaN in one row reaches no other.",
}
"""Clauses of every operation over rows."""

TINY = 2.0**-126
"""Smallest normal float32: results below it may be flushed to zero."""
LIMITS = Multiples(element=4.0, row=2.5, bulk=1.5)
"""Twice the rounding model is left for another order of work, e.g. one more store on the way."""
MANY = (9, 32, 65, 128, 130, 257)
"""Counts of small rows: whole tiles of rows, and one or two past them."""
POISONED = 1
"""The row that holds NaN where ``poison = row``."""


def check_rows(
    case: Case,
    call: Call,
    expected: Callable[[Mapping[str, Any]], Mapping[str, Expected]],
    *,
    rows: Mapping[str, int],
) -> tuple[Breach, ...]:
    """Judge one point, then what its ``probe`` asks for: ``repeats`` or ``rows``.

    Args:
        case: Sweep point; ``axes`` has ``probe`` and ``poison`` (``none`` or ``row``).
        call: Implementation behind guards.
        expected: Oracle of every output for given arguments; rows on the first axis.
        rows: Argument to its row axis.
    """
    got = call(case.inputs)
    poisoned = case.axes["poison"] == "row"
    truths = expected(_cleaned(case.inputs, rows) if poisoned else case.inputs)
    found: list[Breach] = []
    for name, truth in truths.items():
        values = got[name]
        if poisoned:
            others = np.arange(len(values)) != POISONED
            truth, values = _rows_of(truth, others), values[others]  # noqa: PLW2901
        found += judge(name, truth, values, multiples=LIMITS)
    if found:
        return (
            tuple(replace(one, clause="poison") for one in found[:1]) if poisoned else tuple(found)
        )
    if case.axes["probe"] == "repeats":
        return repeats(case, call, base=got)
    if case.axes["probe"] == "rows":
        limits = {name: 2 * LIMITS.element * truth.scale for name, truth in truths.items()}
        out_rows = dict.fromkeys(truths, 0)
        moved = permuted_rows(case, call, rows, out_rows, base=got, limits=limits, clause="order")
        return moved or solo_rows(
            case, call, rows, out_rows, base=got, limits=limits, clause="alone"
        )
    return ()


def _cleaned(inputs: Mapping[str, Any], rows: Mapping[str, int]) -> dict[str, Any]:
    """The arguments with zeros in the poisoned row, so that the oracle stays finite."""
    made = dict(inputs)
    for name, axis in rows.items():
        if inputs[name] is None or inputs[name].dtype.kind in "iu":
            continue
        copy = inputs[name].copy()
        copy[(slice(None),) * axis + (POISONED,)] = 0
        made[name] = copy
    return made


def _rows_of(truth: Expected, kept: np.ndarray) -> Expected:
    return replace(truth, values=truth.values[kept], scale=truth.scale[kept])


def poison_row(inputs: dict[str, Any], rows: Mapping[str, int]) -> dict[str, Any]:
    """NaN in one row of every float argument that has rows."""
    for name, axis in rows.items():
        if inputs[name] is not None and inputs[name].dtype.kind not in "iu":
            inputs[name][(slice(None),) * axis + (POISONED,)] = np.nan
    return inputs


def logistic_condition(x: Array) -> Array:
    """Relative change of sigmoid(x) for a relative change of exp(-|x|): ``|x| sigmoid(-x)``."""
    low: Array = np.where(x >= 0, np.exp(-np.abs(x)), 1.0) / (1.0 + np.exp(-np.abs(x)))
    condition: Array = np.abs(x) * low
    return condition


def outlier_rows(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    """Rows like those of a trained residual stream: channels of unlike size, a few huge.

    The numbers follow k3-nano's last hidden states (golden/k3-nano/cuda, prefill.hidden.8:
    rms 17, median channel rms 7, largest channel rms 148, kurtosis 63): log-normal channel
    sizes, and one channel in a hundred, one at least, twenty times larger.
    """
    width = shape[-1]
    size = np.exp(rng.normal(0.0, 0.5, width))
    size[rng.choice(width, max(1, width // 100), replace=False)] *= 20.0
    values: Array = 7.0 * size * rng.normal(size=tuple(shape))
    return values


def shrunk_rows(case: Case, *, rows: Mapping[str, int], last: Sequence[str] = ()) -> Iterator[Case]:
    """Smaller cases: half the rows, one row, and half of the last axis of ``last``."""
    name, axis = next(iter(rows.items()))
    count = case.inputs[name].shape[axis]
    cuts = [(row, row + 1) for row in range(min(count, 8))] if count > 1 else []
    for low, high in [(0, count // 2), (count // 2, count), *cuts]:
        if 0 < high - low < count:
            made = dict(case.inputs)
            for key, place in rows.items():
                if made[key] is not None:
                    made[key] = np.ascontiguousarray(
                        np.take(made[key], np.arange(low, high), axis=place)
                    )
            axes = {**case.axes, "rows": high - low}
            yield Case(id=f"{case.id}-rows{low}to{high}", axes=axes, inputs=made)
    width = case.inputs[last[0]].shape[-1] if last else 0
    for low, high in ((0, width // 2), (width // 2, width)):
        if 0 < high - low < width:
            made = dict(case.inputs)
            for key in last:
                if made[key] is not None:
                    made[key] = np.ascontiguousarray(made[key][..., low:high])
            axes = {**case.axes, "width": high - low}
            yield Case(id=f"{case.id}-width{low}to{high}", axes=axes, inputs=made)
