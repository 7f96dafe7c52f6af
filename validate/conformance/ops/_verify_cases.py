"""Sweep points of the verifiers: drafts, drafter and target rows, coins, edges and laws."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validate.conformance.ops._prob_rows import Array, rows_of, tailed
from validate.conformance.records import Axis, Case, Effort
from validate.oracle import draw

__all__ = [
    "LAW_DRAFT",
    "LAW_TARGET",
    "Block",
    "block_case",
    "block_inputs",
    "blocks",
    "close_to",
    "edge_coins",
    "lattice",
    "middle",
]

FULL_VOCAB = 163_840
CROWD = 130
"""More requests than two wavefronts of 64."""
CLOSE = 2.0**-13
"""A quarter of float16's relative step, far beyond any band: a coin held in less shows."""
NEAR_ONE = float(np.nextafter(np.float32(1), np.float32(0)))

LAW_DRAFT = np.array([[4, 2, 1, 1], [1, 4, 2, 1]]) / 8.0
"""q of two drafts over four ids; every p / q and every edge of a residual is a multiple of 1/8."""
LAW_TARGET = np.array([[1, 1, 3, 3], [3, 1, 1, 3], [1, 4, 2, 1]]) / 8.0
"""p of three rows, all different, so that a row read in place of another shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One batch of drafted blocks, before coins."""

    kind: str
    """``near`` (q close to p), ``far`` (unrelated), ``filtered`` (zeros in both), ``onehot``
    (the drafter was sure), ``equal`` (q = p), ``tail`` (near; the last id is the likeliest),
    ``close`` (tail; coins beside p / q and beside edges of the last draw)."""
    batch: int
    drafts: int
    vocab: int
    hazard: str = "none"
    """``nan-request``, ``zero-target``, ``poison`` (NaN in rows that a rejection cuts off)."""


def blocks(effort: Effort) -> tuple[Block, ...]:
    """Batch, depth and vocabulary; every kind and hazard once in quick, crossed in full."""
    quick = (
        Block(kind="near", batch=1, drafts=1, vocab=8),
        Block(kind="far", batch=2, drafts=2, vocab=8),
        Block(kind="near", batch=3, drafts=4, vocab=37),
        Block(kind="filtered", batch=5, drafts=7, vocab=37),
        Block(kind="onehot", batch=3, drafts=3, vocab=500),
        Block(kind="equal", batch=3, drafts=7, vocab=500),
        Block(kind="near", batch=64, drafts=7, vocab=37),
        Block(kind="filtered", batch=64, drafts=3, vocab=500),
        Block(kind="far", batch=2, drafts=2, vocab=2049),
        Block(kind="near", batch=3, drafts=4, vocab=500, hazard="poison"),
        Block(kind="near", batch=3, drafts=2, vocab=500, hazard="nan-request"),
        Block(kind="near", batch=3, drafts=2, vocab=500, hazard="zero-target"),
        Block(kind="tail", batch=3, drafts=2, vocab=500),
        Block(kind="close", batch=CROWD, drafts=5, vocab=37),
        Block(kind="tail", batch=2, drafts=2, vocab=FULL_VOCAB),
    )
    if effort is Effort.QUICK:
        return quick
    crossed = (
        Block(kind=kind, batch=batch, drafts=drafts, vocab=vocab)
        for vocab in (8, 37, 500, 2048, 2049, 32_000)
        for batch in (1, 2, 3, 5, 64)
        for drafts in (1, 2, 3, 4, 7, 15)
        for kind in ("near", "far", "filtered", "onehot", "equal")
        if batch * drafts * vocab < 1e7  # noqa: PLR2004  memory of a float64 copy
    )
    return (*quick, *crossed)


def block_inputs(block: Block) -> dict[str, np.ndarray]:
    """``draft_ids``, ``draft_probs``, ``target_probs``, ``uniforms``, ``uniform_final``."""
    rng = np.random.default_rng([block.batch, block.drafts, block.vocab, len(block.kind)])
    shape = (block.batch, block.drafts, block.vocab)
    p = _rows(block, block.batch * (block.drafts + 1), rng).reshape(block.batch, -1, block.vocab)
    q = _drafter(block, p[:, :-1], rng).astype(np.float32)
    p32 = p.astype(np.float32)
    flat = q.astype(np.float64).reshape(-1, block.vocab)
    ids = draw(flat, rng.random(len(flat))).reshape(shape[:2])
    uniforms = rng.random(shape[:2]).astype(np.float32)
    final = rng.random(block.batch).astype(np.float32)
    # The ends of the unit interval, where a strict comparison and a last id show.
    uniforms.flat[0], final[-1] = 0.0, NEAR_ONE
    uniforms.flat[-1], final[0] = NEAR_ONE, 0.0
    inputs = {
        "draft_ids": ids,
        "draft_probs": q,
        "target_probs": p32,
        "uniforms": np.minimum(uniforms, np.float32(NEAR_ONE)),
        "uniform_final": np.minimum(final, np.float32(NEAR_ONE)),
    }
    if block.kind == "close":
        _set_close(inputs, rng)
    _harm(block, inputs)
    return inputs


