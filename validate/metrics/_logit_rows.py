"""One pass over all logits of a pair: per-row statistics, reduced prompt by prompt.

Only what metrics need stays in memory: per row its KL, per prompt the rest. The
logits themselves are let go prompt by prompt.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.errors import InputError
from validate.metrics._divergence import row_count_reason, stream_pairs
from validate.metrics._logit_records import (
    DECODE,
    FORCED,
    STREAM,
    Bad,
    LogitRows,
    SectionRows,
    WorstRow,
)
from validate.metrics._logit_values import BadLogits, bad_logits
from validate.metrics._near_tie import hard_cap, near_ties_predicted
from validate.metrics._reason import Reason
from validate.metrics._topk_rows import (
    TopKStatistics,
    bad_topk,
    holds_topk,
    narrowed,
    read_topk,
    topk_statistics,
)
from validate.numerics import (
    NO_TARGET,
    RowStatistics,
    TopKRows,
    exact_mean,
    exact_sum,
    log_softmax,
    row_statistics,
)
from validate.schema import Pair, Prompt
from validate.schema.measurement import UndefinedKind

__all__ = ["DECODE", "FORCED", "Bad", "LogitRows", "SectionRows", "WorstRow", "logit_rows"]

TOP_SHOWN = 3


class _Rows(NamedTuple):
    """Two matrices that are to be compared row by row, before any check of their values."""

    section: str
    ref: NDArray[Any]
    cand: NDArray[Any]
    positions: NDArray[np.int32]
    targets: NDArray[np.int64]
    shared: int
    """Leading rows with identical prefixes."""
    topk: tuple[TopKRows, TopKRows] | None = None
    """Both sides as top-k where either stores no more; ``ref`` and ``cand`` are then the kept logits."""


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
                found = _bad(rows)
                bad += [_placed(pair, prompt, rows, one) for one in found]
                if not found and rows.shared > 0:
                    sections.append(_reduce(prompt, rows, near_tie=pair.near_tie))
    except _UnpairedError as stop:
        return LogitRows(unpaired=stop.reason, bad=(), values=0, sections=())
    nothing = None if values else Reason(f"no logits in any of {len(pair.prompts)} prompts")
    return LogitRows(unpaired=nothing, bad=tuple(bad), values=values, sections=tuple(sections))


def _bad(rows: _Rows) -> list[BadLogits]:
    if rows.topk is None:
        return bad_logits(rows.ref, rows.cand, shared=rows.shared)
    both = zip(("ref", "cand"), rows.topk, strict=True)
    return [bad for side, held in both if (bad := bad_topk(side, held)) is not None]


def _placed(pair: Pair, prompt: str, rows: _Rows, found: BadLogits) -> Bad:
    label = (pair.ref if found.side == "ref" else pair.cand).label
    row = min(found.row, len(rows.positions) - 1)
    position = int(rows.positions[row]) + found.row - row
    return Bad(prompt=prompt, section=rows.section, label=label, position=position, found=found)


def _sections(pair: Pair, prompt: str) -> Iterator[_Rows]:
    tokens = pair.ref.prompts[prompt]
    yield _fixed(pair, tokens, FORCED, "logits.positions", tokens.scored_positions())
    names = set(pair.ref.names(prompt)) | set(pair.cand.names(prompt))
    if DECODE in names or f"{DECODE}.topk.ids" in names:
        yield _fixed(pair, tokens, DECODE, "decode.positions", None)
    if STREAM in names:
        yield _stream(pair, prompt)


def _tensor(pair: Pair, prompt: str, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    lacking = [side.label for side in (pair.ref, pair.cand) if name not in side.names(prompt)]
    if lacking:
        sides = " and ".join(lacking)
        why = f"prompt {prompt} holds no {name} in {sides}; capture {sides} anew with it"
        raise _UnpairedError(why, "unlike" if len(lacking) == 1 else "no_data")
    return pair.ref.tensor(prompt, name), pair.cand.tensor(prompt, name)


def _fixed(
    pair: Pair, prompt: Prompt, section: str, positions: str, wanted: tuple[int, ...] | None
) -> _Rows:
    """Rows over the prompt's own tokens, whose positions both sides state."""
    at_ref, at_cand = _tensor(pair, prompt.id, positions)
    place = f"prompt {prompt.id} {section}"
    topk = _topk(pair, prompt.id, section)
    if topk is None:
        ref, cand = _tensor(pair, prompt.id, section)
    else:
        ref, cand = topk[0].logits, topk[1].logits
    if (ref.shape != cand.shape and topk is None) or ref.shape[:1] != at_ref.shape:
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
    if topk is None and not targets.max() < ref.shape[1]:
        why = f"{place}: the prompt holds token {targets.max()}, the vocabulary {ref.shape[1]} ids"
        raise _UnpairedError(why)
    return _Rows(section, ref, cand, at_ref.astype(np.int32), targets, len(ref), topk)


