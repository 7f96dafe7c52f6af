"""Contract of ``min_p``: keep entries of at least a share of the largest, divide them by their sum."""

from collections.abc import Iterator

import numpy as np

from validate.conformance.ops._filter_cases import (
    CROWD,
    FULL_VOCAB,
    LONG_VOCAB,
    Mix,
    Plan,
    filter_cases,
    in_any_order,
    plans,
    sharp_of,
)
from validate.conformance.ops._kept import (
    CLAUSES,
    DAMAGED,
    OUTPUT,
    Array,
    Sizes,
    check_rows,
    filter_outputs,
)
from validate.conformance.ops._prob_rows import U32, smaller_rows
from validate.conformance.records import Breach, Call, Case, Contract, Effort, Operation, Settings

__all__ = ["OPERATION"]

MIXED = (0.0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 0.9, 1.0)

CONTRACT = Contract(
    op="min_p",
    title="Keep probabilities of at least min_p times the row's largest and divide them by their sum",
    signature="min_p(probs [rows, vocab], min_p: float32 [rows] or float) -> out [rows, vocab]",
    outputs=("out",),
    clauses={
        **{clause: text for clause, text in CLAUSES.items() if clause != "ties"},
        "ties": "Entries equal to the smallest kept one are kept too.",
        "threshold": "Threshold and values come from the row as it came in; min_p <= 0 keeps the row, "
        "min_p >= 1 the largest and its equals. The band: the threshold is one float32 product, "
        "so entries within 2 u of it are free.",
    },
    settings={"damaged": DAMAGED, "output": OUTPUT},
)


def _cases(effort: Effort, settings: Settings) -> Iterator[Case]:
    del settings
    for plan in plans(effort):
        yield from filter_cases(plan, "min_p", _mixes(plan, effort), dtype="float32")


def _mixes(plan: Plan, effort: Effort) -> list[tuple[str, Mix]]:
    if plan.vocab == FULL_VOCAB:
        return [("0.05,0", (0.05, 0.0))]
    if plan.rows == CROWD:
        return [("mixed", in_any_order(MIXED, plan.rows))]
    if plan.vocab == LONG_VOCAB:
        return [("0.6,0,0.99", (0.6, 0.0, 0.99))]
    mixed: list[tuple[str, Mix]] = [("0.05,0,0.2", (0.05, 0.0, 0.2, 1.0, 0.5))]
    if plan.hazard != "none" or plan.rows == 0:
        return mixed
    if plan.kind == "gentle" and effort is Effort.QUICK:
        mixed += [("sharp", sharp_of(plan, _edges, band=2 * U32))]
    if plan.rows == 1 or effort is Effort.FULL:
        mixed += [("all 0", 0.0), ("all 0.1", 0.1), ("all 1", 1.0)]
    return [*mixed, ("1,0.01,0.3", (1.0, 0.01, 0.3))]


def _edges(row: Array) -> Array:
    return np.asarray(np.unique(row) / row.max(), np.float64)


def _check(case: Case, call: Call, settings: Settings) -> tuple[Breach, ...]:
    min_p = case.inputs["min_p"]

    def rule(falling: Array, row: int) -> Sizes:
        asked = float(min_p[row]) if isinstance(min_p, np.ndarray) else float(min_p)
        threshold = float(np.clip(asked, 0.0, 1.0)) * float(falling[0])
        low = int(np.count_nonzero(falling >= threshold * (1 + 2 * U32)))
        high = int(np.count_nonzero(falling >= threshold * (1 - 2 * U32)))
        low = int(np.maximum(low, 1))
        return Sizes(low=low, high=high, ties="all", words=f"min_p {asked:g}")

    return check_rows(case, call, settings, rows=("min_p",), rule=rule)


def _shrink(case: Case) -> Iterator[Case]:
    return smaller_rows(case, rows={"probs": 0, "min_p": 0}, columns={"probs": 1})


OPERATION = Operation(
    contract=CONTRACT,
    cases=_cases,
    outputs=filter_outputs,
    check=_check,
    shrink=_shrink,
)
