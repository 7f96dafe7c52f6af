"""Top-k, top-p and min-p a second time: by counting who beats whom, in exact fractions."""

from fractions import Fraction

import numpy as np

__all__ = ["min_p", "shares", "top_k", "top_p"]


def top_k(row, k, *, ties):
    """Kept ids of one row: those that fewer than k others beat."""
    return {i for i in range(len(row)) if len(_better(row, i, ties)) < max(k, 1)}


def top_p(row, p, *, ties, mass):
    """Kept ids of one row: those before whose rank the mass has not reached the goal."""
    exact, share = [Fraction(x) for x in row], max(Fraction(p), Fraction(0))
    if share >= 1:
        return set(range(len(row)))
    total = sum(exact)
    goals = {"relative": share * total, "absolute": share, "discarded": total - 1 + share}
    goal = goals[mass]
    kept = set()
    for i in range(len(row)):
        before = sum((exact[j] for j in _better(row, i, "exactly_k")), Fraction(0))
        short = before <= goal if mass == "discarded" else before < goal
        if short or not _better(row, i, "exactly_k"):
            kept.add(i)
    if ties == "all":
        kept |= {i for i in range(len(row)) if any(row[i] == row[j] for j in kept)}
    return kept


def min_p(row, share):
    """Kept ids of one row: those that times 1 / share reach everything."""
    return {
        i
        for i in range(len(row))
        if all(Fraction(x) * Fraction(share) <= Fraction(row[i]) for x in row)
    }


def shares(row, kept):
    """Probabilities after the division, each a quotient of exact sums."""
    total = sum((Fraction(row[i]) for i in kept), Fraction(0))
    return np.array(
        [float(Fraction(row[i]) / total) if i in kept and total else 0.0 for i in range(len(row))]
    )


def _better(row, i, ties):
    """Ids that come before id i."""
    return [
        j
        for j in range(len(row))
        if row[j] > row[i] or (ties == "exactly_k" and row[j] == row[i] and j < i)
    ]
