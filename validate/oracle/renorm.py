"""Filters of a probability row, in float64: top-k, top-p and min-p, each followed by the division.

Engines differ at the edges, so every edge with two conventions is a setting here. The kept
set and the division are apart: ``*_kept`` gives the mask, the filter of the same name
divides what is kept by its sum.

Declared behaviour, of every function:

- k >= vocab, p >= 1 and min_p <= 0 keep the whole row and divide it by its sum.
- p <= 0 keeps the maximum (and what ties with it); min_p >= 1 too.
- A row that sums to 0 gives zeros.
- A damaged row (an entry that is NaN, infinite or negative) keeps nothing, and gives NaN
  throughout (``damaged="nan"``) or zeros (``damaged="zeros"``, as the HIP kernels of sglang).
- Inputs are never written.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float64
from numpy.typing import NDArray

from validate.errors import InputError
from validate.oracle.records import Array

__all__ = [
    "Damaged",
    "LowK",
    "Mass",
    "Ties",
    "min_p",
    "min_p_kept",
    "top_k_kept",
    "top_k_renorm_prob",
    "top_p_kept",
    "top_p_renorm_prob",
]

Ties = Literal["all", "exactly_k"]
"""``all`` keeps every entry equal to the last one kept (flashinfer, sglang on HIP, aiter);
``exactly_k`` keeps no more than needed, the lowest index first (``torch.topk``, sort)."""
LowK = Literal["clamp", "off"]
"""What k <= 0 means: ``clamp`` to 1 (sglang on HIP), or ``off``, the whole row (vLLM)."""
Mass = Literal["relative", "absolute", "discarded"]
"""What the kept mass must reach: p times the row's sum (flashinfer, vocab >= 2048), p itself
(flashinfer, vocab < 2048), or the row's sum less 1 - p, and strictly more than that (HIP)."""
Damaged = Literal["nan", "zeros"]

Mask = NDArray[np.bool_]
PerRow = int | float | Sequence[int | float] | NDArray[Any]
"""A parameter: one value a row, or one for all."""


def top_k_renorm_prob(
    probs: Float64[Array, "rows vocab"],
    top_k: PerRow,
    *,
    ties: Ties = "all",
    low_k: LowK = "clamp",
    damaged: Damaged = "nan",
    floor: float = 0.0,
) -> Float64[Array, "rows vocab"]:
    """Keep the k largest of each row and divide them by their sum.

    Args:
        probs: Probabilities, float64; rows need not sum to 1.
        top_k: k of each row, [rows], or one for all.
        ties: What becomes of entries equal to the k-th largest.
        low_k: What k <= 0 means.
        damaged: What a row with NaN, infinity or a negative entry gives.
        floor: Least divisor; flashinfer and aiter have 1e-8.

    Returns:
        Rows that sum to 1, or to 0 where the row does.

    Raises:
        InputError: The shapes do not fit or k is no whole number.

    Source:
        flashinfer ``include/flashinfer/topk.cuh`` (``RadixTopKRenormProb``: keeps every
        p >= the k-th largest); sglang ``_dflash_top_k_renorm_prob`` (``torch.topk``, exactly k).

    Example:
        >>> row = np.array([[0.4, 0.3, 0.3]])
        >>> top_k_renorm_prob(row, 2, ties="all").tolist()
        [[0.4, 0.3, 0.3]]
        >>> top_k_renorm_prob(row, 2, ties="exactly_k").round(4).tolist()
        [[0.5714, 0.4286, 0.0]]
    """
    kept = top_k_kept(probs, top_k, ties=ties, low_k=low_k)
    return _divided(probs, kept, damaged=damaged, floor=floor)


def top_p_renorm_prob(
    probs: Float64[Array, "rows vocab"],
    top_p: PerRow,
    *,
    ties: Ties = "all",
    mass: Mass = "relative",
    damaged: Damaged = "nan",
    floor: float = 0.0,
) -> Float64[Array, "rows vocab"]:
    """Keep the fewest largest entries whose mass reaches p, and divide them by their sum.

    Args:
        probs: Probabilities, float64; rows need not sum to 1.
        top_p: p of each row, [rows], or one for all.
        ties: What becomes of entries equal to the last one kept.
        mass: What the kept mass must reach.
        damaged: What a row with NaN, infinity or a negative entry gives.
        floor: Least divisor.

    Returns:
        Rows that sum to 1, or to 0 where the row does.

    Raises:
        InputError: The shapes do not fit or p is NaN.

    Source:
        flashinfer ``csrc/renorm.cu``; sglang ``kernels/ops/sampling/renorm.py`` for
        ``discarded``; Holtzman et al. (arXiv 1904.09751), section 3.1.

    Example:
        >>> top_p_renorm_prob(np.array([[0.5, 0.3, 0.2]]), 0.6).round(4).tolist()
        [[0.625, 0.375, 0.0]]
    """
    kept = top_p_kept(probs, top_p, ties=ties, mass=mass)
    return _divided(probs, kept, damaged=damaged, floor=floor)


