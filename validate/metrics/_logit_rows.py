"""One pass over all logits of a pair: per-row statistics, reduced prompt by prompt.

Only what metrics need stays in memory: per row its KL, per prompt the rest. The
logits themselves are let go prompt by prompt.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.metrics._divergence import row_count_reason, stream_pairs
from validate.metrics._logit_values import BadLogits, bad_logits
from validate.metrics._near_tie import hard_cap, near_ties_predicted
from validate.metrics._reason import Reason
from validate.numerics import (
    NO_TARGET,
    RowStatistics,
    exact_mean,
    exact_sum,
    log_softmax,
    row_statistics,
)
from validate.schema import Pair, Prompt
from validate.schema.measurement import UndefinedKind

__all__ = ["DECODE", "FORCED", "Bad", "LogitRows", "SectionRows", "WorstRow", "logit_rows"]

FORCED = "logits"
"""Rows over the prompt's own tokens: fixed before anything ran."""
DECODE = "decode.logits"
"""The same tokens, fed one at a time after a prefill of the first half."""
STREAM = "stream.logits"
"""Rows over the prompt and the side's own greedy stream."""
TOP_SHOWN = 3


class WorstRow(NamedTuple):
    """One row of one section."""

    position: int
    row: int
    value: float
    detail: str
    """The top choices of both sides with their probabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionRows:
    """The compared rows of one logits tensor of one prompt."""

    prompt: str
    section: str
    """``logits``, ``decode.logits`` or ``stream.logits``."""
    positions: NDArray[np.int32]
    kl: NDArray[np.float64]
    """KL(ref || cand) per row, nats."""
    kl_mean: float
    kl_worst: WorstRow
    flips: int
    """Rows whose top-1 sets are disjoint with a ref gap above the near-tie limit."""
    capped: int
    """Those of them with a gap above the hard cap."""
    flip_worst: WorstRow | None
    """The flip with the greatest gap."""
    disagreements: int
    """Rows whose top-1 sets are disjoint, near-ties included."""
    near_ties_predicted: float
    """Disagreements within the limit that the limit leads to expect."""
    margin_shift_max: float
    """Greatest change of the logprob between ref's first two choices, nats."""
    ties: int
    """Rows with a tied maximum on either side."""
    overlap_mean: float
    tvd_max: float
    reverse_max: float
    dlogprob_max: float
    targets: int
    """Rows that predict a known token."""
    nll_ref: float | None
    """Mean over those, nats; None without any."""
    nll_delta: float | None
    """Mean of nll_cand - nll_ref over those, nats; NaN where both sides mask a target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bad:
    """Non-finite logits of one section of one prompt."""

    prompt: str
    section: str
    label: str
    position: int
    found: BadLogits

    def text(self) -> str:
        """Side, prompt, place and kinds."""
        return (
            f"{self.found.side} '{self.label}' prompt {self.prompt} {self.section} "
            f"position {self.position}: {self.found.text()}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitRows:
    """Everything the logits metrics are made from."""

    unpaired: Reason | None
    """Why the two sides cannot be set against each other, or hold no logits."""
    bad: tuple[Bad, ...]
    values: int
    """Logits looked at on both sides together."""
    sections: tuple[SectionRows, ...]

    @property
    def reason(self) -> Reason | None:
        """Why statistics over rows are undefined; None when they are not."""
        if self.unpaired is not None or not self.bad:
            return self.unpaired
        total = sum(bad.found.total for bad in self.bad)
        return Reason(f"{total} logits are not finite; the first: {self.bad[0].text()}")

    @property
    def forced(self) -> tuple[SectionRows, ...]:
        """The teacher-forced rows of every prompt, in pair order."""
        return tuple(rows for rows in self.sections if rows.section == FORCED)

    @property
    def by_prompt(self) -> Mapping[str, tuple[SectionRows, ...]]:
        """All sections of every prompt, in pair order."""
        held: dict[str, tuple[SectionRows, ...]] = {}
        for rows in self.sections:
            held[rows.prompt] = (*held.get(rows.prompt, ()), rows)
        return held

    @property
    def drifts(self) -> tuple[SectionRows, ...]:
        """The path of every prompt that drifts more on the prompt's own tokens, in pair order.

        That is ``logits`` or, where it was captured and has the greater mean KL,
        ``decode.logits``. Which rows these hold was fixed before anything ran.
        """
        worse: dict[str, SectionRows] = {}
        for rows in self.sections:
            held = worse.get(rows.prompt)
            if rows.section != STREAM and (held is None or rows.kl_mean > held.kl_mean):
                worse[rows.prompt] = rows
        return tuple(worse.values())


class _Rows(NamedTuple):
    """Two matrices that are to be compared row by row, before any check of their values."""

    section: str
    ref: NDArray[Any]
    cand: NDArray[Any]
    positions: NDArray[np.int32]
    targets: NDArray[np.int64]
    shared: int
    """Leading rows with identical prefixes."""


class _UnpairedError(Exception):
    """Stops the pass; its reason becomes the measurement's."""

    def __init__(self, why: str, kind: UndefinedKind = "unlike") -> None:
        super().__init__(why)
        self.reason = Reason(why, kind)


