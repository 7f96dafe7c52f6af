"""Contract of ``top_k_renorm_prob``: keep the k largest of each row, divide them by their sum."""

from collections.abc import Iterator
from dataclasses import replace

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
)
from validate.conformance.ops._kept import (
    CLAUSES,
    DAMAGED,
    OUTPUT,
    TIES,
    Array,
    Sizes,
    check_rows,
    filter_outputs,
)
from validate.conformance.ops._prob_rows import smaller_rows, widened
from validate.conformance.records import Breach, Call, Case, Contract, Effort, Operation, Settings

__all__ = ["OPERATION"]

TOP_K_ALL = 2**30
"""What sglang writes for a request without top-k."""

K_MIXED = (1, 2, 3, 5, 7, 20, 36, 37, 38, 50, 40_000, 65_539, 2**20, TOP_K_ALL, 2**31 - 1)
"""Below, at and above a vocabulary of 37; what wraps in 16 bits; the largest int32."""

CONTRACT = Contract(
    op="top_k_renorm_prob",
    title="Keep the k largest probabilities of each row and divide them by their sum",
    signature="top_k_renorm_prob(probs [rows, vocab], top_k: int32 [rows] or int) -> out [rows, vocab]",
    outputs=("out",),
    clauses={
        **CLAUSES,
        "k": "k >= vocab keeps the row and divides it by its sum; k <= 0 is 1 (low_k=clamp) or "
        "the whole row (low_k=off), or is not asked for (undefined). Entries are compared as they "
        "came in: there is no band.",
    },
    settings={
        "ties": TIES,
        "low_k": ("clamp", "off", "undefined"),
        "damaged": DAMAGED,
        "output": OUTPUT,
    },
)


def _cases(effort: Effort, settings: Settings) -> Iterator[Case]:
    for plan in plans(effort):
        mixes = _mixes(plan, effort, settings)
        for case in filter_cases(plan, "top_k", mixes, dtype="int32"):
            yield _labelled(case)


def _labelled(case: Case) -> Case:
    """With the coordinate that the tie rule turns on: does any row tie across its k?"""
    probs = widened(case.inputs["probs"])
    wanted = np.broadcast_to(np.asarray(case.inputs["top_k"]), len(probs))
    tied = False
    for row, k in zip(probs, wanted, strict=True):
        if 0 < k < len(row) and np.isfinite(row).all():
            at = np.partition(row, (len(row) - k - 1, len(row) - k))
            tied |= bool(at[len(row) - k - 1] == at[len(row) - k] > 0)
    return replace(case, axes={**case.axes, "tie at k": tied})


def _mixes(plan: Plan, effort: Effort, settings: Settings) -> list[tuple[str, Mix]]:
    """Mixed k in every row order is the point of a batch; scalars for the other call form."""
    if plan.vocab == FULL_VOCAB:
        return [("50,V", (50, plan.vocab)), ("1,100k", (1, 100_000))]
    if plan.rows == CROWD:
        return [("mixed", in_any_order(K_MIXED, plan.rows))]
    if plan.vocab == LONG_VOCAB:
        return [("20k,off,V-1", (20_000, TOP_K_ALL, plan.vocab - 1))]
    mixed: list[tuple[str, Mix]] = [("3,off,1", (3, TOP_K_ALL, 1, 50, plan.vocab))]
    if plan.hazard != "none" or plan.rows == 0:
        return mixed
    if plan.kind == "peaked" and plan.vocab == 500:  # noqa: PLR2004
        # A row without top-k writes past a scratch sized for 50; then 50 itself, and k <= 0.
        mixed += [("50,V,8", (50, plan.vocab, 8))]
        mixed += [] if settings["low_k"] == "undefined" else [("0,-1,5", (0, -1, 5))]
    if plan.kind == "gentle":
        mixed += [("V-1,V+1,100", (plan.vocab - 1, plan.vocab + 1, 100, 2**16 + 3, 101, 256))]
    scalars: list[tuple[str, Mix]] = []
    if plan.rows == 1 or effort is Effort.FULL:
        scalars = [("all 1", 1), ("all 4", 4), ("all V", plan.vocab), ("all V-1", plan.vocab - 1)]
        scalars += [("all 0", 0)] if settings["low_k"] == "off" else []
    return [*mixed, ("2,5,7", (2, 5, 7)), *scalars]


def _check(case: Case, call: Call, settings: Settings) -> tuple[Breach, ...]:
    top_k = case.inputs["top_k"]

    def rule(falling: Array, row: int) -> Sizes:
        k = int(top_k[row]) if isinstance(top_k, np.ndarray) else int(top_k)
        if k >= len(falling) or (k <= 0 and settings["low_k"] == "off"):
            kept = len(falling)
        else:
            kept = int(np.maximum(k, 1))
        return Sizes(low=kept, high=kept, ties=settings["ties"], words=f"k {k}")

    return check_rows(case, call, settings, rows=("top_k",), rule=rule)


def _shrink(case: Case) -> Iterator[Case]:
    for smaller in smaller_rows(case, rows={"probs": 0, "top_k": 0}, columns={"probs": 1}):
        yield _labelled(smaller)


OPERATION = Operation(
    contract=CONTRACT,
    cases=_cases,
    outputs=filter_outputs,
    check=_check,
    shrink=_shrink,
)
