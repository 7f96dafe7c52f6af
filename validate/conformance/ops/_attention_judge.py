"""Judging one attention result: non-finite first, then elements, rows, the bulk and the LSE."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from validate.conformance.ops._attention_truth import Truth
from validate.conformance.records import Breach

__all__ = ["BULK", "CLAUSES", "ROW", "differing", "judge", "under"]

Array = np.ndarray

ROW = 6.0
"""Limit on a row and head, in standard deviations of the error model."""
BULK = 3.0
"""Limit on everything together, likewise; many rows average out."""

CLAUSES: Mapping[str, str] = {
    "finite": "Finite operands give finite outputs; only a row that sees no key has an LSE of -inf.",
    "empty": "A row that sees no key has output 0 and LSE -inf, in any batch.",
    "out": "Every output element lies within the error model round the float64 oracle.",
    "out-row": "The error of each row and head, as a length, lies within 6 deviations of the model.",
    "out-bulk": "The error of all rows together, as a length, lies within 3 deviations of the model.",
    "lse": "LSE is float32, the natural log of the sum of exponentials of the scaled scores, of the "
    "same head and row as the output (one unpad rule for both).",
}
"""Clauses that ``judge`` speaks of."""


def _names(mask: Any) -> dict[str, tuple[int, ...]]:
    """Rows and heads with a fault in them, from a mask [rows, heads]."""
    return {
        "row": tuple(int(i) for i in np.flatnonzero(mask.any(axis=1))),
        "head": tuple(int(i) for i in np.flatnonzero(mask.any(axis=0))),
    }


def _place(mask: Array, size: Array) -> dict[str, int]:
    """The worst place by ``size``, among those in ``mask``; axes row, head and maybe column."""
    at = np.unravel_index(int(np.argmax(np.where(mask, size, -1.0))), mask.shape)
    return {
        name: int(i) for name, i in zip(("row", "head", "column")[: mask.ndim], at, strict=True)
    }


def _over(error: Array, limit: Array) -> Array:
    """Error over limit; infinite where the limit is 0 and the error is not."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(limit > 0, error / np.where(limit > 0, limit, 1.0), np.inf)
    return np.where(error == 0.0, 0.0, ratio)


def judge(out: Array, lse: Array, truth: Truth, *, call: str = "") -> tuple[Breach, ...]:
    """Clauses that one result breaks.

    Args:
        out: [rows, heads, value] in the dtype it was returned in.
        lse: [rows, heads], float32.
        truth: What they must be, with limits.
        call: Which of a sweep point's calls this was, for the message; empty for the first.

    Returns:
        Nothing when every clause holds. Where something is not finite, or not empty
        that should be, only that is told: an error norm over it would say nothing.
    """
    out = out.astype(np.float64)
    lse = lse.astype(np.float64)
    said = f" ({call})" if call else ""
    dead = truth.lse == -np.inf
    early = _not_finite(out, lse, dead, said) + _not_empty(out, lse, dead, said)
    if early:
        return early
    error = np.abs(out - truth.out)
    found = _elements(error, out, truth, said)
    found += _rows(error, truth, said)
    found += _bulk(error, truth, said)
    live = ~dead
    off = np.where(live, np.abs(np.where(live, lse, 0.0) - np.where(live, truth.lse, 0.0)), 0.0)
    bad = ~(off <= truth.lse_limit)
    if bad.any():
        at = _place(bad, _over(off, truth.lse_limit))
        place = (at["row"], at["head"])
        ratio = float(_over(off, truth.lse_limit)[place])
        what = (
            f"LSE off in {int(bad.sum())} of {bad.size} rows and heads{said}; worst at row "
            f"{at['row']} head {at['head']}: {lse[place]:.6g}, oracle {truth.lse[place]:.6g}, "
            f"|error| {off[place]:.4g} nats, limit {truth.lse_limit[place]:.4g}"
            f"{_convention(lse, truth.lse, live)}"
        )
        found += (Breach(clause="lse", what=what, at=at, wrong=_names(bad), ratio=ratio),)
    return found


def _convention(lse: Array, truth: Array, live: Array) -> str:
    """A word on the log base when the ratio of all values says base 2."""
    known = live & (np.abs(truth) > 0.1)  # noqa: PLR2004  a ratio of two small numbers says little
    if not known.any():
        return ""
    ratio = lse[known] / truth[known]
    base_2 = np.max(np.abs(ratio * np.log(2.0) - 1.0)) <= 0.01  # noqa: PLR2004
    return "; every value is 1/ln 2 times the oracle's: this is a base-2 log" if base_2 else ""


