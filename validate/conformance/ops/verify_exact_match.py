"""Contract of ``verify_exact_match``: drafts count while they equal the target's own draws."""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from validate.conformance.ops._laws import enumerated_breach, misdraw, shares
from validate.conformance.ops._prob_rows import smaller_rows
from validate.conformance.ops._verify_cases import (
    LAW_TARGET,
    Block,
    block_case,
    block_inputs,
    blocks,
    edge_coins,
    lattice,
    middle,
)
from validate.conformance.ops._verify_judge import (
    CLAUSES,
    Problem,
    check_steps,
    draw_band,
    form_of,
    verify_outputs,
)
from validate.conformance.records import Breach, Call, Case, Contract, Effort, Operation, Settings

__all__ = ["OPERATION"]

BY_ROW = ("draft_ids", "target_probs", "uniforms")

CONTRACT = Contract(
    op="verify_exact_match",
    title="The target draws in every row; drafts count while equal, and the draw that differs is emitted",
    signature="verify_exact_match(draft_ids int64 [batch, drafts], target_probs "
    "[batch, drafts + 1, vocab], uniforms [batch, drafts + 1]) -> accepted int64 [batch], "
    "ids int64 [batch, drafts + 1]",
    outputs=("accepted", "ids"),
    clauses={
        **CLAUSES,
        "accepted": "A draft is accepted exactly when it equals the target's own draw of its row.",
        "draw": "Every emitted id is the draw of its row by that row's coin: the first whose "
        "cumulative weight exceeds the coin times the sum, within the error of a float32 sum.",
        "law": "The emitted ids follow p over all coins, whatever the drafts are; by enumeration.",
    },
)


def _cases(effort: Effort, settings: Settings) -> Iterator[Case]:
    del settings
    yield _edges()
    yield _law()
    for block in blocks(effort):
        inputs = dict(block_inputs(block))
        final = inputs.pop("uniform_final")
        del inputs["draft_probs"]
        inputs["uniforms"] = np.concatenate([inputs["uniforms"], final[:, None]], axis=1)
        if block.kind == "close":
            inputs["uniforms"] = _beside_edges(inputs)
        yield block_case(block, inputs)


def _beside_edges(inputs: dict[str, np.ndarray]) -> np.ndarray:
    """A coin beside an edge in every row."""
    coins, p = inputs["uniforms"], inputs["target_probs"].astype(np.float64)
    rng = np.random.default_rng(coins.size)
    return edge_coins(p.reshape(coins.size, -1), coins.reshape(-1), rng).reshape(coins.shape)


def _edges() -> Case:
    """Coins on the edges of rows whose sums are exact."""
    p = np.array([[0.25, 0.0, 0.25, 0.5], [0.5, 0.0, 0.25, 0.25]], np.float32)
    rows = [(0, 0.0, 0.5), (2, 0.25, 0.75), (3, 0.5, 0.0), (0, 0.25, 0.9)]
    inputs = {
        "draft_ids": np.array([row[0] for row in rows], np.int64)[:, None],
        "target_probs": np.repeat(p[None], len(rows), axis=0),
        "uniforms": np.array([row[1:] for row in rows], np.float32),
    }
    return block_case(Block(kind="edges", batch=len(rows), drafts=1, vocab=4), inputs)


def _law() -> Case:
    first, second, one, two, last = lattice(2, 8, 8)
    batch = len(first)
    inputs = {
        "draft_ids": np.stack([first, second], axis=1),
        "target_probs": np.broadcast_to(LAW_TARGET.astype(np.float32), (batch, 3, 4)),
        "uniforms": np.stack([middle(place, 8) for place in (one, two, last)], axis=1),
    }
    return block_case(Block(kind="law", batch=batch, drafts=2, vocab=4), inputs)


def _check(case: Case, call: Call, settings: Settings) -> tuple[Breach, ...]:
    del settings
    if case.axes["kind"] == "law":
        return _check_law(case, call)
    exact = case.axes["kind"] == "edges"

    def truth(
        inputs: Mapping[str, np.ndarray], at: int, ids: NDArray[np.int64], accepted: int
    ) -> Problem | None:
        drafts = inputs["draft_ids"][at]
        p = inputs["target_probs"][at].astype(np.float64)
        if not 0 <= accepted <= len(drafts):
            return "accepted", f"{accepted} of {len(drafts)} drafts accepted"
        problem = form_of(drafts, ids, accepted)
        if problem:
            return problem
        if accepted < len(drafts) and ids[accepted] == drafts[accepted]:
            return (
                "accepted",
                f"draft {accepted} (id {drafts[accepted]}) is the target's draw and not accepted",
            )
        band = draw_band(p.shape[1], exact=exact)
        for row in range(accepted + 1):
            coin = float(inputs["uniforms"][at, row])
            wrong = misdraw(int(ids[row]), p[row], coin, band=band, words=(f"row {row}",))
            if wrong:
                return wrong
        return None

    return check_steps(case, call, by_row=BY_ROW, truth=truth)


def _check_law(case: Case, call: Call) -> tuple[Breach, ...]:
    out = call(case.inputs)
    ids, accepted = out["ids"], out["accepted"]
    if ((ids[:, 0] < 0) | (ids[:, 0] >= 4)).any():  # noqa: PLR2004  four ids
        return (Breach(clause="range", what="an emitted id is outside 0 to 3"),)
    found: tuple[Breach, ...] = ()
    drafted = case.inputs["draft_ids"]
    share = 1.0 / (4 * 8**3)
    for draft in range(4):
        on = drafted[:, 0] == draft
        law = shares(ids[on, 0], share)
        found += enumerated_breach(law, LAW_TARGET[0], what=f"first id after draft {draft}")
        taken = on & (accepted >= 1) & (ids[:, 1] >= 0)
        law = shares(ids[taken, 1], share)
        what = f"second id after draft {draft} was accepted"
        found += enumerated_breach(law, LAW_TARGET[0, draft] * LAW_TARGET[1], what=what)
    return found


def _shrink(case: Case) -> Iterator[Case]:
    if case.axes["kind"] == "law":
        return iter(())
    return smaller_rows(case, rows=dict.fromkeys(BY_ROW, 0))


OPERATION = Operation(
    contract=CONTRACT,
    cases=_cases,
    outputs=verify_outputs,
    check=_check,
    shrink=_shrink,
)
