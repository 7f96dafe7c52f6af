"""One block of rows in float64; a compiled kernel may replace ``row_block`` as a whole."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Ids = NDArray[np.int64]

SMALL = 0.5
"""Below this |d| the excess is a series, above it a difference of exponentials."""
FAR = 30.0
"""Beyond this |d| an exponential of it could overflow; p or q is then used instead."""


def row_block(ref: Values, cand: Values, targets: Ids, top_k: int) -> dict[str, NDArray[Any]]:
    """Every statistic of ``RowStatistics`` for finite-topped rows; shapes are checked before.

    Args:
        ref: float64 logits, shape (rows, vocab), -inf allowed.
        cand: The same for the candidate.
        targets: int64 ids or -1, shape (rows).
        top_k: Between 1 and vocab.

    Returns:
        Arrays of shape (rows) by field name.
    """
    top_ref, top_cand = ref.max(axis=1), cand.max(axis=1)
    p, lse_ref = _normalise(ref, top_ref)
    q, lse_cand = _normalise(cand, top_cand)
    d, mask_mismatch = _log_ratio(ref, cand, lse_ref - lse_cand)
    kl, kl_reverse = _divergences(p, q, d)
    np.abs(d, out=d)
    worst = d.argmax(axis=1)
    every = np.arange(len(ref))
    np.subtract(p, q, out=p)
    return {
        "kl": kl,
        "kl_reverse": kl_reverse,
        "tvd": 0.5 * np.abs(p, out=p).sum(axis=1),
        "max_abs_dlogprob": d[every, worst],
        "max_abs_dlogprob_id": worst.astype(np.int64),
        "mask_mismatch": mask_mismatch,
        **_targets(ref, cand, targets, lse_ref, lse_cand),
        **_top1(ref, cand, top_ref, top_cand),
        **_topk(ref, cand, top_k),
    }


def _normalise(logits: Values, top: Values) -> tuple[Values, Values]:
    mass = logits - top[:, None]
    np.exp(mass, out=mass)
    total = mass.sum(axis=1)
    mass /= total[:, None]
    return mass, top + np.log(total)


def _log_ratio(ref: Values, cand: Values, dlse: Values) -> tuple[Values, Ids]:
    """``ln p - ln q``: 0 where both are masked, +inf or -inf where one is."""
    if np.isneginf(ref.min()) or np.isneginf(cand.min()):
        masked_ref, masked_cand = np.isneginf(ref), np.isneginf(cand)
        with np.errstate(invalid="ignore"):
            d = ref - cand
        d -= dlse[:, None]
        d[masked_ref & masked_cand] = 0.0
        return d, np.count_nonzero(masked_ref != masked_cand, axis=1).astype(np.int64)
    d = ref - cand
    d -= dlse[:, None]
    return d, np.zeros(len(ref), dtype=np.int64)


def _divergences(p: Values, q: Values, d: Values) -> tuple[Values, Values]:
    """Sums of ``p (e^-d - 1 + d)`` and ``q (e^d - 1 - d)``; the excesses are cosh-1 -+ (sinh-d)."""
    far = np.abs(d) >= SMALL
    some_far = bool(far.any())
    near = np.where(far, 0.0, d) if some_far else d
    square = near * near
    even = _series(square, (182.0, 132.0, 90.0, 56.0, 30.0, 12.0))
    even *= square
    even *= 0.5
    odd = _series(square, (156.0, 110.0, 72.0, 42.0, 20.0))
    odd *= square
    odd *= near
    odd /= 6.0
    forward, backward = even - odd, even
    backward += odd
    forward *= p
    backward *= q
    if some_far:
        forward[far] = _excess(p[far], q[far], d[far])
        backward[far] = _excess(q[far], p[far], -d[far])
    return forward.sum(axis=1), backward.sum(axis=1)


def _series(square: Values, ratios: tuple[float, ...]) -> Values:
    """``1 + s/r_n (1 + s/r_(n-1) (...))`` from the innermost ratio outwards."""
    total = np.ones_like(square)
    for ratio in ratios:
        total *= square
        total /= ratio
        total += 1.0
    return total


def _excess(p: Values, q: Values, d: Values) -> Values:
    """``p (e^-d - 1 + d)`` for |d| >= SMALL; q where p is masked, inf where q is masked."""
    inside = np.clip(d, -FAR, None)
    with np.errstate(invalid="ignore"):
        near = p * (np.expm1(-inside) + inside)
        beyond = q - p + p * d
    terms: Values = np.where(d >= -FAR, near, beyond)
    terms[np.isneginf(d)] = q[np.isneginf(d)]
    terms[np.isposinf(d)] = np.inf
    return terms


def _targets(
    ref: Values, cand: Values, targets: Ids, lse_ref: Values, lse_cand: Values
) -> dict[str, NDArray[Any]]:
    every, known = np.arange(len(ref)), targets >= 0
    logit_ref, logit_cand = ref[every, targets], cand[every, targets]
    with np.errstate(invalid="ignore"):
        difference = (logit_cand - logit_ref) - (lse_cand - lse_ref)
    return {
        "nll_ref": np.where(known, lse_ref - logit_ref, np.nan),
        "nll_cand": np.where(known, lse_cand - logit_cand, np.nan),
        "dlogprob_target": np.where(known, difference, np.nan),
    }


def _top1(ref: Values, cand: Values, top_ref: Values, top_cand: Values) -> dict[str, NDArray[Any]]:
    maxima_ref, maxima_cand = ref == top_ref[:, None], cand == top_cand[:, None]
    ties_ref, ties_cand = maxima_ref.sum(axis=1), maxima_cand.sum(axis=1)
    best_ref = _pick(maxima_ref, ties_ref, cand)
    best_cand = _pick(maxima_cand, ties_cand, ref)
    every = np.arange(len(ref))
    gap = top_ref - ref[every, best_cand]
    return {
        "top1_agree": (maxima_ref & maxima_cand).any(axis=1),
        "ties_ref": ties_ref.astype(np.int64),
        "ties_cand": ties_cand.astype(np.int64),
        "argmax_ref": best_ref,
        "argmax_cand": best_cand,
        "gap": gap,
        "margin_shift": _margin_shift(ref, cand, best_ref),
    }


def _pick(maxima: NDArray[np.bool_], ties: Ids, other: Values) -> Ids:
    """First maximum of each row; of tied ones the first that the other side rates highest."""
    best: Ids = maxima.argmax(axis=1).astype(np.int64)
    tied = np.flatnonzero(ties > 1)
    if tied.size:
        rated = np.where(maxima[tied], other[tied], -np.inf)
        highest = rated.max(axis=1)
        pick = (maxima[tied] & (rated == highest[:, None])).argmax(axis=1)
        best[tied] = pick
    return best


def _margin_shift(ref: Values, cand: Values, first: Ids) -> Values:
    """Change from ref to cand of the logprob of ref's first choice over its second."""
    every = np.arange(len(ref))
    rest = ref.copy()
    rest[every, first] = -np.inf
    second = rest.argmax(axis=1)
    other = rest[every, second]
    with np.errstate(invalid="ignore"):
        shift = (cand[every, first] - ref[every, first]) - (cand[every, second] - other)
    shift[np.isneginf(other)] = 0.0  # one id is left in ref
    settled: Values = np.nan_to_num(shift, nan=np.inf, posinf=np.inf, neginf=-np.inf)
    return settled


