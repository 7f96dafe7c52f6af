"""A sampler whose law is known, right or wrong on purpose, on a toy vocabulary; no model.

Rows of logits come from a fixed pool, sharp and flat ones, each with the logits of an imperfect
drafter beside it. A context is a row picked at random, so that the past is independent of the
random numbers and only the sampler can be at fault.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.oracle.lossless import Asked, Rule, requested_law

__all__ = [
    "BLOCK",
    "GROUPS",
    "HONEST",
    "WRONG",
    "Made",
    "Pool",
    "Sampler",
    "Tables",
    "draw",
    "pool_of",
    "target_logits",
]

Array = NDArray[Any]
VOCAB, ROWS, BLOCK = 24, 600, 7
SEED = 20260105
SHARPNESS = (0.6, 5.0)
DRAFT_NOISE = 0.9
CENTRE = 20.0
"""Where logits lie; bfloat16 has steps of 1/8 there."""

GROUPS: tuple[Asked, ...] = (
    Asked(temperature=1.0),
    Asked(temperature=0.7, top_k=8),
    Asked(temperature=1.2, top_p=0.9),
)
"""Parameters that prompts take in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """What the path does; the default is right."""

    name: str = "honest"
    title: str = "the right sampler"
    rule: Rule = "chain"
    greedy: bool = False
    """Emits the argmax at any temperature."""
    temperature: Literal["once", "none", "twice"] = "once"
    filters: Literal["all", "no top-k", "no top-p", "none"] = "all"
    draft: Literal["q", "rounded", "unheated"] = "q"
    """``rounded``: drafts from softmax(bfloat16 logits), the ratio with q in full; ``unheated``:
    drafts at temperature 1, the ratio with q at the temperature asked for."""
    residual: Literal["residual", "p"] = "residual"
    redraw: bool = False
    """After a mismatch draws anew in place of emitting the target's own draw."""
    bonus: Literal["own row", "row before"] = "own row"
    numbers: Literal["own", "same each step", "one seed"] = "own"
    peeking_cut: bool = False
    """A draft that its own probability does not favour is not verified."""
    argmax_share: float = 0.0
    """Share of tokens that are the argmax in place of a draw."""


HONEST: tuple[Sampler, ...] = (
    Sampler(),
    Sampler(name="OK-3", title="exact match, own draw emitted", rule="exact_match"),
    Sampler(name="target-only", title="target-only acceptance", rule="target_only"),
)
"""Must pass."""

WRONG: tuple[Sampler, ...] = (
    Sampler(name="SA-01", title="verify commits the argmax", greedy=True),
    Sampler(name="temperature-none", title="temperature not applied", temperature="none"),
    Sampler(name="temperature-twice", title="temperature applied twice", temperature="twice"),
    Sampler(name="top-k-dropped", title="top-k dropped", filters="no top-k"),
    Sampler(name="top-p-dropped", title="top-p dropped", filters="no top-p"),
    Sampler(name="SP-07", title="fresh redraw on mismatch", rule="exact_match", redraw=True),
    Sampler(name="VX-22", title="drafts from bfloat16 logits, ratio in full", draft="rounded"),
    Sampler(name="SP-09", title="drafts at T = 1, ratio at the T asked for", draft="unheated"),
    Sampler(name="residual-p", title="residual replaced by p", residual="p"),
    Sampler(name="bonus-row", title="bonus from the row before", bonus="row before"),
    Sampler(
        name="same-number", title="the same random numbers every step", numbers="same each step"
    ),
    Sampler(name="one-seed", title="one seed for all batchmates", numbers="one seed"),
    Sampler(name="peeking-cut", title="a cut that reads the draft it decides on", peeking_cut=True),
)
"""Must be caught."""


class Tables(NamedTuple):
    """Laws of all rows of one group, (rows, vocab) each."""

    p: Array
    """The requested law."""
    q: Array
    """The law that drafts should come from."""
    path: Array
    """The law that the path draws from."""
    drafted: Array
    """The law that drafts do come from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The rows of every group of parameters."""

    sampler: Sampler
    tables: tuple[Tables, ...]


class Made(NamedTuple):
    """Raw results of one kind for one group: plain tokens, or verify steps."""

    rows: Array
    """Pool row of every token (plain), or of every window row (steps, block + 1)."""
    tokens: Array
    """Plain tokens, or the final token of every step."""
    drafts: Array
    accepts: Array
    limit: Array
    taken: Array
    """Drafts accepted."""


@cache
def _logits() -> tuple[Array, Array]:
    rng = np.random.default_rng(SEED)
    sharp = rng.uniform(*SHARPNESS, size=(ROWS, 1))
    target = sharp * rng.standard_normal((ROWS, VOCAB))
    noise = DRAFT_NOISE * rng.standard_normal((ROWS, VOCAB))
    return target, target + noise


def target_logits() -> Array:
    """Raw logits of every row (rows, vocab)."""
    return _logits()[0]