def min_p(
    probs: Float64[Array, "rows vocab"], min_p: PerRow, *, damaged: Damaged = "nan"
) -> Float64[Array, "rows vocab"]:
    """Keep entries of at least ``min_p`` times the row's largest, and divide them by their sum.

    Args:
        probs: Probabilities, float64; threshold and values come from this one row.
        min_p: Share of the largest, of each row, [rows], or one for all.
        damaged: What a row with NaN, infinity or a negative entry gives.

    Returns:
        Rows that sum to 1, or to 0 where the row does.

    Raises:
        InputError: The shapes do not fit or min_p is NaN.

    Source:
        Nguyen et al. (arXiv 2407.01082), section 3; sglang ``layers/sampler.py``.

    Example:
        >>> min_p(np.array([[0.5, 0.3, 0.2]]), 0.5).round(4).tolist()
        [[0.625, 0.375, 0.0]]
    """
    return _divided(probs, min_p_kept(probs, min_p), damaged=damaged, floor=0.0)


def top_k_kept(
    probs: Float64[Array, "rows vocab"],
    top_k: PerRow,
    *,
    ties: Ties = "all",
    low_k: LowK = "clamp",
) -> Bool[Mask, "rows vocab"]:
    """Which entries top-k keeps.

    Raises:
        InputError: The shapes do not fit or k is no whole number.
    """
    wanted = _per_row(probs, top_k, "top_k")
    if np.any(wanted != np.floor(wanted)):
        msg = f"top_k holds {wanted[wanted != np.floor(wanted)][0]}: k must be a whole number"
        raise InputError(msg)
    kept = np.zeros(probs.shape, bool)
    vocab = probs.shape[1]
    for row, k in enumerate(wanted):
        if _is_damaged(probs[row]):
            continue
        if k >= vocab or (k <= 0 and low_k == "off"):
            kept[row] = True
        else:
            kept[row] = _first(probs[row], int(np.maximum(k, 1)), ties)
    return kept


def top_p_kept(
    probs: Float64[Array, "rows vocab"],
    top_p: PerRow,
    *,
    ties: Ties = "all",
    mass: Mass = "relative",
) -> Bool[Mask, "rows vocab"]:
    """Which entries top-p keeps.

    Raises:
        InputError: The shapes do not fit or p is NaN.
    """
    kept = np.zeros(probs.shape, bool)
    for row, p in enumerate(np.clip(_per_row(probs, top_p, "top_p"), 0.0, 1.0)):
        if _is_damaged(probs[row]) or len(probs[row]) == 0:
            continue
        if p == 1.0:
            kept[row] = True
            continue
        falling = np.sort(probs[row])[::-1]
        reached = np.cumsum(falling)
        total = float(np.sum(probs[row]))
        if mass == "discarded":
            enough = reached > total - (1.0 - p)
        else:
            enough = reached >= (p * total if mass == "relative" else p)
        count = int(np.argmax(enough)) + 1 if np.any(enough) else len(falling)
        kept[row] = _first(probs[row], count, ties)
    return kept


def min_p_kept(probs: Float64[Array, "rows vocab"], min_p: PerRow) -> Bool[Mask, "rows vocab"]:
    """Which entries min-p keeps.

    Raises:
        InputError: The shapes do not fit or min_p is NaN.
    """
    kept = np.zeros(probs.shape, bool)
    for row, share in enumerate(np.clip(_per_row(probs, min_p, "min_p"), 0.0, 1.0)):
        if not _is_damaged(probs[row]) and len(probs[row]) > 0:
            kept[row] = probs[row] >= share * np.max(probs[row])
    return kept


def _first(row: Array, count: int, ties: Ties) -> Mask:
    """The ``count`` largest of one row; the lowest index first among equals."""
    least = np.partition(row, len(row) - count)[len(row) - count]
    if ties == "all":
        kept: Mask = row >= least
        return kept
    chosen: Mask = row > least
    chosen[np.flatnonzero(row == least)[: count - np.count_nonzero(chosen)]] = True
    return chosen


def _is_damaged(row: Array) -> bool:
    return bool(np.any(~np.isfinite(row)) or np.any(row < 0))


def _divided(probs: Array, kept: Mask, *, damaged: Damaged, floor: float) -> Array:
    """Kept entries over their sum, all others 0."""
    out = np.zeros(probs.shape)
    for row in range(len(probs)):
        if _is_damaged(probs[row]):
            out[row] = np.nan if damaged == "nan" else 0.0
            continue
        total = float(np.sum(probs[row][kept[row]]))
        if total > 0.0:
            out[row] = np.where(kept[row], probs[row], 0.0) / np.maximum(total, floor)
    return out


def _per_row(probs: Array, value: PerRow, name: str) -> Array:
    """One float64 a row.

    Raises:
        InputError: Not one value or one a row, or NaN.
    """
    given = np.asarray(value, np.float64)
    if given.shape not in ((), (len(probs),)):
        msg = f"{name} has shape {given.shape} for {len(probs)} rows: one value or one a row"
        raise InputError(msg)
    if np.any(np.isnan(given)):
        msg = f"{name} holds NaN"
        raise InputError(msg)
    return np.broadcast_to(given, (len(probs),))
