"""Wording that both halves of this room share."""

import difflib
from collections.abc import Iterable, Sequence

__all__ = ["MOST_PROBLEMS", "listed", "near", "nearest"]

MOST_PROBLEMS = 5
"""Problems told at once; the rest are counted."""


def listed(problems: Sequence[str]) -> str:
    """The first problems, one a line, and how many more there are."""
    shown = list(problems[:MOST_PROBLEMS])
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more problems")
    return "\n".join(shown)


def near(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` for the nearest of ``known``, or an empty text."""
    found = nearest(word, known)
    return "" if found is None else f"; did you mean '{found}'?"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The nearest of ``known``; None where none is near enough to be a slip of the hand."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)), None)
