"""The laws of ``validate.oracle.lossless`` for many rows at once; the numbers are the same.

A capture of 100,000 tokens asks for about as many laws; row by row that takes
minutes. Tests hold every function here against its one-row form.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from validate.errors import InputError
from validate.oracle.lossless import Asked, Outcome, Rule
from validate.oracle.records import Array
from validate.oracle.renorm import Ties

__all__ = [
    "OUTCOMES",
    "AskedRows",
    "Moments",
    "edge_distances",
    "falls",
    "outcome_laws",
    "requested_laws",
    "surprisal_moments_of",
]

OUTCOMES: tuple[Outcome, ...] = ("plain", "accepted", "resampled", "bonus")
"""Codes 0 to 3 of an emitted token's outcome."""

Mask = NDArray[np.bool_]
Ids = NDArray[np.integer]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRows:
    """``Asked`` of every row, (rows,) each."""

    temperature: Array
    top_k: NDArray[np.int64]
    top_p: Array
    min_p: Array
    ties: Ties

    @classmethod
    def of(cls, asked: list[Asked], *, ties: Ties) -> "AskedRows":
        """Rows in order; all declare the same rule of ties."""
        return cls(
            temperature=np.array([a.temperature for a in asked], np.float64),
            top_k=np.array([a.top_k for a in asked], np.int64),
            top_p=np.array([a.top_p for a in asked], np.float64),
            min_p=np.array([a.min_p for a in asked], np.float64),
            ties=ties,
        )

    def take(self, rows: Ids) -> "AskedRows":
        """The parameters of ``rows``, in that order; any of them may come more than once."""
        return AskedRows(
            temperature=self.temperature[rows],
            top_k=self.top_k[rows],
            top_p=self.top_p[rows],
            min_p=self.min_p[rows],
            ties=self.ties,
        )

    def unfiltered(self) -> "AskedRows":
        """The same temperatures, no filter: what drafts are drawn from."""
        return AskedRows(
            temperature=self.temperature,
            top_k=np.zeros_like(self.top_k),
            top_p=np.ones_like(self.top_p),
            min_p=np.zeros_like(self.min_p),
            ties=self.ties,
        )


def requested_laws(
    logits: Float64[Array, "rows vocab"], asked: AskedRows
) -> Float64[Array, "rows vocab"]:
    """``requested_law`` of every row.

    Raises:
        InputError: A row has NaN, +inf or nothing finite.
    """
    top = logits.max(axis=1, keepdims=True) if len(logits) else logits[:, :1]
    bad = np.flatnonzero(~np.isfinite(top[:, 0]) | np.isnan(logits).any(axis=1))
    if bad.size:
        msg = (
            f"{bad.size} of {len(logits)} rows of logits hold NaN or have no finite maximum, "
            f"row {int(bad[0])} first: no law can be made of them"
        )
        raise InputError(msg)
    warm = asked.temperature > 0
    scale = np.where(warm, asked.temperature, 1.0)[:, None]
    scaled = logits / scale
    law: Array = np.exp(scaled - scaled.max(axis=1, keepdims=True)) if len(logits) else scaled
    law /= law.sum(axis=1, keepdims=True)
    _keep(
        law, np.flatnonzero(warm & (asked.top_k > 0) & (asked.top_k < law.shape[1])), _top_k, asked
    )
    _keep(law, np.flatnonzero(warm & (asked.top_p < 1)), _top_p, asked)
    _keep(law, np.flatnonzero(warm & (asked.min_p > 0)), _min_p, asked)
    cold = np.flatnonzero(~warm)
    law[cold] = 0.0
    law[cold, logits[cold].argmax(axis=1)] = 1.0
    return law


def _keep(
    law: Array, rows: Ids, rule: Callable[[Array, AskedRows], Mask], asked: AskedRows
) -> None:
    """Filter some rows of ``law`` in place and divide them by what is kept."""
    if rows.size:
        part = law[rows]
        left = np.where(rule(part, asked.take(rows)), part, 0.0)
        law[rows] = left / left.sum(axis=1, keepdims=True)


