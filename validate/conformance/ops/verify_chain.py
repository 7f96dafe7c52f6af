"""Contract of ``verify_chain``: rejection sampling along a chain of drafts."""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from validate.conformance.ops._laws import enumerated_breach, law_breach, shares
from validate.conformance.ops._prob_rows import U32, Array, smaller_rows, widened
from validate.conformance.ops._verify_cases import (
    LAW_DRAFT,
    LAW_TARGET,
    Block,
    block_case,
    block_inputs,
    blocks,
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
from validate.oracle import draw, residual

__all__ = ["OPERATION"]

BY_ROW = ("draft_ids", "draft_probs", "target_probs", "uniforms", "uniform_final")
CROWD = 8192
"""Requests of a law by draws: chi-square at 1e-6 sees a TVD of 0.03 on eight ids, power 0.99."""

CONTRACT = Contract(
    op="verify_chain",
    title="Accept drafts while u q < p, then draw from (p - q)+, or from the bonus row",
    signature="verify_chain(draft_ids int64 [batch, drafts], draft_probs [batch, drafts, vocab], "
    "target_probs [batch, drafts + 1, vocab], uniforms [batch, drafts], uniform_final [batch]) "
    "-> accepted int64 [batch], ids int64 [batch, drafts + 1]; random=call_seed: one int `seed` "
    "in place of the coins",
    outputs=("accepted", "ids"),
    clauses={
        **CLAUSES,
        "law": "Over drafts from q and all coins the emitted ids follow p: exactly, by enumeration "
        "(random=uniforms), or by chi-square at level 1e-6 over 8,192 requests (call_seed).",
        "empty": "Where nothing is left to draw from (a target row of zeros), any id in range.",
    },
    settings={"random": ("uniforms", "call_seed")},
)


def _cases(effort: Effort, settings: Settings) -> Iterator[Case]:
    if settings["random"] == "call_seed":
        yield from (_crowd(seed) for seed in range(2 if effort is Effort.QUICK else 20))
        return
    yield _edges()
    yield _law()
    for block in blocks(effort):
        yield block_case(block, dict(block_inputs(block)))


def _edges() -> Case:
    """Coins that hit u q = p exactly, at q = 0, at p = 0, and on an edge of the residual."""
    q = np.array([[0.5, 0.25, 0.25, 0.0]], np.float32)
    p = np.array([[0.25, 0.0, 0.25, 0.5], [0.5, 0.0, 0.25, 0.25]], np.float32)
    rows = [  # drafted id, coin, final coin
        (0, 0.5, 0.5),
        (0, float(np.nextafter(np.float32(0.5), np.float32(0))), 0.5),
        (1, 0.0, 0.0),
        (2, float(np.nextafter(np.float32(1), np.float32(0))), 0.75),
        (3, 0.75, 0.0),
        (0, 0.75, 0.25),
    ]
    ids, coins, finals = zip(*rows, strict=True)
    inputs = {
        "draft_ids": np.array(ids, np.int64)[:, None],
        "draft_probs": np.repeat(q[None], len(rows), axis=0),
        "target_probs": np.repeat(p[None], len(rows), axis=0),
        "uniforms": np.array(coins, np.float32)[:, None],
        "uniform_final": np.array(finals, np.float32),
    }
    return block_case(Block(kind="edges", batch=len(rows), drafts=1, vocab=4), inputs)


def _law() -> Case:
    first, second, one, two, last = lattice(2, 8, 8)
    batch = len(first)
    inputs = {
        "draft_ids": np.stack([first, second], axis=1),
        "draft_probs": np.broadcast_to(LAW_DRAFT.astype(np.float32), (batch, 2, 4)),
        "target_probs": np.broadcast_to(LAW_TARGET.astype(np.float32), (batch, 3, 4)),
        "uniforms": np.stack([middle(one, 8), middle(two, 8)], axis=1),
        "uniform_final": middle(last, 8),
    }
    return block_case(Block(kind="law", batch=batch, drafts=2, vocab=4), inputs)


def _crowd(seed: int) -> Case:
    """Many requests with one law: drafts really drawn from q."""
    block = Block(kind="near", batch=1, drafts=2, vocab=8)
    one = block_inputs(block)
    q, p = (np.repeat(one[name], CROWD, axis=0) for name in ("draft_probs", "target_probs"))
    rng = np.random.default_rng([seed, CROWD])
    ids = [draw(widened(q[:, i]), rng.random(CROWD)) for i in range(block.drafts)]
    inputs = {
        "draft_ids": np.stack(ids, axis=1),
        "draft_probs": q,
        "target_probs": p,
        "seed": 1000 + seed,
    }
    crowd = Block(kind=f"crowd{seed}", batch=CROWD, drafts=block.drafts, vocab=block.vocab)
    return block_case(crowd, inputs)


def _check(case: Case, call: Call, settings: Settings) -> tuple[Breach, ...]:
    if settings["random"] == "call_seed":
        return _check_crowd(case, call)
    if case.axes["kind"] == "law":
        return _check_law(case, call)
    exact = case.axes["kind"] == "edges"

    def truth(
        inputs: Mapping[str, np.ndarray], at: int, ids: NDArray[np.int64], accepted: int
    ) -> Problem | None:
        drafts = inputs["draft_ids"][at]
        p, q = inputs["target_probs"][at].astype(np.float64), inputs["draft_probs"][at]
        if not np.isfinite(p[0]).all():  # a damaged request: only the range of its ids counts
            vocab = p.shape[1]
            right = 0 <= accepted <= len(drafts) and 0 <= ids[accepted] < vocab
            return None if right else ("range", f"a request of NaN gives ids {ids.tolist()}")
        q = q.astype(np.float64)
        places = np.arange(len(drafts))
        with np.errstate(invalid="ignore"):
            forced = forced_by(
                inputs["uniforms"][at].astype(np.float64) * q[places, drafts],
                p[places, drafts],
            )
        step = Step(
            forced=forced,
            left=lambda row: residual(p[row], q[row]) if row < len(drafts) else p[row],
            coin=float(inputs["uniform_final"][at]),
            band=draw_band(p.shape[1], exact=exact),
        )
        return judge_step(step, drafts, ids, accepted)

    return check_steps(case, call, by_row=BY_ROW, truth=truth)


def forced_by(left: Array, right: Array) -> NDArray[np.int8]:
    """``left < right`` as 1 or -1, and 0 where float32 rounding may decide it.

    Sides that are equal in float64, the product being exact there and in float32, are not
    free: a strict comparison is False.
    """
    exact = left.astype(np.float32).astype(np.float64) == left
    close = np.abs(left - right) <= 2 * U32 * np.maximum(np.abs(left), np.abs(right))
    free = close & ~(exact & (left == right)) & (left != 0)
    return np.where(free, 0, np.where(left < right, 1, -1)).astype(np.int8)


def _check_law(case: Case, call: Call) -> tuple[Breach, ...]:
    out = call(case.inputs)
    ids, accepted = out["ids"], out["accepted"]
    drafted = case.inputs["draft_ids"]
    weight = LAW_DRAFT[0][drafted[:, 0]] * LAW_DRAFT[1][drafted[:, 1]] / 8.0**3
    if ((ids[:, 0] < 0) | (ids[:, 0] >= 4)).any():  # noqa: PLR2004  four ids
        return (Breach(clause="range", what="an emitted id is outside 0 to 3"),)
    first = shares(ids[:, 0], weight)
    found = enumerated_breach(first, LAW_TARGET[0], what="first emitted id")
    both = np.minimum(LAW_DRAFT, LAW_TARGET[:2])
    on = (accepted >= 1) & (ids[:, 1] >= 0)
    second = np.zeros((4, 4))
    np.add.at(second, (ids[on, 0], ids[on, 1]), weight[on])
    found += enumerated_breach(
        second, both[0][:, None] * LAW_TARGET[1], what="second id after an accepted first"
    )
    on = (accepted == 2) & (ids[:, 2] >= 0)  # noqa: PLR2004  both drafts
    third = shares(ids[on, 2], weight[on])
    return found + enumerated_breach(
        third, both[0].sum() * both[1].sum() * LAW_TARGET[2], what="bonus id"
    )


def _check_crowd(case: Case, call: Call) -> tuple[Breach, ...]:
    out = call(case.inputs)
    ids, accepted = out["ids"].astype(np.int64), out["accepted"]
    q, p = widened(case.inputs["draft_probs"][0]), widened(case.inputs["target_probs"][0])
    drafted = case.inputs["draft_ids"]
    both = np.minimum(p[:2], q).sum(axis=1)
    counts = np.array([1 - both[0], both[0] * (1 - both[1]), both[0] * both[1]])
    found = law_breach(accepted, counts, what="accepted count", clause="accepted")
    wrong = (accepted >= 1) & (ids[:, 0] != drafted[:, 0])
    if wrong.any():
        row = int(np.argmax(wrong))
        what = f"request {row}: draft {drafted[row, 0]} accepted, {ids[row].tolist()} emitted"
        found += (Breach(clause="emitted", what=what, at={"row": row}),)
    found += law_breach(ids[:, 0], p[0] / p[0].sum(), what="first emitted id")
    for row in range(2):
        on = accepted == row
        left = residual(p[row], q[row])
        what = f"replacement of draft {row}"
        found += law_breach(ids[on, row], left / left.sum(), what=what)
    on = accepted == 2  # noqa: PLR2004  both drafts
    found += law_breach(ids[on, 2], p[2] / p[2].sum(), what="bonus id")
    again = call(case.inputs)["ids"]
    if (again != ids).any():
        found += (Breach(clause="repeats", what="equal seeds give unequal ids"),)
    return found


def _shrink(case: Case) -> Iterator[Case]:
    if case.axes["kind"] == "law" or "seed" in case.inputs:
        return iter(())
    return smaller_rows(case, rows=dict.fromkeys(BY_ROW, 0))


OPERATION = Operation(
    contract=CONTRACT,
    cases=_cases,
    outputs=verify_outputs,
    check=_check,
    shrink=_shrink,
)
