"""Contract of ``verify_greedy``: drafts count while they are the argmax of their row."""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from validate.conformance.ops._prob_rows import as_dtype, smaller_rows
from validate.conformance.ops._verify_cases import CROWD, FULL_VOCAB, Block, block_case
from validate.conformance.ops._verify_judge import (
    CLAUSES,
    Problem,
    check_steps,
    form_of,
    verify_outputs,
)
from validate.conformance.records import Breach, Call, Case, Contract, Effort, Operation, Settings

__all__ = ["OPERATION"]

BY_ROW = ("draft_ids", "target_logits", "draft_len")
PADDING = 24
"""Columns beyond the vocabulary, as sharding leaves them."""
HAZARDS = ("none", "zero padding", "huge padding", "nan padding", "ties", "nan-request")

CONTRACT = Contract(
    op="verify_greedy",
    title="Accept drafts while they are the argmax of their row, then emit the next row's argmax",
    signature="verify_greedy(draft_ids int64 [batch, drafts], target_logits "
    "[batch, drafts + 1, padded], vocab int, draft_len int64 [batch]) -> accepted int64 [batch], "
    "ids int64 [batch, drafts + 1]",
    outputs=("accepted", "ids"),
    clauses={
        **{clause: CLAUSES[clause] for clause in ("emitted", "range", "row-order", "repeats")},
        "accepted": "The leading run of drafts that equal their row's argmax, no longer than "
        "draft_len.",
        "argmax": "Emitted is an argmax over the first vocab columns; the rest is padding and may "
        "hold anything. Logits are compared as they came in.",
        "ties": "ties=lowest: the lowest index of equal maxima. ties=any: whichever.",
    },
    settings={"ties": ("lowest", "any")},
)


def _cases(effort: Effort, settings: Settings) -> Iterator[Case]:
    del settings
    shapes = [(1, 1, 8), (2, 2, 37), (3, 4, 500), (5, 7, 500), (3, 3, 2049)]
    if effort is Effort.FULL:
        shapes += [
            (batch, drafts, vocab)
            for batch in (1, 2, 3, 5, 8, 9)
            for drafts in (1, 2, 3, 4, 7, 15)
            for vocab in (37, 500, 32_000)
        ]
    for number, (batch, drafts, vocab) in enumerate(dict.fromkeys(shapes)):
        for hazard in HAZARDS:
            block = Block(kind="logits", batch=batch, drafts=drafts, vocab=vocab, hazard=hazard)
            dtype = "bfloat16" if number % 2 else "float32"
            yield block_case(block, _inputs(block, dtype), kind=dtype)
    block = Block(kind="logits", batch=CROWD, drafts=5, vocab=37)
    yield block_case(block, _inputs(block, "float32"), kind="float32")
    block = Block(kind="logits", batch=2, drafts=1, vocab=FULL_VOCAB)
    yield block_case(block, _inputs(block, "bfloat16"), kind="bfloat16")


def _inputs(block: Block, dtype: str) -> dict[str, object]:
    """Drafts are right up to a place of their own in each request; all logits are negative."""
    rng = np.random.default_rng([block.batch, block.drafts, block.vocab])
    shape = (block.batch, block.drafts + 1, block.vocab + PADDING)
    logits = rng.normal(size=shape) - 9.0
    if block.hazard == "ties":
        logits = np.round(logits)
    padding = {"huge padding": 1e30, "nan padding": np.nan, "zero padding": 0.0}
    logits[:, :, block.vocab :] = padding.get(block.hazard, -1e30)
    held = as_dtype(logits, dtype)
    drafts = np.argmax(held[:, :-1, : block.vocab].astype(np.float64), axis=2)
    wrong = np.arange(block.batch) % (block.drafts + 1)
    length = (np.arange(block.batch) * 3 + block.drafts) % (block.drafts + 1)
    if block.batch == CROWD:  # in no period, most of them long
        wrong, length = (rng.integers(0, block.drafts + 1, size=CROWD) for _ in range(2))
    if block.batch == CROWD or block.vocab == FULL_VOCAB:
        held[::2, :, block.vocab - 1] = -1.0  # the last id is the argmax
        drafts = np.argmax(held[:, :-1, : block.vocab].astype(np.float64), axis=2)
    for request, place in enumerate(wrong):
        if place < block.drafts:
            drafts[request, place] = (drafts[request, place] + 1) % block.vocab
    if block.hazard == "nan-request":
        held[1 % block.batch, :, : block.vocab] = np.nan
    return {
        "draft_ids": drafts.astype(np.int64),
        "target_logits": held,
        "vocab": block.vocab,
        "draft_len": length.astype(np.int64),
    }


def _check(case: Case, call: Call, settings: Settings) -> tuple[Breach, ...]:
    vocab = int(case.inputs["vocab"])

    def truth(
        inputs: Mapping[str, np.ndarray], at: int, ids: NDArray[np.int64], accepted: int
    ) -> Problem | None:
        drafts, length = inputs["draft_ids"][at], int(inputs["draft_len"][at])
        logits = inputs["target_logits"][at][:, :vocab].astype(np.float64)
        if not 0 <= accepted <= length:
            return "accepted", f"{accepted} accepted, {length} drafts count"
        if not 0 <= ids[accepted] < vocab:
            return "range", f"id {ids[accepted]} is emitted, there are {vocab} ids"
        if np.isnan(logits).any():
            return None
        return form_of(drafts, ids, accepted) or _argmaxes(
            logits, drafts, ids, accepted, length, lowest=settings["ties"] == "lowest"
        )

    return check_steps(case, call, by_row=BY_ROW, truth=truth)


def _argmaxes(
    logits: NDArray[np.float64],
    drafts: NDArray[np.int64],
    ids: NDArray[np.int64],
    accepted: int,
    length: int,
    *,
    lowest: bool,
) -> Problem | None:
    """Every emitted id is an argmax of its row, and a run does not stop at one."""
    for row in range(accepted + 1):
        best = np.flatnonzero(logits[row] == logits[row].max())
        emitted = int(ids[row])
        if emitted not in best:
            return "argmax", (
                f"row {row} gives id {emitted} ({logits[row, emitted]:.6g}); the argmax is id "
                f"{best[0]} ({logits[row, best[0]]:.6g})"
            )
        if lowest and emitted != best[0]:
            return "ties", f"row {row} gives id {emitted} of {best.tolist()[:8]}, which are equal"
    stopped = accepted < length and int(ids[accepted]) == int(drafts[accepted])
    if stopped:
        return "accepted", f"draft {accepted} is the argmax of its row and not accepted"
    return None


def _shrink(case: Case) -> Iterator[Case]:
    return smaller_rows(case, rows=dict.fromkeys(BY_ROW, 0))


OPERATION = Operation(
    contract=CONTRACT,
    cases=_cases,
    outputs=verify_outputs,
    check=_check,
    shrink=_shrink,
)