@cache
def pool_of(sampler: Sampler) -> Pool:
    """Tables of all groups for one sampler."""
    target, draft = _logits()
    made = []
    for asked in GROUPS:
        plain = Asked(temperature=asked.temperature)
        q = _laws(draft, plain)
        drafted = {
            "q": q,
            "rounded": _laws(_rounded(draft), plain),
            "unheated": _laws(draft, Asked(temperature=1.0)),
        }[sampler.draft]
        made.append(
            Tables(
                p=_laws(target, asked), q=q, path=_path_law(target, asked, sampler), drafted=drafted
            )
        )
    return Pool(sampler=sampler, tables=tuple(made))


def _laws(logits: Array, asked: Asked) -> Array:
    return np.array([requested_law(row, asked) for row in logits])


def _rounded(logits: Array) -> Array:
    """To bfloat16's steps at the place where logits lie."""
    return np.asarray(np.round((logits + CENTRE) * 8.0) / 8.0 - CENTRE)


def _path_law(target: Array, asked: Asked, sampler: Sampler) -> Array:
    heat = {"once": asked.temperature, "none": 1.0, "twice": asked.temperature**2}
    drops: Mapping[str, tuple[bool, bool]] = {
        "all": (True, True),
        "no top-k": (False, True),
        "no top-p": (True, False),
        "none": (False, False),
    }
    keep_k, keep_p = drops[sampler.filters]
    done = Asked(
        temperature=heat[sampler.temperature],
        top_k=asked.top_k if keep_k else 0,
        top_p=asked.top_p if keep_p else 1.0,
    )
    law = _laws(target, done)
    if not sampler.greedy and not sampler.argmax_share:
        return law
    top = np.zeros_like(law)
    top[np.arange(len(law)), law.argmax(axis=1)] = 1.0
    share = 1.0 if sampler.greedy else sampler.argmax_share
    return np.asarray((1.0 - share) * law + share * top)


def draw(laws: Array, u: Array) -> Array:
    """First id whose running sum exceeds ``u`` times the whole; laws (..., vocab), u (...)."""
    running = np.cumsum(laws, axis=-1)
    past = running > u[..., None] * running[..., -1:]
    return np.asarray(np.argmax(past, axis=-1))


def plain(pool: Pool, group: int, rng: np.random.Generator, numbers: Array) -> Made:
    """One token from every number, each in a context of its own."""
    rows = rng.integers(ROWS, size=numbers.shape)
    tokens = draw(pool.tables[group].path[rows], numbers)
    none = np.zeros((*numbers.shape, 0))
    return Made(rows, tokens, none, none, numbers * 0, numbers * 0)


def verified(pool: Pool, group: int, rng: np.random.Generator, numbers: Sequence[Array]) -> Made:
    """Draft, judge, emit: one step for each set of numbers.

    Args:
        pool: The laws.
        group: Which parameters.
        rng: Of contexts.
        numbers: Coins of drafts and of decisions (..., block), of final draws (..., block + 1) and
            of redraws (...).
    """
    sampler, tables = pool.sampler, pool.tables[group]
    propose, judge, final, again = numbers
    rows = rng.integers(ROWS, size=final.shape)
    before = rows[..., :BLOCK]
    drafts = draw(tables.drafted[before], propose)
    p = np.take_along_axis(tables.path[before], drafts[..., None], -1)[..., 0]
    q = np.take_along_axis(tables.q[before], drafts[..., None], -1)[..., 0]
    own = draw(tables.path[rows], final)
    accepts = {
        "chain": judge * q < p,
        "target_only": judge <= p,
        "exact_match": drafts == own[..., :BLOCK],
    }[sampler.rule]
    limit = np.full(rows.shape[:-1], BLOCK)
    if sampler.peeking_cut:
        limit = np.cumprod(q >= 0.2, axis=-1).sum(axis=-1)  # noqa: PLR2004  half of all drafts
    count = np.minimum(np.cumprod(accepts, axis=-1).sum(axis=-1), limit)
    end = np.take_along_axis(rows, count[..., None], -1)[..., 0]
    rejected = count < limit
    law = tables.path[end]
    place = np.minimum(count, BLOCK - 1)[..., None]
    tokens = _final(sampler, tables, end, rejected, np.take_along_axis(drafts, place, -1)[..., 0])
    if sampler.bonus == "row before":
        back = np.take_along_axis(rows, np.maximum(count - 1, 0)[..., None], -1)[..., 0]
        tokens = np.where((~rejected & (count > 0))[..., None], tables.path[back], tokens)
    coin = np.take_along_axis(final, count[..., None], -1)[..., 0]
    if sampler.rule == "exact_match":
        ends = np.take_along_axis(own, count[..., None], -1)[..., 0]
        if sampler.redraw:
            ends = np.where(rejected, draw(law, again), ends)
    else:
        ends = draw(tokens, coin)
    return Made(rows, ends, drafts, accepts, limit, count)


def _final(sampler: Sampler, tables: Tables, end: Array, rejected: Array, draft: Array) -> Array:
    """Weights that the token which ends a step is drawn from."""
    law = tables.path[end]
    if sampler.residual == "p" or sampler.greedy:
        return law
    if sampler.rule == "chain":
        left = np.maximum(law - tables.q[end], 0.0)
        left = np.where(left.sum(axis=-1, keepdims=True) > 0, left, law)
    else:
        left = np.where(np.arange(VOCAB) == draft[..., None], 0.0, law)
    return np.where(rejected[..., None], left, law)