def close_to(values: Array, coins: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Coins a relative 2^-13 below or above ``values``; as given where that leaves (0, 1)."""
    beside = values * (1.0 + CLOSE * rng.choice([-1.0, 1.0], size=values.shape))
    inside = (beside > 0) & (beside < 1)
    return np.where(inside, beside, coins).astype(np.float32)


def edge_coins(weights: Array, coins: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A coin beside an edge of the cumulative weights of each row, [rows]; one in three as given."""
    through = np.cumsum(weights, axis=1)
    places = draw(weights, coins.astype(np.float64))
    edges = through[np.arange(len(weights)), places] / np.maximum(through[:, -1], 1e-30)
    kept = np.arange(len(weights)) % 3 == 0
    return np.where(kept, coins, close_to(edges, coins, rng)).astype(np.float32)


def _set_close(inputs: dict[str, np.ndarray], rng: np.random.Generator) -> None:
    """Coins beside p / q of each draft, and beside an edge of the draw that they lead to."""
    ids = inputs["draft_ids"][:, :, None]
    drafts = ids.shape[1]
    p, q = (inputs[name].astype(np.float64) for name in ("target_probs", "draft_probs"))
    p_at, q_at = (np.take_along_axis(rows[:, :drafts], ids, 2)[:, :, 0] for rows in (p, q))
    coins = close_to(p_at / q_at, inputs["uniforms"], rng)
    run = np.cumprod(coins * q_at < p_at, axis=1).sum(axis=1)
    batch = np.arange(len(run))
    left = np.maximum(p[batch, run] - q[batch, np.minimum(run, drafts - 1)], 0.0)
    weights = np.where((run == drafts)[:, None], p[batch, run], left)
    inputs["uniforms"] = coins
    inputs["uniform_final"] = edge_coins(weights, inputs["uniform_final"], rng)


def block_case(block: Block, inputs: dict[str, Any], *, kind: str = "") -> Case:
    """The sweep point of a block."""
    hazard = "" if block.hazard == "none" else f"-{block.hazard}"
    name = f"B{block.batch}-G{block.drafts}-V{block.vocab}-{kind or block.kind}{hazard}"
    axes: dict[str, Axis] = {
        "batch": block.batch,
        "drafts": block.drafts,
        "vocab": block.vocab,
        "kind": kind or block.kind,
        "hazard": block.hazard,
    }
    return Case(id=name, axes=axes, inputs=inputs)


def lattice(drafts: int, coins: int, finals: int) -> Iterator[NDArray[np.int64]]:
    """All combinations of two drafted ids of four, ``coins`` places a draft, ``finals`` at the end.

    Yields the columns: ids of each draft, place of each coin, place of the final coin.
    """
    grids = np.meshgrid(
        *[np.arange(4)] * drafts, *[np.arange(coins)] * drafts, np.arange(finals), indexing="ij"
    )
    yield from (grid.reshape(-1) for grid in grids)


def middle(place: NDArray[np.int64], of: int) -> NDArray[np.float32]:
    """Middle of a lattice place: no edge that is a multiple of ``1 / of`` falls on it."""
    return ((place + 0.5) / of).astype(np.float32)


def _rows(block: Block, count: int, rng: np.random.Generator) -> Array:
    rows = rows_of("peaked", count, block.vocab, rng)
    if block.kind in ("tail", "close"):
        return tailed(rows)
    if block.kind != "filtered":
        return rows
    floor = -np.sort(-rows, axis=1)[:, 5:6]  # top-k 6
    kept = np.where(rows >= floor, rows, 0.0)
    return np.asarray(kept / kept.sum(axis=1, keepdims=True), np.float64)


def _drafter(block: Block, p: Array, rng: np.random.Generator) -> Array:
    if block.kind == "equal":
        return p.copy()
    if block.kind == "onehot":
        q = np.zeros_like(p)
        np.put_along_axis(q, np.argmax(p, axis=2)[:, :, None], 1.0, axis=2)
        return q
    if block.kind == "far":
        return _rows(block, p.shape[0] * p.shape[1], rng).reshape(p.shape)
    with np.errstate(divide="ignore"):
        logits = np.log(p) + 0.7 * rng.normal(size=p.shape)
    q = np.exp(logits - logits.max(axis=2, keepdims=True))
    if block.kind == "filtered":
        # The drafter's own top-k: it gives ids weight 0 that the target keeps.
        q = np.where(q >= -np.sort(-q, axis=2)[:, :, 3:4], q, 0.0)
    return np.asarray(q / q.sum(axis=2, keepdims=True), np.float64)


def _harm(block: Block, inputs: dict[str, np.ndarray]) -> None:
    p, middle_row = inputs["target_probs"], 1 % block.batch
    if block.hazard == "nan-request":
        p[middle_row] = np.nan
    elif block.hazard == "zero-target":
        p[middle_row] = 0.0
    elif block.hazard == "poison":
        # Draft 1 cannot be accepted: what lies after its row is never needed.
        batch = np.arange(block.batch)
        p[batch, 1, inputs["draft_ids"][:, 1]] = 0.0
        p[:, 2:] = np.nan
        inputs["draft_probs"][:, 2:] = np.nan