def _topk(pair: Pair, prompt: str, section: str) -> tuple[TopKRows, TopKRows] | None:
    """Both sides' top-k rows, a side with full logits narrowed to the other's ids; None: both full."""
    held = [holds_topk(side, prompt, section) for side in (pair.ref, pair.cand)]
    if not any(held):
        return None
    for side, topk in zip((pair.ref, pair.cand), held, strict=True):
        if not topk and section not in side.names(prompt):
            why = f"prompt {prompt} holds no {section} in {side.label}; capture {side.label} anew with it"
            raise _UnpairedError(why)
    try:
        ref, cand = (
            read_topk(side, prompt, section) if topk else None
            for side, topk in zip((pair.ref, pair.cand), held, strict=True)
        )
        if ref is None and cand is not None:
            ref = narrowed(pair.ref.tensor(prompt, section), cand.ids)
        if cand is None and ref is not None:
            cand = narrowed(pair.cand.tensor(prompt, section), ref.ids)
    except InputError as error:
        why = f"prompt {prompt}: {error}"
        raise _UnpairedError(why) from error
    return None if ref is None or cand is None else (ref, cand)


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
    between = _between(prompt, rows)
    stats = between.low if between else row_statistics(ref, cand, targets=rows.targets)
    flips = ~stats.top1_agree & ~(stats.gap <= near_tie)
    worst_flip = int(np.argmax(np.where(flips, stats.gap, -1.0)))

    def worst(row: int, value: float) -> WorstRow:
        detail = _detail(ref[row], cand[row]) if rows.topk is None else _kept(rows.topk, row)
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
        **_highs(between, near_tie=near_tie),
    )


def _between(prompt: str, rows: _Rows) -> TopKStatistics | None:
    """Statistics between bounds where logits are top-k; None where they are full."""
    if rows.topk is None:
        return None
    try:
        return topk_statistics(*rows.topk, targets=rows.targets)
    except InputError as error:
        why = f"prompt {prompt} {rows.section}: {error}"
        raise _UnpairedError(why) from error


def _highs(between: TopKStatistics | None, *, near_tie: float) -> Mapping[str, Any]:
    if between is None:
        return {}
    return {
        "kl_high": between.kl_high,
        "flips_high": int(np.count_nonzero(~(between.gap_high <= near_tie))),
        "capped_high": int(np.count_nonzero(~(between.gap_high <= hard_cap(near_tie)))),
        "lacking": between.missing,
    }


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


def _kept(sides: tuple[TopKRows, TopKRows], row: int) -> str:
    """The likeliest kept ids of both sides with their probabilities."""
    firsts = []
    for label, side in zip(("ref", "cand"), sides, strict=True):
        at = int(np.argmax(side.logits[row]))
        p = np.exp(side.logits[row, at] - side.lse[row])
        firsts.append(f"{label} {side.ids[row, at]} (p {p:.4g})")
    return f"top-1 {', '.join(firsts)}; stored as top-k"


def _detail(ref: NDArray[Any], cand: NDArray[Any]) -> str:
    """``top-1 ref 97 (p 0.61), cand 32 (p 0.44); top-3 ref 97 32 10, cand 32 97 11``."""
    firsts, lists = [], []
    for side, logits in (("ref", ref), ("cand", cand)):
        logprobs = log_softmax(logits)
        order = np.argsort(-logprobs, kind="stable")[:TOP_SHOWN]
        firsts.append(f"{side} {order[0]} (p {np.exp(logprobs[order[0]]):.4g})")
        lists.append(f"{side} {' '.join(str(i) for i in order)}")
    return f"top-1 {', '.join(firsts)}; top-{TOP_SHOWN} {', '.join(lists)}"