def _first(law: Array, counts: NDArray[np.int64], ties: Ties) -> Mask:
    """The ``counts[r]`` largest of each row; the lowest id first among equals."""
    order = np.argsort(-law, axis=1, kind="stable")
    if ties == "all":
        last = np.take_along_axis(order, counts[:, None] - 1, axis=1)
        reached: Mask = law >= np.take_along_axis(law, last, axis=1)
        return reached
    kept = np.zeros(law.shape, bool)
    np.put_along_axis(kept, order, np.arange(law.shape[1]) < counts[:, None], axis=1)
    return kept


def _top_k(law: Array, asked: AskedRows) -> Mask:
    return _first(law, asked.top_k, asked.ties)


def _top_p(law: Array, asked: AskedRows) -> Mask:
    reached = np.cumsum(-np.sort(-law, axis=1), axis=1)
    enough = reached >= asked.top_p[:, None] * law.sum(axis=1, keepdims=True)
    counts = np.where(enough.any(axis=1), enough.argmax(axis=1) + 1, law.shape[1])
    return _first(law, counts, asked.ties)


def _min_p(law: Array, asked: AskedRows) -> Mask:
    return np.asarray(law >= asked.min_p[:, None] * law.max(axis=1, keepdims=True))


def outcome_laws(
    outcomes: Ids, rule: Rule, p: Float64[Array, "rows vocab"], q: Float64[Array, "rows vocab"]
) -> Float64[Array, "rows vocab"]:
    """``outcome_law`` of every row; ``outcomes`` are indices into ``OUTCOMES``.

    Rows of ``q`` whose outcome is plain or bonus are not read.
    """
    accepted = np.minimum(p, q) if rule == "chain" else p * q
    left = np.maximum(p - q, 0.0) if rule == "chain" else p * (1.0 - q)
    drawn = np.asarray(outcomes)[:, None]
    weights = np.where(drawn == 1, accepted, np.where(drawn == 2, left, p))
    total = weights.sum(axis=1, keepdims=True)
    laws = np.where(total > 0, weights / np.where(total > 0, total, 1.0), np.nan)
    return np.asarray(np.where((drawn == 1) | (drawn == 2), laws, p), np.float64)


def falls(
    law: Float64[Array, "rows vocab"],
    ids: Ids,
    *,
    key: Float64[Array, "rows vocab"],
) -> Float64[Array, "rows 2"]:
    """``fall`` of every row in the order of falling ``key``: mass below, mass on the id."""
    rows = np.arange(len(ids))
    mine = key[rows, ids][:, None]
    before = (key > mine) | ((key == mine) & (np.arange(key.shape[1]) < np.asarray(ids)[:, None]))
    return np.stack([np.where(before, law, 0.0).sum(axis=1), law[rows, ids]], axis=1)


class Moments(NamedTuple):
    """Of the surprisal under a law, (rows,) each; nats, nats squared."""

    entropy: Array
    variance: Array


def surprisal_moments_of(law: Float64[Array, "rows vocab"]) -> Moments:
    """``surprisal_moments`` of every row."""
    surprisal = -np.log(np.where(law > 0, law, 1.0))
    entropy = (law * surprisal).sum(axis=1)
    variance = (law * (surprisal - entropy[:, None]) ** 2).sum(axis=1)
    return Moments(entropy, variance)


def edge_distances(
    logits: Float64[Array, "rows vocab"], law: Array, ids: Ids, temperature: Array
) -> Float64[Array, " rows"]:
    """``edge_distance`` of every row."""
    rows = np.arange(len(ids))
    least = np.where(law > 0, logits, np.inf).min(axis=1)
    away = (least - logits[rows, ids]) / np.where(temperature > 0, temperature, 1.0)
    return np.asarray(np.where(law[rows, ids] > 0, 0.0, away))
