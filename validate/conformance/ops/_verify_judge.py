"""Judging one verify step: which drafts were accepted, what was emitted, in every order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from validate.conformance.ops._laws import misdraw
from validate.conformance.ops._prob_rows import U32, Array, accumulated, orders
from validate.conformance.records import Breach, Call, Case, OutputSpec, Settings

__all__ = [
    "CLAUSES",
    "Problem",
    "Step",
    "check_steps",
    "draw_band",
    "form_of",
    "judge_step",
    "verify_outputs",
]

CLAUSES: Mapping[str, str] = {
    "accepted": "A draft is accepted exactly when the rule says so; a comparison is free only "
    "where its two sides agree within 2 u and the product is not exact in float32.",
    "emitted": "Emitted are the accepted drafts in order, then one id more, then -1.",
    "draw": "The id after the accepted drafts is the first whose cumulative weight exceeds the "
    "coin times the sum, within the error of a float32 sum (none where sums are exact).",
    "support": "An id of weight 0 is never emitted by a draw.",
    "range": "Every emitted id is within the vocabulary, whatever came in.",
    "row-order": "Each request is judged in several orders of the batch and alone: its batchmates "
    "change nothing.",
    "repeats": "The same call gives the same ids.",
}
"""Clauses shared by the verifiers."""

Problem = tuple[str, str]
"""Clause and words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one request may do."""

    forced: NDArray[np.int8]
    """Each draft: 1 has to be accepted, -1 must not be, 0 is free; [drafts]."""
    left: Callable[[int], Array]
    """Weights of the last draw by accepted count."""
    coin: float
    """Coin of the last draw."""
    band: float
    """Error of a cumulative sum relative to the whole."""


Truth = Callable[[Mapping[str, np.ndarray], int, NDArray[np.int64], int], Problem | None]
"""From one request's inputs, its number, its emitted ids and its accepted count to a problem."""


def verify_outputs(inputs: Mapping[str, object], settings: Settings) -> Mapping[str, OutputSpec]:
    """Accepted count [batch] and emitted ids [batch, drafts + 1], both int64."""
    del settings
    batch, drafts = np.asarray(inputs["draft_ids"]).shape
    return {
        "accepted": OutputSpec(shape=(batch,), dtype="int64"),
        "ids": OutputSpec(shape=(batch, drafts + 1), dtype="int64"),
    }


def draw_band(vocab: int, *, exact: bool) -> float:
    """Error of a cumulative sum of float32 differences, relative to the sum."""
    return 0.0 if exact else accumulated(vocab) + 8 * U32


def judge_step(
    step: Step, drafts: NDArray[np.int64], ids: NDArray[np.int64], accepted: int
) -> Problem | None:
    """The first clause that one request breaks."""
    if not 0 <= accepted <= len(drafts):
        return "accepted", f"{accepted} of {len(drafts)} drafts accepted"
    for i in range(accepted):
        if step.forced[i] < 0:
            return (
                "accepted",
                f"draft {i} (id {drafts[i]}) has to be rejected, {accepted} are accepted",
            )
    if accepted < len(drafts) and step.forced[accepted] > 0:
        return "accepted", (
            f"draft {accepted} (id {drafts[accepted]}) has to be accepted, the run stops there"
        )
    problem = form_of(drafts, ids, accepted)
    if problem:
        return problem
    words = ("bonus" if accepted == len(drafts) else f"replacement of draft {accepted}",)
    weights = step.left(accepted)
    return misdraw(int(ids[accepted]), weights, step.coin, band=step.band, words=words)


def form_of(drafts: NDArray[np.int64], ids: NDArray[np.int64], accepted: int) -> Problem | None:
    """Accepted drafts first, -1 after the last."""
    if (ids[:accepted] != drafts[:accepted]).any():
        return (
            "emitted",
            f"accepted drafts are {drafts[:accepted].tolist()}, emitted {ids.tolist()}",
        )
    if (ids[accepted + 1 :] != -1).any():
        return "emitted", f"after {accepted} accepted and one id more, -1 is due: {ids.tolist()}"
    return None


def check_steps(
    case: Case, call: Call, *, by_row: tuple[str, ...], truth: Truth
) -> tuple[Breach, ...]:
    """Judge every request in the order given, in others, and alone; then call again.

    Args:
        case: Sweep point; ``by_row`` inputs have the batch as axis 0.
        call: Implementation behind guards.
        by_row: Inputs that move with a request.
        truth: Judges one request.
    """
    batch = len(case.inputs["draft_ids"])
    many = batch > 8  # noqa: PLR2004  a crowd is judged once, in one more order
    runs = list(orders(batch, every=not many))
    if batch > 1 and not many:
        runs += [(row,) for row in range(batch)]
    for order in runs:
        taken = {
            name: np.ascontiguousarray(value[list(order)]) if name in by_row else value
            for name, value in case.inputs.items()
        }
        out = call(taken)
        found = _judged(taken, out, order, truth)
        if found:
            return found
    return _repeated(case, call)


def _judged(
    inputs: Mapping[str, np.ndarray],
    out: Mapping[str, np.ndarray],
    order: tuple[int, ...],
    truth: Truth,
) -> tuple[Breach, ...]:
    place = "" if order == tuple(sorted(order)) and len(order) > 1 else f" (order {order})"
    place = " (alone)" if len(order) == 1 and order != (0,) else place
    rows: dict[str, list[int]] = {}
    words: dict[str, str] = {}
    for at, row in enumerate(order):
        problem = truth(inputs, at, out["ids"][at].astype(np.int64), int(out["accepted"][at]))
        if problem:
            rows.setdefault(problem[0], []).append(row)
            words.setdefault(problem[0], f"request {row}: {problem[1]}{place}")
    return tuple(
        Breach(clause=clause, what=words[clause], at={"row": many[0]}, wrong={"row": tuple(many)})
        for clause, many in rows.items()
    )


def _repeated(case: Case, call: Call) -> tuple[Breach, ...]:
    first, again = call(case.inputs)["ids"], call(case.inputs)["ids"]
    differ = np.any(first != again, axis=1)
    if not differ.any():
        return ()
    row = int(np.argmax(differ))
    what = (
        f"request {row}: {first[row].tolist()} by one call, {again[row].tolist()} by an equal one"
    )
    wrong = {"row": tuple(int(i) for i in np.flatnonzero(differ))}
    return (Breach(clause="repeats", what=what, at={"row": row}, wrong=wrong),)