def logit_rows(pair: Pair) -> LogitRows:
    """Per-row statistics of every logits tensor; read once for each pair."""
    return pair.once("logits.rows", lambda: _read(pair))


def _read(pair: Pair) -> LogitRows:
    bad: list[Bad] = []
    sections: list[SectionRows] = []
    values = 0
    try:
        for prompt in pair.prompts:
            for rows in _sections(pair, prompt):
                values += rows.ref.size + rows.cand.size
                found = bad_logits(rows.ref, rows.cand, shared=rows.shared)
                bad += [_placed(pair, prompt, rows, one) for one in found]
                if not found and rows.shared > 0:
                    sections.append(_reduce(prompt, rows, near_tie=pair.near_tie))
    except _UnpairedError as stop:
        return LogitRows(unpaired=stop.reason, bad=(), values=0, sections=())
    nothing = None if values else Reason(f"no logits in any of {len(pair.prompts)} prompts")
    return LogitRows(unpaired=nothing, bad=tuple(bad), values=values, sections=tuple(sections))


def _placed(pair: Pair, prompt: str, rows: _Rows, found: BadLogits) -> Bad:
    label = (pair.ref if found.side == "ref" else pair.cand).label
    row = min(found.row, len(rows.positions) - 1)
    position = int(rows.positions[row]) + found.row - row
    return Bad(prompt=prompt, section=rows.section, label=label, position=position, found=found)


def _sections(pair: Pair, prompt: str) -> Iterator[_Rows]:
    tokens = pair.ref.prompts[prompt]
    yield _fixed(pair, tokens, FORCED, "logits.positions", tokens.scored_positions())
    names = set(pair.ref.names(prompt)) | set(pair.cand.names(prompt))
    if DECODE in names:
        yield _fixed(pair, tokens, DECODE, "decode.positions", None)
    if STREAM in names:
        yield _stream(pair, prompt)


