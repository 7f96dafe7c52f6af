"""The law that an emitted token must follow, and where the token fell in it.

The law p of a row comes from the raw logits and the parameters that were asked
for, never from the path's own sampler: a filter that the sampler dropped would
cancel itself. Given the past and the outcome of the verify step, the emitted
token follows the law of that outcome, so that

    U = F(x-) + V law(x),  V uniform and independent,

is uniform for any order of the ids that was fixed before the draw. Two orders
are used: falling p, and falling q / p where a drafter's law q is known.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from validate.errors import InputError
from validate.oracle.records import Array
from validate.oracle.renorm import Ties, min_p_kept, top_k_kept, top_p_kept

__all__ = [
    "Asked",
    "Fall",
    "Order",
    "Outcome",
    "Rule",
    "edge_distance",
    "expected_acceptance",
    "fall",
    "outcome_law",
    "requested_law",
    "surprisal_moments",
]

Rule = Literal["chain", "target_only", "exact_match"]
Outcome = Literal["plain", "accepted", "resampled", "bonus"]
Order = Literal["falling_p", "falling_ratio"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Parameters of one request, as it asked for them."""

    temperature: float
    top_k: int = 0
    """0 keeps all."""
    top_p: float = 1.0
    min_p: float = 0.0
    ties: Ties = "all"
    """What the sampler declares about entries that tie with the k-th."""


class Fall(NamedTuple):
    """Where a token fell in a law: U lies between ``below`` and ``below + mass``."""

    below: float
    mass: float


def _softmax(logits: Float64[Array, " vocab"]) -> Array:
    """Float64 softmax; -inf is mass 0."""
    top = np.max(logits)
    if not np.isfinite(top):
        msg = f"a row of logits has the maximum {top}: no law can be made of it"
        raise InputError(msg)
    weights = np.exp(logits - top)
    return np.asarray(weights / np.sum(weights))


def requested_law(logits: Float64[Array, " vocab"], asked: Asked) -> Float64[Array, " vocab"]:
    """Temperature, softmax, top-k, top-p, min-p, in this order; each filter divides what it keeps.

    Args:
        logits: One raw row; -inf is allowed, NaN and +inf are not.
        asked: The request's parameters; temperature 0 puts all mass on the largest
            logit, the lowest id among equals.

    Raises:
        InputError: The row has NaN, +inf or nothing finite.

    Example:
        >>> row = np.log(np.array([0.5, 0.3, 0.2]))
        >>> requested_law(row, Asked(temperature=1.0, top_k=2)).round(3).tolist()
        [0.625, 0.375, 0.0]
    """
    if np.any(np.isnan(logits)):
        msg = f"a row of logits has {int(np.isnan(logits).sum())} NaN: no law can be made of it"
        raise InputError(msg)
    if asked.temperature == 0:
        law = np.zeros(len(logits))
        law[int(np.argmax(logits))] = 1.0
        return law
    law = _softmax(logits / asked.temperature)
    if 0 < asked.top_k < len(law):
        law = _kept(law, top_k_kept(law[None], asked.top_k, ties=asked.ties)[0])
    if asked.top_p < 1:
        law = _kept(law, top_p_kept(law[None], asked.top_p, ties=asked.ties)[0])
    if asked.min_p > 0:
        law = _kept(law, min_p_kept(law[None], asked.min_p)[0])
    return law


def _kept(law: Array, mask: NDArray[np.bool_]) -> Array:
    left = np.where(mask, law, 0.0)
    return np.asarray(left / np.sum(left))


def expected_acceptance(rule: Rule, p: Array, q: Array) -> float:
    """Chance that a draft from q is accepted: sum of q(x) a(x).

    ``chain``: sum min(p, q); ``target_only`` and ``exact_match``: sum p q.
    """
    return float(np.sum(np.minimum(p, q)) if rule == "chain" else np.sum(p * q))


def outcome_law(
    outcome: Outcome, rule: Rule, p: Float64[Array, " vocab"], q: Float64[Array, " vocab"] | None
) -> Float64[Array, " vocab"]:
    """The law of the emitted token, given what became of the draft at its row.

    With a(x) the chance that the draft x is accepted and r(x) the law after a
    rejection, an accepted token follows q a / sum(q a) and a resampled one r.
    ``chain``: a = min(1, p/q), so min(p, q) and (p - q)+. ``target_only``: a = p;
    a rejected d is taken out of p, and over all d that gives p (1 - q).
    ``exact_match`` accepts x when the target drew x too: the same two laws.

    Args:
        outcome: ``plain`` and ``bonus`` tokens are drawn from p itself.
        rule: The verifier.
        p: The requested law of the row.
        q: The law that the draft of this row was drawn from; None where there was none.

    Returns:
        A law that sums to 1; all NaN where the outcome has no mass at all, so that
        it cannot have happened.

    Raises:
        InputError: The outcome needs q and there is none.
    """
    if outcome in {"plain", "bonus"}:
        return p
    if q is None:
        msg = f"outcome '{outcome}' needs the drafter's law q of its row, and none is there"
        raise InputError(msg)
    if outcome == "accepted":
        weights = np.minimum(p, q) if rule == "chain" else p * q
    else:
        weights = np.maximum(p - q, 0.0) if rule == "chain" else p * (1.0 - q)
    total = float(np.sum(weights))
    return np.asarray(weights / total) if total > 0 else np.full(len(p), np.nan)


def fall(
    law: Float64[Array, " vocab"],
    x: int,
    *,
    order: Order,
    p: Float64[Array, " vocab"],
    q: Float64[Array, " vocab"] | None = None,
) -> Fall:
    """Mass of ``law`` before ``x`` in the order, and on it; ties go by id.

    Args:
        law: The law that x should follow.
        x: The emitted id.
        order: ``falling_p``, or ``falling_ratio``: falling q / p, ids with p = 0 last.
        p: The requested law of the row.
        q: The drafter's law of the row; needed by ``falling_ratio``.

    Example:
        >>> law = np.array([0.2, 0.5, 0.3])
        >>> fall(law, 2, order="falling_p", p=law)
        Fall(below=0.5, mass=0.3)
    """
    key = p
    if order == "falling_ratio":
        if q is None:
            msg = "order 'falling_ratio' needs the drafter's law q of the row"
            raise InputError(msg)
        key = np.where(p > 0, q / np.where(p > 0, p, 1.0), -1.0)
    before = (key > key[x]) | ((key == key[x]) & (np.arange(len(key)) < x))
    return Fall(float(np.sum(law[before])), float(law[x]))


def surprisal_moments(law: Float64[Array, " vocab"]) -> tuple[float, float]:
    """Entropy and variance of -log law(X) for X from the law, in nats and nats squared."""
    held = law[law > 0]
    surprisal = -np.log(held)
    entropy = float(np.sum(held * surprisal))
    return entropy, float(np.sum(held * (surprisal - entropy) ** 2))


def edge_distance(
    logits: Float64[Array, " vocab"], law: Array, x: int, temperature: float
) -> float:
    """How far ``x`` lies outside the support: nats below the least kept logit, at the temperature.

    0 for an id inside. At temperature 0 the distance is in plain logits.
    """
    if law[x] > 0:
        return 0.0
    least = float(np.min(logits[law > 0]))
    return (least - float(logits[x])) / (temperature or 1.0)