def _not_finite(out: Array, lse: Array, dead: Array, said: str) -> tuple[Breach, ...]:
    bad_out = ~np.isfinite(out).all(axis=-1)
    bad_lse = ~(np.isfinite(lse) | (dead & (lse == -np.inf)))
    bad = (bad_out | bad_lse) & ~dead
    if not bad.any():
        return ()
    at = _place(bad, np.ones(bad.shape))
    place = (at["row"], at["head"])
    what = (
        f"{int((bad_out & ~dead).sum())} outputs and {int((bad_lse & ~dead).sum())} LSE of "
        f"{bad.size} rows and heads are not finite{said}; first at row {at['row']} head "
        f"{at['head']}: output {out[place][0]:.4g}, LSE {lse[place]:.4g}"
    )
    return (Breach(clause="finite", what=what, at=at, wrong=_names(bad)),)


def _not_empty(out: Array, lse: Array, dead: Array, said: str) -> tuple[Breach, ...]:
    bad = dead & ~((out == 0.0).all(axis=-1) & (lse == -np.inf))
    if not bad.any():
        return ()
    at = _place(bad, np.ones(bad.shape))
    place = (at["row"], at["head"])
    what = (
        f"{int(bad.sum())} of {int(dead.sum())} rows and heads without a key are not empty{said}; "
        f"first at row {at['row']} head {at['head']}: output {out[place][0]:.4g} (expected 0), "
        f"LSE {lse[place]:.4g} (expected -inf)"
    )
    return (Breach(clause="empty", what=what, at=at, wrong=_names(bad)),)


def _elements(error: Array, out: Array, truth: Truth, said: str) -> tuple[Breach, ...]:
    bad = ~(error <= truth.element)
    if not bad.any():
        return ()
    ratio = _over(error, truth.element)
    at = _place(bad, ratio)
    place = (at["row"], at["head"], at["column"])
    what = (
        f"{int(bad.sum())} of {bad.size} elements outside the bound{said}; worst at row {at['row']} "
        f"head {at['head']} column {at['column']}: {out[place]:.6g}, oracle {truth.out[place]:.6g}, "
        f"|error| {error[place]:.4g}, limit {truth.element[place]:.4g}"
    )
    wrong = _names(bad.any(axis=-1))
    return (Breach(clause="out", what=what, at=at, wrong=wrong, ratio=float(ratio[place])),)


def _rows(error: Array, truth: Truth, said: str) -> tuple[Breach, ...]:
    length = np.sqrt(np.square(error).sum(axis=-1))
    limit = ROW * np.sqrt(truth.variance.sum(axis=-1))
    bad = ~(length <= limit)
    if not bad.any():
        return ()
    ratio = _over(length, limit)
    at = _place(bad, ratio)
    place = (at["row"], at["head"])
    size = float(np.sqrt(np.square(truth.out[place]).sum()))
    what = (
        f"{int(bad.sum())} of {bad.size} rows and heads outside {ROW:g} deviations{said}; worst at "
        f"row {at['row']} head {at['head']}: error length {length[place]:.4g}, limit "
        f"{limit[place]:.4g}, output length {size:.4g}"
    )
    return (
        Breach(clause="out-row", what=what, at=at, wrong=_names(bad), ratio=float(ratio[place])),
    )


def _bulk(error: Array, truth: Truth, said: str) -> tuple[Breach, ...]:
    length = float(np.sqrt(np.square(error).sum()))
    limit = BULK * float(np.sqrt(truth.variance.sum()))
    if length <= limit:
        return ()
    size = float(np.sqrt(np.square(truth.out).sum()))
    what = (
        f"error length of all rows {length:.4g}, limit {limit:.4g}{said}; relative to the oracle "
        f"{length / size if size else float('inf'):.4g}"
    )
    ratio = length / limit if limit else float("inf")
    return (Breach(clause="out-bulk", what=what, ratio=ratio),)


def differing(
    clause: str, first: Mapping[str, Array], second: Mapping[str, Array], what: str
) -> tuple[Breach, ...]:
    """A breach where two results of [rows, heads, ...] differ in any bit; NaN equals itself."""
    masks = []
    for name, one in first.items():
        bits = f"u{one.dtype.itemsize}"
        other = second[name]
        unlike = np.ascontiguousarray(one).view(bits) != np.ascontiguousarray(other).view(bits)
        masks.append(unlike.reshape(*unlike.shape[:2], -1).any(axis=-1))
    bad = np.logical_or.reduce(masks)
    if not bad.any():
        return ()
    at = _place(bad, np.ones(bad.shape))
    told = (
        f"{what}: bits differ in {int(bad.sum())} of {bad.size} rows and heads, the first at row "
        f"{at['row']} head {at['head']}"
    )
    return (Breach(clause=clause, what=told, at=at, wrong=_names(bad)),)


def under(clause: str, breaches: tuple[Breach, ...]) -> tuple[Breach, ...]:
    """The same breaches under the clause of the relation that showed them."""
    return tuple(replace(one, clause=clause, what=f"{one.clause}: {one.what}") for one in breaches)