def _tensor(pair: Pair, prompt: str, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    lacking = [side.label for side in (pair.ref, pair.cand) if name not in side.names(prompt)]
    if lacking:
        why = f"prompt {prompt} holds no {name} in {' and '.join(lacking)}"
        raise _UnpairedError(why, "unlike" if len(lacking) == 1 else "no_data")
    return pair.ref.tensor(prompt, name), pair.cand.tensor(prompt, name)


def _fixed(
    pair: Pair, prompt: Prompt, section: str, positions: str, wanted: tuple[int, ...] | None
) -> _Rows:
    """Rows over the prompt's own tokens, whose positions both sides state."""
    at_ref, at_cand = _tensor(pair, prompt.id, positions)
    ref, cand = _tensor(pair, prompt.id, section)
    place = f"prompt {prompt.id} {section}"
    if ref.shape != cand.shape or ref.shape[:1] != at_ref.shape:
        why = f"{place}: ref has shape {ref.shape} at {at_ref.size} positions, cand {cand.shape}"
        raise _UnpairedError(why)
    if at_ref.shape != at_cand.shape or (at_ref != at_cand).any():
        why = f"{place}: {positions} differ between {pair.ref.label} and {pair.cand.label}"
        raise _UnpairedError(why)
    length = len(prompt.token_ids)
    expected = at_ref if wanted is None else np.array(wanted)
    inside = at_ref.size > 0 and at_ref.min() >= 0 and at_ref.max() < length
    if not inside or at_ref.shape != expected.shape or (at_ref != expected).any():
        why = f"{place}: {at_ref.size} stored positions are not those that {length} tokens score"
        raise _UnpairedError(why)
    targets = np.array([*prompt.token_ids[1:], NO_TARGET], dtype=np.int64)[at_ref]
    if not targets.max() < ref.shape[1]:
        why = f"{place}: the prompt holds token {targets.max()}, the vocabulary {ref.shape[1]} ids"
        raise _UnpairedError(why)
    return _Rows(section, ref, cand, at_ref.astype(np.int32), targets, len(ref))


def _stream(pair: Pair, prompt: str) -> _Rows:
    """Rows over each side's own stream; identical prefixes up to the first divergence."""
    streams = stream_pairs(pair)
    if streams.reason is not None and streams.reason.kind == "unlike":
        raise _UnpairedError(streams.reason.why)
    ref, cand = _tensor(pair, prompt, STREAM)
    start = pair.ref.prompts[prompt].prompt_length
    for side, rows in ((pair.ref, ref), (pair.cand, cand)):
        tokens = len(side.streams[prompt].token_ids)
        reason = row_count_reason(side, prompt, tokens=tokens, rows=len(rows))
        if reason is not None:
            raise _UnpairedError(reason.why)
    shared = next(found.compared for found in streams.every if found.prompt == prompt)
    if ref.shape[1:] != cand.shape[1:]:
        why = f"prompt {prompt} {STREAM}: ref has shape {ref.shape}, cand {cand.shape}"
        raise _UnpairedError(why)
    positions = np.arange(start - 1, start - 1 + max(shared, 1), dtype=np.int32)
    return _Rows(STREAM, ref, cand, positions, np.full(shared, NO_TARGET), shared)


def _reduce(prompt: str, rows: _Rows, *, near_tie: float) -> SectionRows:
    ref, cand = rows.ref[: rows.shared], rows.cand[: rows.shared]
    stats = row_statistics(ref, cand, targets=rows.targets)
    flips = ~stats.top1_agree & ~(stats.gap <= near_tie)
    worst_flip = int(np.argmax(np.where(flips, stats.gap, -1.0)))

    def worst(row: int, value: float) -> WorstRow:
        detail = _detail(ref[row], cand[row])
        return WorstRow(int(rows.positions[row]), row, value, detail)

    top = int(np.argmax(stats.kl))
    return SectionRows(
        prompt=prompt,
        section=rows.section,
        positions=rows.positions[: rows.shared],
        kl=stats.kl,
        kl_mean=exact_sum(stats.kl) / len(stats.kl),
        kl_worst=worst(top, float(stats.kl[top])),
        flips=int(np.count_nonzero(flips)),
        capped=int(np.count_nonzero(flips & ~(stats.gap <= hard_cap(near_tie)))),
        near_ties_predicted=near_ties_predicted(stats.ref_margin, near_tie=near_tie),
        flip_worst=worst(worst_flip, float(stats.gap[worst_flip])) if flips.any() else None,
        **_counts(stats),
        **_nll(stats, rows.targets),
    )


def _counts(stats: RowStatistics) -> Mapping[str, Any]:
    return {
        "disagreements": int(np.count_nonzero(~stats.top1_agree)),
        "margin_shift_max": float(np.max(np.abs(stats.margin_shift))),
        "ties": int(np.count_nonzero((stats.ties_ref > 1) | (stats.ties_cand > 1))),
        "overlap_mean": float(np.mean(stats.topk_overlap)),
        "tvd_max": float(np.max(stats.tvd)),
        "reverse_max": float(np.max(stats.kl_reverse)),
        "dlogprob_max": float(np.max(stats.max_abs_dlogprob)),
    }


def _nll(stats: RowStatistics, targets: NDArray[np.int64]) -> Mapping[str, Any]:
    known = targets != NO_TARGET
    return {
        "targets": int(np.count_nonzero(known)),
        "nll_ref": exact_mean(stats.nll_ref[known]),
        "nll_delta": exact_mean(-stats.dlogprob_target[known]),
    }


def _detail(ref: NDArray[Any], cand: NDArray[Any]) -> str:
    """``top-1 ref 97 (p 0.61), cand 32 (p 0.44); top-3 ref 97 32 10, cand 32 97 11``."""
    firsts, lists = [], []
    for side, logits in (("ref", ref), ("cand", cand)):
        logprobs = log_softmax(logits)
        order = np.argsort(-logprobs, kind="stable")[:TOP_SHOWN]
        firsts.append(f"{side} {order[0]} (p {np.exp(logprobs[order[0]]):.4g})")
        lists.append(f"{side} {' '.join(str(i) for i in order)}")
    return f"top-1 {', '.join(firsts)}; top-{TOP_SHOWN} {', '.join(lists)}"
