"""Logits stored as top-k, log-sum-exp, tail mass and row minimum: row statistics between bounds."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.errors import InputError
from validate.metrics._logit_values import BadLogits
from validate.numerics import NO_TARGET, RowStatistics, TopKRows, logsumexp, to_float64, topk_bounds
from validate.schema import Side

__all__ = ["TopKStatistics", "bad_topk", "holds_topk", "narrowed", "read_topk", "topk_statistics"]

Array = NDArray[np.float64]


class TopKStatistics(NamedTuple):
    """What two top-k captures prove of each row."""

    low: RowStatistics
    """Divergences and gaps at their lower bounds; NaN where a stored id would be needed."""
    kl_high: Array
    """Upper bound of KL(ref || cand), nats; inf where cand's row minimum is not stored."""
    gap_high: Array
    """Upper bound of the gap, nats; inf where ref's row minimum is not stored."""
    missing: int
    """Rows whose target id one side did not keep."""


PARTS = ("topk.ids", "topk.logits", "lse", "tail_mass")
"""What a section stored as top-k must hold, each below the section's name; ``row_min`` may be left
out, and costs the upper bound of KL."""


def holds_topk(side: Side, prompt: str, section: str) -> bool:
    """Whether a side holds a section's logits as top-k (docs/capture-format.md)."""
    return f"{section}.topk.ids" in side.names(prompt)


def read_topk(side: Side, prompt: str, section: str) -> TopKRows:
    """One side's top-k rows of a section.

    Raises:
        InputError: A part other than the row minimum is not stored.
    """
    lacking = [part for part in PARTS if f"{section}.{part}" not in side.names(prompt)]
    if lacking:
        msg = f"{side.label} holds {section}.topk.ids and no {section}.{lacking[0]}"
        raise InputError(msg)
    least = f"{section}.row_min"
    return TopKRows(
        ids=side.tensor(prompt, f"{section}.topk.ids").astype(np.int64),
        logits=to_float64(side.tensor(prompt, f"{section}.topk.logits")),
        lse=to_float64(side.tensor(prompt, f"{section}.lse")),
        tail_mass=to_float64(side.tensor(prompt, f"{section}.tail_mass")),
        row_min=to_float64(side.tensor(prompt, least)) if least in side.names(prompt) else None,
    )


def narrowed(logits: NDArray[Any], ids: NDArray[np.int64]) -> TopKRows:
    """Full logits on the ids that the other side kept, and on their own likeliest id beyond those.

    Args:
        logits: (rows, vocab), finite or -inf.
        ids: (rows, k) the other side's ids, within the vocabulary.
    """
    wide = to_float64(logits)
    rest = wide.copy()
    np.put_along_axis(rest, ids, -np.inf, axis=1)
    kept = np.concatenate([ids, np.argmax(rest, axis=1)[:, None]], axis=1)
    if ids.shape[1] == wide.shape[1]:
        kept = ids
    lse = logsumexp(wide)
    tail = np.exp(wide - lse[:, None])
    np.put_along_axis(tail, kept, 0.0, axis=1)
    return TopKRows(
        ids=kept,
        logits=np.take_along_axis(wide, kept, axis=1),
        lse=lse,
        tail_mass=np.clip(tail.sum(axis=1), 0.0, 1.0),
        row_min=wide.min(axis=1),
        top=False,
    )


def bad_topk(side: str, rows: TopKRows) -> BadLogits | None:
    """NaN and infinities among what a side stored; -inf is a masked id or an unknown minimum."""
    columns = [rows.logits, rows.lse[:, None], rows.tail_mass[:, None]]
    columns += [] if rows.row_min is None else [rows.row_min[:, None]]
    values = np.concatenate(columns, axis=1)
    nan, positive = np.isnan(values), np.isposinf(values)
    negative = np.zeros_like(nan)
    negative[:, rows.logits.shape[1]] = np.isneginf(rows.lse)
    found = nan | positive | negative
    if not found.any():
        return None
    row, column = (int(index[0]) for index in np.nonzero(found))
    return BadLogits(
        side=side,
        nan=int(np.count_nonzero(nan)),
        positive=int(np.count_nonzero(positive)),
        negative=int(np.count_nonzero(negative)),
        row=row,
        token=int(rows.ids[row, column]) if column < rows.ids.shape[1] else NO_TARGET,
    )


