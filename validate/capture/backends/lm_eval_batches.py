"""Which requests share a pass: neighbours that begin alike share their beginning, too.

A plan depends on the requests alone, never on what a cache holds of them, so
that a run that was taken up again computes what it would have computed.
"""

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Ask", "Batch", "plan"]

MIN_SHARED = 16
"""Tokens that two rows must begin with alike, and half of the longer row, to share a prefix."""
MAX_ROWS = 128
MAX_TOKENS = 4096
"""Padded tokens of one batch, prefixes and rests each."""
LEAST_FILLED = 0.8
"""Shortest prefix of a batch over its longest: what is padding is computed for nothing."""


class Ask(NamedTuple):
    """One row of tokens and how much of it is given."""

    tokens: tuple[int, ...]
    """All that is fed; for generation the prompt alone."""
    given: int
    """Tokens before the first that is scored or generated; at least 1."""


class Batch(NamedTuple):
    """Rows that run together."""

    prefixes: tuple[tuple[int, ...], ...]
    """Distinct beginnings; empty when the rows share none."""
    rows: tuple[int, ...]
    """Which requests, by index."""
    prefix_of: tuple[int, ...]
    """Index into ``prefixes`` of each row; empty like it."""


class _Group(NamedTuple):
    shared: int
    rows: list[int]


def plan(asks: Sequence[Ask]) -> list[Batch]:
    """Batches that hold every request once.

    Example:
        >>> plan([Ask((256, 49, 43, 50, 61), 5), Ask((256, 50, 43, 50, 61), 5)])
        [Batch(prefixes=(), rows=(0, 1), prefix_of=())]
    """
    groups = _groups(asks)
    alone = [row for group in groups if not group.shared for row in group.rows]
    alone.sort(key=lambda row: (len(asks[row].tokens), row))
    batches = [Batch((), tuple(rows), ()) for rows in _runs(alone, asks)]
    return batches + _shared([group for group in groups if group.shared], asks)


def _groups(asks: Sequence[Ask]) -> list[_Group]:
    """Runs of rows, in the order of their tokens, that begin alike for long enough."""
    order = sorted(range(len(asks)), key=lambda row: (asks[row].tokens, row))
    groups: list[_Group] = []
    for row in order:
        if groups:
            last = groups[-1]
            shared = _common(asks[last.rows[-1]], asks[row])
            shared = min(shared, last.shared) if len(last.rows) > 1 else shared
            if shared >= MIN_SHARED and 2 * shared >= len(asks[row].tokens):
                groups[-1] = _Group(shared, [*last.rows, row])
                continue
        groups.append(_Group(0, [row]))
    return groups


def _common(one: Ask, other: Ask) -> int:
    """Leading tokens that are equal, leaving at least the last given token of each to its row."""
    most = min(one.given, other.given) - 1
    for place in range(most):
        if one.tokens[place] != other.tokens[place]:
            return place
    return most


def _runs(rows: Sequence[int], asks: Sequence[Ask], *, skip: int = 0) -> list[list[int]]:
    """Cut ``rows``, the longest last, where rows or padded tokens become too many."""
    runs: list[list[int]] = []
    for row in rows:
        width = len(asks[row].tokens) - skip
        full = not runs or len(runs[-1]) >= MAX_ROWS or (len(runs[-1]) + 1) * width > MAX_TOKENS
        if full:
            runs.append([])
        runs[-1].append(row)
    return runs


def _shared(groups: list[_Group], asks: Sequence[Ask]) -> list[Batch]:
    """Batches of whole groups, those of like lengths together; a large group is cut."""
    parts = [
        _Group(group.shared, rows)
        for group in sorted(groups, key=lambda g: (g.shared, g.rows[0]))
        for rows in _runs(group.rows, asks, skip=group.shared)
    ]
    batches: list[list[_Group]] = []
    for part in parts:
        fits = bool(batches) and _fits([*batches[-1], part], asks)
        if fits:
            batches[-1].append(part)
        else:
            batches.append([part])
    return [_batch(held, asks) for held in batches]


def _fits(parts: Sequence[_Group], asks: Sequence[Ask]) -> bool:
    rests = [len(asks[row].tokens) - part.shared for part in parts for row in part.rows]
    padded = max(part.shared for part in parts) * len(parts)
    alike = min(part.shared for part in parts) >= LEAST_FILLED * max(part.shared for part in parts)
    return alike and len(rests) <= MAX_ROWS and max(padded, max(rests) * len(rests)) <= MAX_TOKENS


def _batch(parts: Sequence[_Group], asks: Sequence[Ask]) -> Batch:
    return Batch(
        prefixes=tuple(asks[part.rows[0]].tokens[: part.shared] for part in parts),
        rows=tuple(row for part in parts for row in part.rows),
        prefix_of=tuple(place for place, part in enumerate(parts) for _ in part.rows),
    )
