"""Contract of ``top_p_renorm_prob``: keep the fewest largest that reach a mass, divide them."""

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
    TIES,
    Array,
    Sizes,
    check_rows,
    filter_outputs,
)
from validate.conformance.ops._prob_rows import accumulated, smaller_rows
from validate.conformance.records import Breach, Call, Case, Contract, Effort, Operation, Settings

__all__ = ["OPERATION"]

P_MIXED = (0.0, 1e-6, 0.01, 0.04, 0.3, 0.5, 0.82, 0.9, 0.95, 0.999, 1.0)

CONTRACT = Contract(
    op="top_p_renorm_prob",
    title="Keep the fewest largest probabilities whose mass reaches p and divide them by their sum",
    signature="top_p_renorm_prob(probs [rows, vocab], top_p: float32 [rows] or float) -> out [rows, vocab]",
    outputs=("out",),
    clauses={
        **CLAUSES,
        "mass": "The kept mass reaches its target less the band: p times the row's sum "
        "(mass=relative), p (absolute), or more than the row's sum less 1 - p (discarded).",
        "p": "p >= 1 keeps the row and divides it by its sum; p <= 0 keeps the largest. The band: "
        "a cumulative sum may be off by 8 sqrt(vocab) u of the row's sum (float32 accumulator), so "
        "the last entry kept is free where the target is that close.",
    },
    settings={
        "ties": TIES,
        "mass": ("relative", "absolute", "discarded"),
        "damaged": DAMAGED,
        "output": OUTPUT,
    },
)


def _cases(effort: Effort, settings: Settings) -> Iterator[Case]:
    del settings
    for plan in plans(effort):
        yield from filter_cases(plan, "top_p", _mixes(plan, effort), dtype="float32")


def _mixes(plan: Plan, effort: Effort) -> list[tuple[str, Mix]]:
    if plan.vocab == FULL_VOCAB:
        return [("0.9,1", (0.9, 1.0))]
    if plan.rows == CROWD:
        return [("mixed", in_any_order(P_MIXED, plan.rows))]
    if plan.vocab == LONG_VOCAB:
        return [("0.9,1,0.02", (0.9, 1.0, 0.02))]
    mixed: list[tuple[str, Mix]] = [("0.9,1,0.3", (0.9, 1.0, 0.3, 0.0, 0.999))]
    if plan.hazard != "none" or plan.rows == 0:
        return mixed
    if plan.kind == "peaked" and plan.vocab == 500:  # noqa: PLR2004
        mixed += [("0,1e-6,0.5", (0.0, 1e-6, 0.5)), ("0.95,0.82,0.01", (0.95, 0.82, 0.01))]
    if plan.kind == "gentle" and effort is Effort.QUICK:
        mixed += [("0.01,0.04,0.6", (0.01, 0.04, 0.6, 0.02, 0.99))]
        mixed += [("sharp", sharp_of(plan, _edges, band=accumulated(plan.vocab)))]
    if plan.rows == 1 or effort is Effort.FULL:
        mixed += [("all 0", 0.0), ("all 0.6", 0.6), ("all 1", 1.0)]
    return mixed


def _edges(row: Array) -> Array:
    return np.asarray(np.cumsum(-np.sort(-row)) / row.sum(), np.float64)


def _check(case: Case, call: Call, settings: Settings) -> tuple[Breach, ...]:
    top_p = case.inputs["top_p"]

    def rule(falling: Array, row: int) -> Sizes:
        asked = float(top_p[row]) if isinstance(top_p, np.ndarray) else float(top_p)
        return _sizes(falling, asked, settings)

    return check_rows(case, call, settings, rows=("top_p",), rule=rule)


def _sizes(falling: Array, asked: float, settings: Settings) -> Sizes:
    words = f"p {asked:g}"
    p = float(np.clip(asked, 0.0, 1.0))
    if p == 1.0 or not falling.any():
        every = len(falling)
        return Sizes(low=every, high=every, ties=settings["ties"], words=words)
    reached = np.cumsum(falling)
    total = float(reached[-1])
    rule = settings["mass"]
    target = {"relative": p * total, "absolute": p, "discarded": total - (1.0 - p)}[rule]
    band = accumulated(len(falling)) * total
    low = _first(reached, target - band)
    high = _first(reached, np.nextafter(target + band, np.inf))
    due = None if total < target else target - band
    return Sizes(low=low, high=high, ties=settings["ties"], words=words, mass=due)


def _first(reached: Array, target: float) -> int:
    """How many of the largest reach a target: at least one, all where none do."""
    return int(np.clip(np.searchsorted(reached, target) + 1, 1, len(reached)))


def _shrink(case: Case) -> Iterator[Case]:
    return smaller_rows(case, rows={"probs": 0, "top_p": 0}, columns={"probs": 1})


OPERATION = Operation(
    contract=CONTRACT,
    cases=_cases,
    outputs=filter_outputs,
    check=_check,
    shrink=_shrink,
)
