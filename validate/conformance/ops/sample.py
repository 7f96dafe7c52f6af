"""Contract of ``sample``: filter each row by its own parameters, then draw one id from it."""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from validate.conformance.ops._laws import misdraw
from validate.conformance.ops._prob_rows import (
    U32,
    Array,
    accumulated,
    orders,
    smaller_rows,
    widened,
)
from validate.conformance.ops._sample_cases import (
    coin_cases,
    edge_case,
    law_cases,
    size_cases,
    tail_case,
)
from validate.conformance.ops._sample_laws import check_call_seeds, check_row_seeds
from validate.conformance.records import (
    Breach,
    Call,
    Case,
    Contract,
    Effort,
    Operation,
    OutputSpec,
    Settings,
)
from validate.oracle import filtered
from validate.oracle.sampling import Order

__all__ = ["OPERATION"]

CONTRACT = Contract(
    op="sample",
    title="Filter each row by its own top-k, top-p and min-p, then draw one id from it",
    signature="sample(probs [rows, vocab], top_k int32 [rows], top_p float32 [rows], min_p float32 "
    "[rows], uniforms float32 [rows]) -> ids int64 [rows]; random=row_seeds: seeds int64 [rows] "
    "(-1: none) and step int in place of uniforms; random=call_seed: seed int",
    outputs=("ids",),
    clauses={
        "range": "Every id is within the vocabulary, whatever came in.",
        "support": "An id that a filter drops is never drawn; top_k <= 0 or >= vocab, top_p >= 1 and "
        "min_p <= 0 are off. order=top_k_first: top-p counts what top-k left; joint: both look at "
        "the row as it came. Min-p comes last, threshold and values of one row.",
        "draw": "The id is the first whose cumulative weight exceeds the coin times the sum, within "
        "the error of float32 sums (none where sums are exact: an edge belongs to the next id).",
        "row-order": "Each row is judged in several orders and alone: batchmates change nothing.",
        "law": "Draws follow the filtered row: chi-square at level 1e-6 over 8,192 draws (a TVD of "
        "0.05 on eight ids is seen with power 0.999).",
        "independent": "Draws of neighbouring rows, and of neighbouring steps or seeds, are "
        "uncorrelated: z of their probability transforms at level 1e-6.",
        "replay": "random=row_seeds: a row's draw depends on its seed and step alone, in any order "
        "of rows, alone, and beside rows without a seed. call_seed: an equal seed gives equal ids.",
        "repeats": "random=uniforms: the same call gives the same ids.",
    },
    settings={
        "random": ("uniforms", "row_seeds", "call_seed"),
        "order": ("top_k_first", "joint"),
    },
)
BY_ROW = ("probs", "top_k", "top_p", "min_p", "uniforms")


def _cases(effort: Effort, settings: Settings) -> Iterator[Case]:
    if settings["random"] != "uniforms":
        yield from law_cases(effort, settings["random"])
        return
    yield edge_case()
    yield from coin_cases(effort, settings["order"])
    yield from size_cases(settings["order"])
    yield tail_case()


def _outputs(inputs: Mapping[str, object], settings: Settings) -> Mapping[str, OutputSpec]:
    del settings
    return {"ids": OutputSpec(shape=(len(np.asarray(inputs["probs"])),), dtype="int64")}


def _check(case: Case, call: Call, settings: Settings) -> tuple[Breach, ...]:
    if settings["random"] == "row_seeds":
        return check_row_seeds(case, call, _law(case, settings))
    if settings["random"] == "call_seed":
        return check_call_seeds(case, call, _law(case, settings))
    law = _law(case, settings)
    band = 0.0 if case.axes["kind"] == "edges" else _band(law.shape[1])
    runs = list(orders(len(law), every=law.size < 50_000))  # noqa: PLR2004  few calls when large
    if 1 < len(law) <= 8:  # noqa: PLR2004  a few rows: each of them alone too
        runs += [(row,) for row in range(len(law))]
    for order in runs:
        taken = {name: np.ascontiguousarray(case.inputs[name][list(order)]) for name in BY_ROW}
        found = _judged(taken, call(taken)["ids"], order, law, band)
        if found:
            return found
    if (call(case.inputs)["ids"] != call(case.inputs)["ids"]).any():
        return (Breach(clause="repeats", what="two equal calls give unequal ids"),)
    return ()


def _band(vocab: int) -> float:
    """Three float32 sums (top-k, top-p, min-p) scale a row, a fourth accumulates it."""
    return 4 * accumulated(vocab) + 16 * U32


def _law(case: Case, settings: Settings) -> Array:
    """The filtered rows; NaN throughout a damaged one."""
    probs = widened(case.inputs["probs"])
    order: Order = "joint" if settings["order"] == "joint" else "top_k_first"
    return filtered(
        probs,
        top_k=case.inputs["top_k"],
        top_p=case.inputs["top_p"],
        min_p=case.inputs["min_p"],
        order=order,
    )


def _judged(
    inputs: Mapping[str, NDArray[np.generic]],
    ids: NDArray[np.int64],
    order: tuple[int, ...],
    law: Array,
    band: float,
) -> tuple[Breach, ...]:
    place = "" if order == tuple(range(len(law))) else f" (row order {order})"
    place = " (alone)" if len(order) == 1 and len(law) > 1 else place
    rows: dict[str, list[int]] = {}
    words: dict[str, str] = {}
    for at, row in enumerate(order):
        coin = float(inputs["uniforms"][at])
        problem = misdraw(int(ids[at]), law[row], coin, band=band, words=(f"row {row}",))
        if problem:
            given = ", ".join(
                f"{name} {inputs[name][at]:g}" for name in ("top_k", "top_p", "min_p")
            )
            rows.setdefault(problem[0], []).append(row)
            words.setdefault(problem[0], f"{problem[1]}; {given}{place}")
    return tuple(
        Breach(clause=clause, what=words[clause], at={"row": many[0]}, wrong={"row": tuple(many)})
        for clause, many in rows.items()
    )


def _shrink(case: Case) -> Iterator[Case]:
    if "uniforms" not in case.inputs:
        return iter(())
    return smaller_rows(case, rows=dict.fromkeys(BY_ROW, 0), columns={"probs": 1})


OPERATION = Operation(
    contract=CONTRACT,
    cases=_cases,
    outputs=_outputs,
    check=_check,
    shrink=_shrink,
)