def topk_statistics(ref: TopKRows, cand: TopKRows, *, targets: NDArray[np.int64]) -> TopKStatistics:
    """Row statistics of two top-k captures, each bound by what was not stored.

    Args:
        ref: Reference rows.
        cand: Candidate rows at the same positions.
        targets: Token id that each row is to predict, or ``NO_TARGET``.

    Raises:
        InputError: As ``topk_bounds``: what a side stored does not go together.
    """
    there, back = topk_bounds(ref, cand), topk_bounds(cand, ref)
    rows = [_row(ref, cand, i, int(target)) for i, target in enumerate(targets)]
    columns = {name: np.array([getattr(row, name) for row in rows]) for name in _Row._fields}
    highs = columns.pop("gap_high")
    known = targets != NO_TARGET
    low = RowStatistics(
        kl=there.kl_low,
        kl_reverse=back.kl_low,
        tvd=there.tvd_low,
        dlogprob_target=columns["nll_ref"] - columns["nll_cand"],
        mask_mismatch=np.zeros(len(rows), dtype=np.int64),
        **columns,
    )
    missing = int(np.count_nonzero(np.isnan(low.dlogprob_target) & known))
    return TopKStatistics(low, there.kl_high, highs, missing)


class _Row(NamedTuple):
    """One row's statistics that ids alone decide; names as in ``RowStatistics``."""

    max_abs_dlogprob: float
    max_abs_dlogprob_id: int
    nll_ref: float
    nll_cand: float
    top1_agree: bool
    ties_ref: int
    ties_cand: int
    argmax_ref: int
    argmax_cand: int
    ref_margin: float
    gap: float
    margin_shift: float
    topk_overlap: float
    gap_high: float


def _row(ref: TopKRows, cand: TopKRows, row: int, target: int) -> _Row:
    left, right = _logprobs(ref, row), _logprobs(cand, row)
    tops = [[one for one in kept if kept[one] == max(kept.values())] for kept in (left, right)]
    common = [one for one in tops[0] if one in tops[1]]
    shared = [one for one in left if one in right]
    first = common[0] if common else max(tops[0], key=lambda one: right.get(one, -np.inf))
    second = common[0] if common else max(tops[1], key=lambda one: left.get(one, -np.inf))
    others = [one for one in left if one != first]
    runner = max(others, key=left.__getitem__) if others else first
    moves = {one: abs(right[one] - left[one]) for one in shared if np.isfinite(left[one])}
    farthest = max(moves, key=moves.__getitem__) if moves else first
    low, high = _gap(ref, row, left, left[first], second)
    shift = (
        (right[first] - left[first]) - (right[runner] - left[runner])
        if first in right and runner in right
        else np.nan
    )
    return _Row(
        max_abs_dlogprob=moves.get(farthest, 0.0),
        max_abs_dlogprob_id=farthest,
        nll_ref=-left.get(target, np.nan),
        nll_cand=-right.get(target, np.nan),
        top1_agree=bool(common),
        ties_ref=len(tops[0]),
        ties_cand=len(tops[1]),
        argmax_ref=first,
        argmax_cand=second,
        ref_margin=left[first] - left[runner],
        gap=0.0 if common else low,
        margin_shift=shift,
        topk_overlap=len(shared) / max(len(left), len(right)),
        gap_high=0.0 if common else high,
    )


def _logprobs(side: TopKRows, row: int) -> dict[int, float]:
    values = side.logits[row] - side.lse[row]
    return dict(zip(side.ids[row].tolist(), values.tolist(), strict=True))


def _gap(
    ref: TopKRows, row: int, kept: dict[int, float], first: float, other: int
) -> tuple[float, float]:
    """Bounds of ref's logprob of its first choice over that of another id."""
    if other in kept:
        return first - kept[other], first - kept[other]
    with np.errstate(divide="ignore"):
        most = min(kept.values()) if ref.top else float(np.log(ref.tail_mass[row]))
    least = -np.inf if ref.row_min is None else float(ref.row_min[row] - ref.lse[row])
    return float(np.fmax(first - most, 0.0)), first - least
