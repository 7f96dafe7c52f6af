"""Structure along the sequence: where an error starts, whether it decays, which rows it spares."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from validate.metrics._words import clean_text, ranges, ratio

__all__ = ["where_positions"]

Array = NDArray[np.float64]
Profile = tuple[Array, Array]
"""Squared error and squared reference by position bucket."""

MOSTLY = 0.8
"""Share of wrong positions after a start that counts as all."""
LONELY = 0.2
"""Share of wrong positions up to which they are listed one by one."""
STRONG = 4.0
"""Single positions are named only above this multiple of the limit: one row is noisier than a sum."""
DECAY = 3.0
"""An error decays when its first quarter is this many times its last."""
MIN_SEGMENT = 8
"""Fewest positions in which a decay can be told."""
STEADY = 3
"""Wrong positions in a row that a decay begins with; fewer are single positions."""
LISTED = 5


def where_positions(
    profile: Mapping[int, Profile], *, width: int, limit: float, chunk: int | None
) -> str | None:
    """Say where along the sequence an error lies, when it does not lie everywhere.

    Args:
        profile: Squared error and squared reference by position bucket, by batch row.
        width: Positions in one bucket; positions in the text are a bucket's first.
        limit: A position whose relative error exceeds this is wrong.
        chunk: Tokens in a prefill chunk, where known.

    Returns:
        A phrase, or None when no position is wrong or all of them are.
    """
    if not profile:
        return None
    pooled = tuple(np.sum([line[i] for line in profile.values()], axis=0) for i in (0, 1))
    err, at = _errors((pooled[0], pooled[1]))
    wrong = ~(err <= limit)
    if wrong.all():
        return _spared_token_row(profile, limit)
    if not wrong.any():
        return None
    start = int(np.argmax(wrong))
    text = None if start == 0 else _from_start(err, at, start, limit, width=width, chunk=chunk)
    return text or _lonely(err, at * width, limit)


def _from_start(
    err: Array, at: NDArray[np.intp], start: int, limit: float, *, width: int, chunk: int | None
) -> str | None:
    """An error that begins after clean positions, and stays or decays."""
    p = int(at[start]) * width
    boundary = chunk is not None and p % chunk == 0
    if _decay(err, at, start, limit, chunk=None if chunk is None else max(chunk // width, 1)):
        return f"starts at {'chunk boundary' if boundary else 'position'} {p} and decays"
    if not float((~(err[start:] <= limit)).mean()) >= MOSTLY:
        return None
    if at[0] == 0 and start == 1 and width == 1:
        return f"only token rows >= 1 wrong (row 0 {clean_text(err[:1])})"
    return f"from position {p} on{', a chunk boundary' if boundary else ''}"


def _lonely(err: Array, positions: NDArray[np.intp], limit: float) -> str | None:
    """A few positions that stand far out, listed."""
    strong = ~(err <= STRONG * limit)
    if not strong.any() or float(strong.mean()) > LONELY:
        return None
    places = positions[strong]
    more = f" and {len(places) - LISTED} more" if len(places) > LISTED else ""
    noun = "position" if len(places) == 1 else "positions"
    return f"only {noun} {ranges(places[:LISTED])}{more} ({len(places)} of {err.size})"


def _errors(line: Profile) -> tuple[Array, NDArray[np.intp]]:
    """Relative errors of the buckets that hold data, and those buckets.

    The denominator is the larger of the bucket's own and the mean squared
    reference, so that a tiny row does not explode.
    """
    at = np.flatnonzero(line[1] + line[0] > 0)
    if at.size == 0:
        return np.zeros(1), np.zeros(1, dtype=np.intp)
    err2, ref2 = line[0][at], line[1][at]
    return ratio(err2, np.maximum(ref2, ref2.mean())), at


def _decay(
    err: Array, at: NDArray[np.intp], start: int, limit: float, *, chunk: int | None
) -> bool:
    """Whether the error falls from ``start`` to the end of its chunk, or of the data."""
    end = err.size
    if chunk is not None:
        end = int(np.searchsorted(at, (at[start] // chunk + 1) * chunk))
    segment = err[start:end]
    if segment.size < MIN_SEGMENT or (segment[:STEADY] <= limit).any():
        return False
    quarter = max(segment.size // 4, 1)
    first, last = float(segment[:quarter].mean()), float(segment[-quarter:].mean())
    return first >= DECAY * last


def _spared_token_row(profile: Mapping[int, Profile], limit: float) -> str | None:
    """A packed read of padded rows spares the very first row of the flattened batch alone."""
    rows = sorted(profile)
    first, at = _errors(profile[rows[0]])
    others = [_errors(profile[row])[0] for row in rows[1:]]
    spared = at[0] == 0 and first.size > 1 and first[0] <= limit
    if not spared or not (~(first[1:] <= limit)).mean() >= MOSTLY:
        return None
    if not all((~(err <= limit)).mean() >= MOSTLY for err in others):
        return None
    return f"only token rows >= 1 wrong (row 0 of batch row {rows[0]} {clean_text(first[:1])})"
