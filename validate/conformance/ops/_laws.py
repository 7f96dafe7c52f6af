"""Tests of drawn ids at a stated level, and exact laws by enumeration.

A test rejects a right implementation with probability ``LEVEL``. With n draws, chi-square
sees a law that differs by ``delta_i`` in id i with the power of a noncentral chi-square of
noncentrality ``n sum delta_i^2 / p_i`` (``power``); the sweeps say which n they take.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from validate.conformance.ops._prob_rows import Array
from validate.conformance.records import Breach

__all__ = [
    "LEVEL",
    "ChiSquare",
    "chi_square",
    "enumerated_breach",
    "law_breach",
    "misdraw",
    "power",
    "serial_breach",
    "shares",
    "transforms",
]

LEVEL = 1e-6
"""False alarm of one test; a sweep makes some tens."""
FEWEST = 5.0
"""Expected count below which cells are put together."""
EXACT = 1e-9
"""An enumerated law is a sum of few thousand multiples of 2^-k: its rounding is far below."""


class ChiSquare(NamedTuple):
    """Pearson's test of counts against a law."""

    statistic: float
    freedom: int
    p_value: float


def chi_square(counts: NDArray[np.int64], law: Array) -> ChiSquare:
    """Counts of ids against their law; cells expected below 5 are put together.

    Source:
        Pearson 1900; the tail is the upper incomplete gamma function.
    """
    n = float(counts.sum())
    order = np.argsort(law)
    expected, seen = law[order] * n, counts[order].astype(np.float64)
    whole = int(np.searchsorted(np.cumsum(expected), FEWEST)) + 1
    cells = np.concatenate([[expected[:whole].sum()], expected[whole:]])
    got = np.concatenate([[seen[:whole].sum()], seen[whole:]])
    statistic = float(np.sum((got - cells) ** 2 / cells))
    freedom = len(cells) - 1
    return ChiSquare(statistic, freedom, float(special.chdtrc(freedom, statistic)))


def power(law: Array, wrong: Array, n: int) -> float:
    """Chance that ``chi_square`` at ``LEVEL`` rejects n draws from ``wrong`` as draws from ``law``."""
    inside = law > 0
    noncentrality = n * float(np.sum((wrong - law)[inside] ** 2 / law[inside]))
    freedom = int(inside.sum()) - 1
    return 1.0 - float(special.chndtr(special.chdtri(freedom, LEVEL), freedom, noncentrality))


def law_breach(
    ids: NDArray[np.int64], law: Array, *, what: str, clause: str = "law"
) -> tuple[Breach, ...]:
    """Draws that leave the support of a law, or whose counts it does not explain."""
    outside = (ids < 0) | (ids >= len(law))
    if outside.any():
        row = int(np.argmax(outside))
        words = f"{what}: draw {row} is id {ids[row]}, outside 0 to {len(law) - 1}"
        return (Breach(clause="range", what=words, at={"row": row}),)
    impossible = law[ids] <= 0
    if impossible.any():
        row = int(np.argmax(impossible))
        words = f"{what}: {int(impossible.sum())} of {len(ids)} draws have probability 0, e.g. id {ids[row]} in row {row}"
        return (Breach(clause="support", what=words, at={"row": row}),)
    counts = np.bincount(ids, minlength=len(law))
    inside = law > 0
    if len(ids) == 0 or inside.sum() == 1:
        return ()  # one id is all there is: nothing to test beyond the support
    test = chi_square(counts[inside], law[inside] / law[inside].sum())
    if test.freedom == 0 or test.p_value >= LEVEL:
        return ()
    worst = int(np.argmax(np.abs(counts / len(ids) - law)))
    words = (
        f"{what}: {len(ids)} draws do not follow their law (chi-square {test.statistic:.4g} on "
        f"{test.freedom}, p {test.p_value:.2g}, level {LEVEL:g}); id {worst} has "
        f"{counts[worst] / len(ids):.4g}, its probability is {law[worst]:.4g}"
    )
    return (Breach(clause=clause, what=words, at={"id": worst}),)


