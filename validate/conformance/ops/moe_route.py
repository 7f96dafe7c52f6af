"""Contract of ``moe_route``: sigmoid router with a correction bias, top-k, renormalised weights."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validate.conformance.ops._packed import typed
from validate.conformance.ops._rounding import (
    CLAUSES as VALUE_CLAUSES,
    Expected,
    judge,
    roundoff_of,
)
from validate.conformance.ops._route_inputs import full, make_case, quick
from validate.conformance.ops._rows import TINY, logistic_condition
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
from validate.conformance.relations import repeats
from validate.numerics import to_float64
from validate.oracle import route, sigmoid

__all__ = ["OPERATION"]

Array = NDArray[np.float64]

BAND = 8.0
"""Scores nearer than this many rounding errors of the two are a tie."""

CONTRACT = Contract(
    op="moe_route",
    title="Pick by sigmoid + bias, weigh by sigmoid alone, divide by the sum + 1e-20, times scale",
    signature=(
        "moe_route(logits, correction_bias, top_k, renormalize, scale, valid_rows)"
        " -> (ids, weights)"
    ),
    outputs=("ids", "weights"),
    clauses={
        **VALUE_CLAUSES,
        "ids": "Each valid row names top_k different experts.",
        "choice": "No chosen expert scores less than one left out, beyond the rounding of both.",
        "falling": "Experts stand by falling score, beyond the rounding of two scores.",
        "tie": "Among exactly equal scores the lowest index wins.",
        "padding": "Rows from valid_rows on hold id -1 and weight 0, whatever their logits are.",
        "repeats": "The same call gives the same bits.",
        "order": "Rows may stand in any order, and a row alone gives what it gave in the batch.",
        "poison": "NaN in one row reaches no other.",
    },
    settings={
        "sorted": ("score", "any"),
        "ties": ("any", "lowest_index"),
        "bias": ("float32", "bfloat16"),
        "renormalize": ("both", "always"),
        "padding": ("masked", "unspecified"),
    },
)
"""logits [rows, experts] in float32 or bfloat16; correction_bias float32 [experts]; top_k
from 1 to experts; renormalize a bool; scale above 0; valid_rows: rows from there on are padding and may
hold NaN. Output in fresh memory: ids int32 [rows, top_k], weights float32 [rows, top_k], the weight of
each id beside it. Scores nearer than their rounding are a tie, which any order may settle unless
``ties=lowest_index`` is declared. When every chosen sigmoid vanishes the weights are 0, not NaN. What a
valid row of NaN gives is open, but it reaches no other row. Oracle: ``validate.oracle.route``, on the
correction bias as declared; ``renormalize=always``: the kernel knows no raw weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Truth:
    """Oracle of the valid rows."""

    scores: Array
    """Selection scores [rows, experts]."""
    off: Array
    """Rounding error of each score."""
    share: Array
    """Sigmoids without the bias."""
    share_off: Array
    ids: np.ndarray
    """The oracle's own choice, lowest index first among equals."""


def _cases(effort: Effort, settings: Settings) -> Iterator[Case]:
    raw = settings["renormalize"] == "both"
    points = chain(quick(raw=raw), full(raw=raw)) if effort is Effort.FULL else quick(raw=raw)
    for point in dict.fromkeys(points):
        yield make_case(point)


def _truth(inputs: Mapping[str, Any], settings: Settings, rows: np.ndarray) -> _Truth:
    """Scores, and the rounding of them: a sigmoid, the bias added, both in float32."""
    logits = to_float64(inputs["logits"])[rows]
    bias = to_float64(typed(inputs["correction_bias"], settings["bias"]))
    routing = route(
        logits,
        router=np.eye(logits.shape[1]),
        correction_bias=bias,
        experts_per_token=inputs["top_k"],
    )
    share, sums = sigmoid(logits), roundoff_of("float32")
    share_off = sums * share * (4.0 + logistic_condition(logits)) + TINY
    return _Truth(
        scores=routing.scores,
        off=share_off + sums * np.abs(routing.scores),
        share=share,
        share_off=share_off,
        ids=routing.ids,
    )


