"""``greedy.unexplained``: stream tokens that no rounding within the near-tie limit explains."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.metrics._divergence import ROWS, StreamPair, row_count_reason, stream_pairs
from validate.metrics._logit_values import bad_logits
from validate.metrics._reason import Reason, without_value
from validate.numerics import to_float64
from validate.schema import Levels, Measurement, Pair, Worst

__all__ = ["greedy_unexplained"]

NAME = "greedy.unexplained"


class _Event(NamedTuple):
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
class _Checked:
    """What one prompt's streams say beside the teacher-forced rows."""

    unexplained: tuple[_Event, ...]
    """The first divergence, if it is no near-tie."""
    near_tie: bool
    """The first divergence is a near-tie."""
    off: tuple[_Event, ...]
    """Tokens that are not the argmax of their own side's row."""
    near_tie_rows: int
    """Compared rows where ref's first two choices lie within the limit."""


def greedy_unexplained(pair: Pair, levels: Levels) -> Measurement:
    """Count of greedy tokens that the logits do not explain.

    Two kinds. A first divergence is explained when it is a near-tie: ref rates the
    two ids within ``pair.near_tie`` of each other *and* cand's id is within that limit
    of the top of cand's own teacher-forced row. And on either side every stream
    token must be within the limit of the top of its own row, also where both sides agree: the
    row comes from the prefill path, the token from the decode path, so this
    catches faults of decoding alone. A token that is both counts once.

    Args:
        pair: Both sides' greedy streams and ``stream.logits``, and the near-tie limit.
        levels: Not used: a count is deterministic.

    Returns:
        Measurement in tokens, ``n`` = prompts with a token on either side; ``worst_value`` is the
        widest gap in nats (None where an id has no logit at all). The breakdown
        counts the kinds and sides, explained near-ties, and ``near_tie_rows``: the compared
        rows where a near-tie could happen. Undefined when a stream or its rows are
        missing, of unlike length, or not finite.

    Source:
        design.md section 4, greedy streams.
    """
    del levels
    streams = stream_pairs(pair)
    if streams.reason is not None:
        return without_value(NAME, streams.reason, unit="tokens", n_of="prompts")
    checked = []
    for one in streams.pairs:
        found = _check(pair, one)
        if isinstance(found, Reason):
            return without_value(NAME, found, unit="tokens", n_of="prompts")
        checked.append(found)
    divergences = [event for found in checked for event in found.unexplained]
    off = [event for found in checked for event in found.off]
    places = {(event.prompt, event.step, event.side) for event in divergences + off}
    worst = _worst(divergences + off)
    return Measurement(
        metric=NAME,
        value=float(len(places)),
        unit="tokens",
        n=len(checked),
        n_of="prompts",
        worst=worst,
        worst_value=0.0 if worst is None else worst.value,
        breakdown={
            "divergences.unexplained": float(len(divergences)),
            "divergences.near_tie": float(sum(found.near_tie for found in checked)),
            "off_argmax.ref": float(sum(event.side == "ref" for event in off)),
            "off_argmax.cand": float(sum(event.side == "cand" for event in off)),
            "near_tie_rows": float(sum(found.near_tie_rows for found in checked)),
            "near_tie_limit": pair.near_tie,
        },
    )


def _check(pair: Pair, streams: StreamPair) -> _Checked | Reason:
    read = _read(pair, streams)
    if isinstance(read, Reason):
        return read
    ref, cand = read
    limit = pair.near_tie
    own_ref, own_cand = _own_gaps(ref, streams.ref), _own_gaps(cand, streams.cand)
    off = _off(streams, "ref", pair.ref.label, own_ref, limit)
    off += _off(streams, "cand", pair.cand.label, own_cand, limit)
    near_rows = _near_rows(ref[: streams.compared], limit)
    step = streams.diverged
    if step is None:
        return _Checked(unexplained=(), near_tie=False, off=tuple(off), near_tie_rows=near_rows)
    gap = _gap(ref[step], streams.ref[step], streams.cand[step])
    own = float(own_cand[step])
    explained = gap <= limit and own <= limit
    event = _Event(
        streams.prompt,
        streams.start + step,
        step,
        "cand",
        gap,
        "first divergence",
        f"ref emitted {streams.ref[step]}, cand {streams.cand[step]}; ref rates them {gap:.4g} nats "
        f"apart, cand's id is {own:.4g} nats below the top of cand's own row; limit {limit:.4g}",
    )
    return _Checked(
        unexplained=() if explained else (event,),
        near_tie=explained,
        off=tuple(off),
        near_tie_rows=near_rows,
    )


def _read(pair: Pair, streams: StreamPair) -> tuple[NDArray[Any], NDArray[Any]] | Reason:
    """Teacher-forced rows of both streams as stored, or why they can't be used."""
    arrays: list[NDArray[Any]] = []
    for side, tokens in ((pair.ref, streams.ref), (pair.cand, streams.cand)):
        if ROWS not in side.names(streams.prompt):
            return Reason(f"{side.label} prompt {streams.prompt} holds no {ROWS}", "unlike")
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
) -> list[_Event]:
    tokens = streams.ref if side == "ref" else streams.cand
    return [
        _Event(
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


def _near_rows(rows: NDArray[Any], limit: float) -> int:
    """Rows whose first two choices lie within the limit; widened one at a time."""
    if rows.shape[1] == 1:
        return 0
    heads = [np.partition(to_float64(row), len(row) - 2)[-2:] for row in rows]
    return sum(bool(head[1] - head[0] <= limit) for head in heads)


def _worst(events: list[_Event]) -> Worst | None:
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