def _topk(ref: Values, cand: Values, top_k: int) -> dict[str, NDArray[Any]]:
    """Overlap of the top-k sets, as great as the order of ties allows, and ref's margin."""
    kept = min(max(top_k, 2), ref.shape[1])
    head_ref, head_cand = _head(ref, kept), _head(cand, kept)
    sure_ref, tied_ref, room_ref = _sets(ref, head_ref[:, top_k - 1], top_k)
    sure_cand, tied_cand, room_cand = _sets(cand, head_cand[:, top_k - 1], top_k)
    both = np.count_nonzero(sure_ref & sure_cand, axis=1)
    first = np.minimum(np.count_nonzero(sure_ref & tied_cand, axis=1), room_cand)
    second = np.minimum(np.count_nonzero(tied_ref & sure_cand, axis=1), room_ref)
    third = np.count_nonzero(tied_ref & tied_cand, axis=1)
    third = np.minimum(third, np.minimum(room_cand - first, room_ref - second))
    usable = np.isfinite(head_ref[:, :top_k]) | np.isfinite(head_cand[:, :top_k])
    size = usable.sum(axis=1)
    alone = np.full(len(ref), np.inf)
    margin = head_ref[:, 0] - head_ref[:, 1] if kept > 1 else alone
    return {"topk_overlap": (both + first + second + third) / size, "ref_margin": margin}


def _head(logits: Values, kept: int) -> Values:
    """The ``kept`` greatest values of each row, descending."""
    head: Values = np.partition(logits, logits.shape[1] - kept, axis=1)[:, -kept:]
    head.sort(axis=1)
    return head[:, ::-1]


def _sets(
    logits: Values, last: Values, top_k: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], Ids]:
    """Ids surely in the top k, ids tied for its last places, and how many places those share."""
    sure = logits > last[:, None]
    tied = (logits == last[:, None]) & np.isfinite(last)[:, None]
    return sure, tied, top_k - np.count_nonzero(sure, axis=1)
