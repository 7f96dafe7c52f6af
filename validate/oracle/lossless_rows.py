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
ACCEPTED, RESAMPLED = OUTCOMES.index("accepted"), OUTCOMES.index("resampled")
PART = 1 << 17
"""Entries that are worked on at a time."""

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
    top = logits.max(axis=1) if len(logits) else logits[:, 0]
    bad = np.flatnonzero(~np.isfinite(top))
    if bad.size:
        msg = (
            f"{bad.size} of {len(logits)} rows of logits hold NaN or have no finite maximum, "
            f"row {int(bad[0])} first: no law can be made of them"
        )
        raise InputError(msg)
    laws = np.empty(logits.shape)
    for part in _parts(logits.shape):
        laws[part] = _laws(logits[part], asked.take(np.arange(len(logits))[part]))
    return laws


def _parts(shape: tuple[int, ...]) -> list[slice]:
    """Rows a few at a time: what is made of them stays in the processor's cache."""
    rows, vocab = shape
    step = max(1, PART // max(1, vocab))
    return [slice(at, at + step) for at in range(0, rows, step)]


def _laws(logits: Array, asked: AskedRows) -> Array:
    warm = asked.temperature > 0
    law: Array = logits / np.where(warm, asked.temperature, 1.0)[:, None]
    law -= law.max(axis=1, keepdims=True)
    np.exp(law, out=law)
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
        part[~rule(part, asked.take(rows))] = 0.0
        law[rows] = part / part.sum(axis=1, keepdims=True)


def _from(law: Array, least: Array, counts: NDArray[np.int64], ties: Ties) -> Mask:
    """The ``counts[r]`` largest of each row, given the last of them; the lowest id first among equals."""
    if ties == "all":
        reached: Mask = law >= least[:, None]
        return reached
    kept: Mask = law > least[:, None]
    equal = law == least[:, None]
    left = counts - kept.sum(axis=1)
    kept |= equal & (np.cumsum(equal, axis=1) <= left[:, None])
    return kept


def _top_k(law: Array, asked: AskedRows) -> Mask:
    least = np.empty(len(law))
    for k in np.unique(asked.top_k):
        rows, place = np.flatnonzero(asked.top_k == k), law.shape[1] - int(k)
        least[rows] = np.partition(law[rows], place, axis=1)[:, place]
    return _from(law, least, asked.top_k, asked.ties)


def _top_p(law: Array, asked: AskedRows) -> Mask:
    sizes = np.count_nonzero(law, axis=1)
    held = int(sizes.max())
    falling = np.zeros((len(law), held))
    falling[np.arange(held) < sizes[:, None]] = law[law > 0]
    falling = np.sort(falling, axis=1)[:, ::-1]
    enough = np.cumsum(falling, axis=1) >= asked.top_p[:, None] * law.sum(axis=1, keepdims=True)
    counts = np.where(enough.any(axis=1), enough.argmax(axis=1) + 1, law.shape[1])
    least = np.where(counts > held, 0.0, falling[np.arange(len(law)), np.minimum(counts, held) - 1])
    return _from(law, least, counts, asked.ties)


def _min_p(law: Array, asked: AskedRows) -> Mask:
    return np.asarray(law >= asked.min_p[:, None] * law.max(axis=1, keepdims=True))


def outcome_laws(
    outcomes: Ids, rule: Rule, p: Float64[Array, "rows vocab"], q: Float64[Array, "rows vocab"]
) -> Float64[Array, "rows vocab"]:
    """``outcome_law`` of every row; ``outcomes`` are indices into ``OUTCOMES``.

    Rows of ``q`` whose outcome is plain or bonus are not read.
    """
    laws, drawn = p.copy(), np.asarray(outcomes)
    for row in np.flatnonzero((drawn == ACCEPTED) | (drawn == RESAMPLED)):
        mine, other = p[row], q[row]
        if drawn[row] == ACCEPTED:
            weights = np.minimum(mine, other) if rule == "chain" else mine * other
        else:
            weights = np.maximum(mine - other, 0.0) if rule == "chain" else mine * (1.0 - other)
        total = weights.sum()
        laws[row] = weights / total if total > 0 else np.nan
    return laws


def falls(
    law: Float64[Array, "rows vocab"],
    ids: Ids,
    *,
    key: Float64[Array, "rows vocab"],
) -> Float64[Array, "rows 2"]:
    """``fall`` of every row in the order of falling ``key``: mass below, mass on the id."""
    found = np.empty((len(ids), 2))
    for row, x in enumerate(np.asarray(ids).tolist()):
        mine, order = law[row], key[row]
        before = order > order[x]
        before[:x] |= order[:x] == order[x]
        found[row] = mine[before].sum(), mine[x]
    return found


class Moments(NamedTuple):
    """Of the surprisal under a law, (rows,) each; nats, nats squared."""

    entropy: Array
    variance: Array


def surprisal_moments_of(law: Float64[Array, "rows vocab"]) -> Moments:
    """``surprisal_moments`` of every row."""
    moments = Moments(np.empty(len(law)), np.empty(len(law)))
    for row, mine in enumerate(law):
        held = mine[mine > 0]
        surprisal = -np.log(held)
        moments.entropy[row] = entropy = np.sum(held * surprisal)
        surprisal -= entropy
        surprisal *= surprisal
        surprisal *= held
        moments.variance[row] = np.sum(surprisal)
    return moments


def edge_distances(
    logits: Float64[Array, "rows vocab"], law: Array, ids: Ids, temperature: Array
) -> Float64[Array, " rows"]:
    """``edge_distance`` of every row."""
    rows = np.arange(len(ids))
    least = np.min(logits, axis=1, where=law > 0, initial=np.inf)
    away = (least - logits[rows, ids]) / np.where(temperature > 0, temperature, 1.0)
    return np.asarray(np.where(law[rows, ids] > 0, 0.0, away))