def _check(case: Case, call: Call, settings: Settings) -> tuple[Breach, ...]:
    inputs, got = case.inputs, call(case.inputs)
    valid = np.arange(int(inputs["valid_rows"]))
    poisoned = case.axes["poison"] == "row"
    rows = valid[valid != 1] if poisoned else valid
    found = _judged(inputs, got, settings, rows)
    if found:
        return _under("poison", found) if poisoned else found
    if case.axes["probe"] == "repeats":
        return repeats(case, call, base=got)
    if case.axes["probe"] == "rows":
        return _moved(case, call, settings)
    return ()


def _under(clause: str, found: tuple[Breach, ...]) -> tuple[Breach, ...]:
    return tuple(replace(one, clause=clause) for one in found[:1])


def _moved(case: Case, call: Call, settings: Settings) -> tuple[Breach, ...]:
    """Rows reversed, and each row alone, each judged against the oracle."""
    count = len(case.inputs["logits"])
    for order in (range(count - 1, -1, -1), *([row] for row in range(count))):
        rows = np.array(list(order))
        moved = {
            **case.inputs,
            "logits": np.ascontiguousarray(case.inputs["logits"][rows]),
            "valid_rows": len(rows),
        }
        found = _judged(moved, call(moved), settings, np.arange(len(rows)))
        if found:
            return _under("order", found)
    return ()


def _judged(
    inputs: Mapping[str, Any], got: Mapping[str, np.ndarray], settings: Settings, rows: np.ndarray
) -> tuple[Breach, ...]:
    ids, weights = got["ids"], got["weights"]
    if settings["padding"] == "masked":
        found = _padding(ids, weights, int(inputs["valid_rows"]))
        if found:
            return found
    ids, weights = ids[rows].astype(np.int64), weights[rows]
    found = _named(ids, inputs["logits"].shape[1], rows)
    if found:
        return found
    truth = _truth(inputs, settings, rows)
    return (
        *_choice(ids, truth, rows),
        *(_falling(ids, truth, rows) if settings["sorted"] == "score" else ()),
        *(_lowest(ids, inputs, rows) if settings["ties"] == "lowest_index" else ()),
        *judge("weights", _weights(inputs, ids, truth), weights),
    )


def _padding(ids: np.ndarray, weights: np.ndarray, valid: int) -> tuple[Breach, ...]:
    wrong = (ids[valid:] != -1).any(axis=1) | ~(weights[valid:] == 0).all(axis=1)
    if not wrong.any():
        return ()
    row = valid + int(np.argmax(wrong))
    what = f"padded row {row} holds ids {ids[row].tolist()}, weights {weights[row].tolist()}"
    bad = tuple(int(i) + valid for i in np.flatnonzero(wrong))
    return (Breach(clause="padding", what=what, at={"row": row}, wrong={"row": bad}),)


def _named(ids: np.ndarray, experts: int, rows: np.ndarray) -> tuple[Breach, ...]:
    outside = np.any((ids < 0) | (ids >= experts), axis=1)
    ordered = np.sort(ids, axis=1)
    twice = np.any(ordered[:, 1:] == ordered[:, :-1], axis=1)
    if not (outside | twice).any():
        return ()
    at = int(np.argmax(outside | twice))
    why = f"an id outside 0..{experts - 1}" if outside[at] else "one expert twice"
    what = f"row {rows[at]} names {why}: {ids[at].tolist()}"
    return (Breach(clause="ids", what=what, at={"row": int(rows[at])}),)


def _choice(ids: np.ndarray, truth: _Truth, rows: np.ndarray) -> tuple[Breach, ...]:
    taken = np.zeros(truth.scores.shape, dtype=bool)
    np.put_along_axis(taken, ids, values=True, axis=1)
    low = np.where(taken, truth.scores + BAND * truth.off, np.inf)
    high = np.where(taken, -np.inf, truth.scores - BAND * truth.off)
    wrong = ~(np.min(low, axis=1) >= np.max(high, axis=1))
    if not wrong.any():
        return ()
    at = int(np.argmax(wrong))
    kept, left = int(np.argmin(low[at])), int(np.argmax(high[at]))
    what = (
        f"{int(wrong.sum())} of {len(rows)} rows chose wrongly; row {rows[at]} took expert {kept} "
        f"(score {truth.scores[at, kept]:.6g}) and left {left} ({truth.scores[at, left]:.6g})"
    )
    bad = tuple(int(rows[i]) for i in np.flatnonzero(wrong))
    return (Breach(clause="choice", what=what, at={"row": int(rows[at])}, wrong={"row": bad}),)