def transforms(ids: NDArray[np.int64], law: Array, jitter: Array) -> Array:
    """``F(x-) + V p(x)`` in order of falling probability: uniform when ids follow ``law``."""
    order = np.argsort(-law, kind="stable")
    before = np.empty(len(law))
    before[order] = np.concatenate([[0.0], np.cumsum(law[order])[:-1]])
    return np.asarray(before[ids] + jitter * law[ids], np.float64)


def serial_breach(
    earlier: Array, later: Array, *, what: str, clause: str = "independent"
) -> tuple[Breach, ...]:
    """Correlation of uniforms with those drawn next, as a z with variance 1/144 a pair.

    Power: n pairs see a correlation r with z = r sqrt(n); 1,024 pairs and r = 0.3 give 9.6
    against a limit of 4.9.
    """
    products = (earlier - 0.5) * (later - 0.5) * 12.0
    z = float(np.sum(products)) / math.sqrt(products.size)
    p_value = math.erfc(abs(z) / math.sqrt(2.0))
    if p_value >= LEVEL:
        return ()
    words = (
        f"{what}: correlation {float(products.mean()):.3g} over {products.size} pairs, z {z:.3g}, "
        f"p {p_value:.2g}, level {LEVEL:g}"
    )
    return (Breach(clause=clause, what=words),)


def shares(ids: NDArray[np.int64], weight: Array | float, *, of: int = 4) -> Array:
    """Weight that falls on each id: a number for each outcome, or one for all."""
    weights = np.broadcast_to(np.asarray(weight, np.float64), ids.shape)
    return np.bincount(ids, weights=weights, minlength=of).astype(np.float64)


def enumerated_breach(law: Array, expected: Array, *, what: str) -> tuple[Breach, ...]:
    """An enumerated law against the exact one: no chance in it, so they have to be equal."""
    gap = np.abs(law - expected)
    if (gap <= EXACT).all():
        return ()
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(gap)), gap.shape))
    ids = " ".join(str(i) for i in worst)
    words = (
        f"{what}: ids {ids} have probability {float(law[worst]):.6g}, the exact law {float(expected[worst]):.6g}; "
        f"TVD {float(gap.sum() / 2):.4g}"
    )
    return (Breach(clause="law", what=words, at={"id": worst[-1]}),)


def misdraw(
    drawn: int, weights: Array, coin: float, *, band: float, words: Sequence[str] = ()
) -> tuple[str, str] | None:
    """Why an id is no draw that inversion of the cumulative sum allows; None when it is one.

    Args:
        drawn: The id.
        weights: Float64 weights of a row; an empty row allows any id in range.
        coin: In [0, 1).
        band: Error of a cumulative sum relative to the whole; 0 where sums are exact.
        words: What the draw is, for the message.

    Returns:
        Clause and words.
    """
    label = " ".join(words) or "draw"
    if not 0 <= drawn < len(weights):
        return "range", f"{label}: id {drawn} is outside 0 to {len(weights) - 1}"
    total = float(weights.sum())
    if not (np.isfinite(total) and total > 0):
        return None
    if not weights[drawn] > 0:
        return "support", f"{label}: id {drawn} has probability 0 there"
    through = np.cumsum(weights)
    total = float(through[-1])
    upper, lower = float(through[drawn]), float(through[drawn] - weights[drawn])
    at, slack = coin * total, band * total
    # In the band both neighbours of an edge are right; without one the edge is the next id's.
    inside = lower - slack <= at and (at < upper or (band > 0 and at <= upper + slack))
    right = int(np.argmax(through > at)) if (through > at).any() else len(weights) - 1
    words_of = (
        f"{label}: id {drawn} covers {lower / total:.8g} to {upper / total:.8g} of the sum, the coin "
        f"{coin:.8g} is id {right}'s"
    )
    return None if inside else ("draw", words_of)
