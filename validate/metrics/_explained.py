"""Which greedy tokens the logits explain: shared by the count and the rate over prompts."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.metrics._divergence import ROWS, StreamPair, row_count_reason, stream_pairs
from validate.metrics._logit_values import bad_logits
from validate.metrics._near_tie import hard_cap, near_ties_predicted
from validate.metrics._reason import Reason
from validate.numerics import to_float64
from validate.schema import Pair, Worst

__all__ = ["Checked", "Event", "checked_streams", "widest"]


class Event(NamedTuple):
    """One unexplained token."""

    prompt: str
    position: int
    """Of the token in prompt and stream together."""
    step: int
    side: str
    gap: float
    """Nats; inf where the id is masked or outside the vocabulary."""
    place: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What one prompt's streams say beside the teacher-forced rows."""

    prompt: str
    unexplained: tuple[Event, ...]
    """The first divergence, if it is no near-tie."""
    near_tie: bool
    """The first divergence is a near-tie."""
    off: tuple[Event, ...]
    """Tokens that are not the argmax of their own side's row."""
    near_tie_rows: int
    """Compared rows where ref's first two choices lie within the limit."""
    predicted: float
    """Near-tie flips to be expected at those rows."""
    cap: float
    """Nats; a divergence with a wider gap is one that no clean pair comes near."""

    @property
    def beyond(self) -> tuple[Event, ...]:
        """Tokens that count each: off their own row, or parted across more than the cap."""
        return (*(one for one in self.unexplained if not one.gap <= self.cap), *self.off)

    @property
    def every(self) -> tuple[Event, ...]:
        """All that is no near-tie."""
        return (*self.unexplained, *self.off)


def checked_streams(pair: Pair) -> tuple[Checked, ...] | Reason:
    """Every prompt with a token on either side, checked once for each pair; or why none can be."""
    return pair.once("greedy.checked", lambda: _checked(pair))


def widest(events: list[Event]) -> Worst | None:
    """The event with the greatest gap; divergences first among equals."""
    if not events:
        return None
    worst = events[int(np.argmax([event.gap for event in events]))]
    return Worst(
        prompt=worst.prompt,
        position=worst.position,
        place=f"stream step {worst.step}, {worst.place}",
        value=worst.gap if math.isfinite(worst.gap) else None,
        detail=worst.detail,
    )


def _checked(pair: Pair) -> tuple[Checked, ...] | Reason:
    streams = stream_pairs(pair)
    if streams.reason is not None:
        return streams.reason
    made: list[Checked] = []
    for one in streams.pairs:
        found = _check(pair, one)
        if isinstance(found, Reason):
            return found
        made.append(found)
    return tuple(made)


def _check(pair: Pair, streams: StreamPair) -> Checked | Reason:
    read = _read(pair, streams)
    if isinstance(read, Reason):
        return read
    ref, cand = read
    limit = pair.near_tie
    own_ref, own_cand = _own_gaps(ref, streams.ref), _own_gaps(cand, streams.cand)
    off = _off(streams, "ref", pair.ref.label, own_ref, limit)
    off += _off(streams, "cand", pair.cand.label, own_cand, limit)
    margins = _margins(ref[: streams.compared])
    step = streams.diverged
    unexplained: tuple[Event, ...] = ()
    near_tie = False
    if step is not None:
        gap = _gap(ref[step], streams.ref[step], streams.cand[step])
        own = float(own_cand[step])
        near_tie = gap <= limit and own <= limit
        if not near_tie:
            unexplained = (_divergence(streams, step, gap=gap, own=own, limit=limit),)
    return Checked(
        prompt=streams.prompt,
        unexplained=unexplained,
        near_tie=near_tie,
        off=tuple(off),
        near_tie_rows=int(np.count_nonzero(margins <= limit)),
        predicted=near_ties_predicted(margins, near_tie=limit),
        cap=hard_cap(limit),
    )


def _divergence(streams: StreamPair, step: int, *, gap: float, own: float, limit: float) -> Event:
    return Event(
        streams.prompt,
        streams.start + step,
        step,
        "cand",
        gap,
        "first divergence",
        f"ref emitted {streams.ref[step]}, cand {streams.cand[step]}; ref rates them {gap:.4g} nats "
        f"apart, cand's id is {own:.4g} nats below the top of cand's own row; limit {limit:.4g}",
    )


def _read(pair: Pair, streams: StreamPair) -> tuple[NDArray[Any], NDArray[Any]] | Reason:
    """Teacher-forced rows of both streams as stored, or why they can't be used."""
    arrays: list[NDArray[Any]] = []
    for side, tokens in ((pair.ref, streams.ref), (pair.cand, streams.cand)):
        if ROWS not in side.names(streams.prompt):
            words = f"{side.label} prompt {streams.prompt} holds no {ROWS}"
            return Reason(f"{words}; capture {side.label} anew with it", "unlike")
        rows = side.tensor(streams.prompt, ROWS)
        reason = row_count_reason(side, streams.prompt, tokens=len(tokens), rows=len(rows))
        if reason is not None:
            return reason
        arrays.append(rows)
    ref, cand = arrays
    if ref.shape[1:] != cand.shape[1:]:
        why = f"prompt {streams.prompt} {ROWS}: ref has shape {ref.shape}, cand {cand.shape}"
        return Reason(why, "unlike")
    bad = bad_logits(ref, cand, shared=streams.compared)
    if bad:
        label = (pair.ref if bad[0].side == "ref" else pair.cand).label
        place = f"prompt {streams.prompt} {ROWS}"
        return Reason(f"{bad[0].side} '{label}' {place}: {bad[0].text()}")
    return ref, cand


def _own_gaps(rows: NDArray[Any], tokens: tuple[int, ...]) -> NDArray[np.float64]:
    """Logprob of each row's top over that of its token, nats; inf outside the vocabulary."""
    ids = np.array(tokens, dtype=np.int64)
    inside = (ids >= 0) & (ids < rows.shape[1])
    taken = to_float64(rows[np.arange(len(ids)), np.where(inside, ids, 0)])
    return np.where(inside, to_float64(rows.max(axis=1)) - taken, np.inf)


def _off(
    streams: StreamPair, side: str, label: str, gaps: NDArray[np.float64], limit: float
) -> list[Event]:
    tokens = streams.ref if side == "ref" else streams.cand
    return [
        Event(
            streams.prompt,
            streams.start + int(step),
            int(step),
            side,
            float(gaps[step]),
            f"{side} against its own row",
            f"{label} emitted {tokens[step]}, {gaps[step]:.4g} nats below the top of its own "
            f"teacher-forced row; limit {limit:.4g}",
        )
        for step in np.flatnonzero(~(gaps <= limit))
    ]


def _gap(row: NDArray[Any], token_ref: int, token_cand: int) -> float:
    """Logprob of ref's id over that of cand's id in ref's row; inf where either has none."""
    if not all(0 <= token < len(row) for token in (token_ref, token_cand)):
        return math.inf
    if np.isneginf(row[token_cand]):
        return math.inf
    return float(row[token_ref]) - float(row[token_cand])


def _margins(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Logprob of each row's first choice over its second, nats; widened one row at a time."""
    if rows.shape[1] == 1:
        return np.full(len(rows), np.inf)
    heads = [np.partition(to_float64(row), len(row) - 2)[-2:] for row in rows]
    return np.array([head[1] - head[0] for head in heads], dtype=np.float64)