def _falling(ids: np.ndarray, truth: _Truth, rows: np.ndarray) -> tuple[Breach, ...]:
    scores = np.take_along_axis(truth.scores, ids, axis=1)
    off = BAND * np.take_along_axis(truth.off, ids, axis=1)
    rises = (scores[:, 1:] - scores[:, :-1] > off[:, 1:] + off[:, :-1]).any(axis=1)
    if not rises.any():
        return ()
    at = int(np.argmax(rises))
    what = f"row {rows[at]} is not by falling score: ids {ids[at].tolist()}"
    return (Breach(clause="falling", what=what, at={"row": int(rows[at])}),)


def _lowest(ids: np.ndarray, inputs: Mapping[str, Any], rows: np.ndarray) -> tuple[Breach, ...]:
    """Experts of one logit and one bias score exactly alike: a lower one must not be passed over."""
    bias = to_float64(inputs["correction_bias"])
    for at, row in enumerate(rows):
        logits = to_float64(inputs["logits"])[row]
        for place, taken in enumerate(ids[at]):
            alike = np.flatnonzero((logits == logits[taken]) & (bias == bias[taken]))
            passed = [int(i) for i in alike[alike < taken] if i not in ids[at][:place]]
            if passed:
                what = f"row {row} took expert {taken} before {passed[0]}, which scores the same"
                return (Breach(clause="tie", what=what, at={"row": int(row)}),)
    return ()


def _weights(inputs: Mapping[str, Any], ids: np.ndarray, truth: _Truth) -> Expected:
    """Weights of the experts that were taken, in their order, and the rounding of them."""
    picked = np.take_along_axis(truth.share, ids, axis=1)
    off = np.take_along_axis(truth.share_off, ids, axis=1)
    scale = float(inputs["scale"])
    if inputs["renormalize"]:
        total = np.sum(picked, axis=1, keepdims=True) + 1e-20
        off = off / total + picked * np.sum(off, axis=1, keepdims=True) / total**2
        picked = picked / total
    sums = roundoff_of("float32") * (2.0 + np.sqrt(ids.shape[1]))
    values = scale * picked
    return Expected(
        values=values,
        scale=scale * off + sums * np.abs(values) + TINY,
        axes=("row", "choice"),
    )


def _outputs(inputs: Mapping[str, Any], _: Settings) -> Mapping[str, OutputSpec]:
    shape = (len(inputs["logits"]), inputs["top_k"])
    return {
        "ids": OutputSpec(shape=shape, dtype="int32"),
        "weights": OutputSpec(shape=shape, dtype="float32"),
    }


def _shrink(case: Case) -> Iterator[Case]:
    """One valid row without padding; fewer experts; fewer choices."""
    inputs, valid = case.inputs, int(case.inputs["valid_rows"])
    experts, top_k = inputs["logits"].shape[1], inputs["top_k"]
    if len(inputs["logits"]) > 1:
        for row in range(min(valid, 8)):
            one = {**inputs, "logits": inputs["logits"][row : row + 1].copy(), "valid_rows": 1}
            yield Case(id=f"{case.id}-row{row}", axes={**case.axes, "rows": 1}, inputs=one)
    if len(inputs["logits"]) > valid:
        few = {**inputs, "logits": inputs["logits"][: valid + 1].copy()}
        if len(few["logits"]) < len(inputs["logits"]):
            yield Case(id=f"{case.id}-pad1", axes={**case.axes, "padded": 1}, inputs=few)
    for low, high in ((0, experts // 2), (experts // 2, experts)):
        if top_k < high - low < experts:
            part = {
                **inputs,
                "logits": np.ascontiguousarray(inputs["logits"][:, low:high]),
                "correction_bias": inputs["correction_bias"][low:high].copy(),
            }
            axes = {**case.axes, "experts": high - low}
            yield Case(id=f"{case.id}-experts{low}to{high}", axes=axes, inputs=part)
    if top_k > 1:
        fewer = {**inputs, "top_k": top_k - 1}
        yield Case(
            id=f"{case.id}-k{top_k - 1}", axes={**case.axes, "top_k": top_k - 1}, inputs=fewer
        )


OPERATION = Operation(
    contract=CONTRACT, cases=_cases, outputs=_outputs, check=_check, shrink=_shrink
)
"""``moe_route``."""
