"""Contract of ``verify_target_only``: verification that never asks for the drafter's law."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validate.conformance.ops._laws import enumerated_breach, shares
from validate.conformance.ops._prob_rows import U32, Array, smaller_rows
from validate.conformance.ops._verify_cases import (
    LAW_TARGET,
    Block,
    block_case,
    block_inputs,
    blocks,
    close_to,
    edge_coins,
    lattice,
    middle,
)
from validate.conformance.ops._verify_judge import (
    CLAUSES,
    Problem,
    Step,
    check_steps,
    draw_band,
    judge_step,
    verify_outputs,
)
from validate.conformance.records import Breach, Call, Case, Contract, Effort, Operation, Settings

__all__ = ["OPERATION"]

BY_ROW = ("draft_ids", "target_probs", "uniforms", "uniform_final")
FINALS = 35
"""Without a draft of 1/8 or 3/8 a row of eighths has edges at sevenths or fifths."""
BONUS = np.array([1.0, 2.0, 1.0, 1.0]) / 5.0
THRESHOLDS = ((1.0, 1.0), (1.0, 0.5), (0.3, 1.0))

CONTRACT = Contract(
    op="verify_target_only",
    title="Accept drafts while u <= p / threshold_acc or p >= threshold_single, then draw from p "
    "without the rejected draft",
    signature="verify_target_only(draft_ids int64 [batch, drafts], target_probs "
    "[batch, drafts + 1, vocab], uniforms [batch, drafts], uniform_final [batch], "
    "threshold_single float, threshold_acc float) -> accepted int64 [batch], "
    "ids int64 [batch, drafts + 1]",
    outputs=("accepted", "ids"),
    clauses={
        **CLAUSES,
        "law": "With both thresholds at 1 the emitted ids follow p over all coins, whatever the "
        "drafts are; by enumeration.",
        "empty": "Where nothing is left to draw from, any id in range.",
    },
)


def _cases(effort: Effort, settings: Settings) -> Iterator[Case]:
    del settings
    yield _edges()
    yield _law()
    for number, block in enumerate(blocks(effort)):
        inputs: dict[str, Any] = dict(block_inputs(block))
        del inputs["draft_probs"]
        single, acc = THRESHOLDS[number % len(THRESHOLDS)]
        inputs.update(threshold_single=single, threshold_acc=acc)
        if block.kind == "close":
            _set_close(inputs, acc)
        label = block.kind if single == acc == 1.0 else f"{block.kind}-s{single:g}-a{acc:g}"
        yield block_case(block, inputs, kind=label)


def _set_close(inputs: dict[str, Any], acc: float) -> None:
    """Coins beside p / threshold_acc, and beside an edge of the draw that they lead to."""
    ids, p = inputs["draft_ids"], inputs["target_probs"].astype(np.float64)
    batch, drafts = ids.shape
    rng = np.random.default_rng(ids.size)
    share = np.take_along_axis(p[:, :drafts], ids[:, :, None], 2)[:, :, 0] / acc
    # Every second coin: p of a draft is far from 1, and a run has to get somewhere.
    close = close_to(share, inputs["uniforms"], rng)
    coins = np.where(np.arange(ids.size).reshape(ids.shape) % 2, close, close / 2)
    coins = coins.astype(np.float32)
    run = np.cumprod(coins <= share, axis=1).sum(axis=1)
    every = np.arange(batch)
    weights = np.array(p[every, run])
    short = np.flatnonzero(run < drafts)
    weights[short, ids[short, run[short]]] = 0.0
    inputs["uniforms"] = coins
    inputs["uniform_final"] = edge_coins(weights, inputs["uniform_final"], rng)


def _edges() -> Case:
    """Coins that equal p / threshold_acc exactly, the single threshold, and edges of the rest."""
    p = np.array([[0.25, 0.0, 0.25, 0.5], [0.5, 0.0, 0.25, 0.25]], np.float32)
    rows = [  # drafted id, coin, final coin
        (0, 0.25, 0.5),
        (0, float(np.nextafter(np.float32(0.25), np.float32(1))), 0.0),
        (1, 0.5, 0.25),
        (3, 0.5, 0.75),
        (3, 0.75, 0.5),
    ]
    ids, coins, finals = zip(*rows, strict=True)
    inputs = {
        "draft_ids": np.array(ids, np.int64)[:, None],
        "target_probs": np.repeat(p[None], len(rows), axis=0),
        "uniforms": np.array(coins, np.float32)[:, None],
        "uniform_final": np.array(finals, np.float32),
        "threshold_single": 1.0,
        "threshold_acc": 1.0,
    }
    return block_case(Block(kind="edges", batch=len(rows), drafts=1, vocab=4), inputs)


def _law() -> Case:
    first, second, one, two, last = lattice(2, 8, FINALS)
    batch = len(first)
    p = np.concatenate([LAW_TARGET[:2], BONUS[None]]).astype(np.float32)
    inputs = {
        "draft_ids": np.stack([first, second], axis=1),
        "target_probs": np.broadcast_to(p, (batch, 3, 4)),
        "uniforms": np.stack([middle(one, 8), middle(two, 8)], axis=1),
        "uniform_final": middle(last, FINALS),
        "threshold_single": 1.0,
        "threshold_acc": 1.0,
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
        if not np.isfinite(p[0]).all():
            right = 0 <= accepted <= len(drafts) and 0 <= ids[accepted] < p.shape[1]
            return None if right else ("range", f"a request of NaN gives ids {ids.tolist()}")
        at_drafts = p[np.arange(len(drafts)), drafts]
        forced = _forced(
            inputs["uniforms"][at].astype(np.float64),
            at_drafts,
            float(inputs["threshold_single"]),
            float(inputs["threshold_acc"]),
        )

        def left(row: int) -> Array:
            rest: Array = np.array(p[row])
            if row < len(drafts):
                rest[drafts[row]] = 0.0
            return rest

        step = Step(
            forced=forced,
            left=left,
            coin=float(inputs["uniform_final"][at]),
            band=draw_band(p.shape[1], exact=exact),
        )
        return judge_step(step, drafts, ids, accepted)

    return check_steps(case, call, by_row=BY_ROW, truth=truth)


def _forced(coins: Array, p: Array, single: float, acc: float) -> NDArray[np.int8]:
    """1 where a draft has to be accepted, -1 where not, 0 where float32 rounding may decide."""
    share = p / acc
    exact = share.astype(np.float32).astype(np.float64) == share
    slack = np.where(exact, 0.0, 2 * U32 * share)
    # The threshold is a Python float, p a float32: either precision may compare them.
    singles = (single, float(np.float32(single)))
    taken = (coins <= share - slack) | (p >= np.maximum(*singles))
    refused = (coins > share + slack) & (p < np.minimum(*singles))
    return np.where(taken, 1, np.where(refused, -1, 0)).astype(np.int8)


def _check_law(case: Case, call: Call) -> tuple[Breach, ...]:
    out = call(case.inputs)
    ids, accepted = out["ids"], out["accepted"]
    if ((ids[:, 0] < 0) | (ids[:, 0] >= 4)).any():  # noqa: PLR2004  four ids
        return (Breach(clause="range", what="an emitted id is outside 0 to 3"),)
    found: tuple[Breach, ...] = ()
    drafted = case.inputs["draft_ids"]
    share = 1.0 / (4 * 8 * 8 * FINALS)
    for draft in range(4):  # for each first draft, over all second ones
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
