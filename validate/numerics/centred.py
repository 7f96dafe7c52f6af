"""Row-wise error of logits after their free shift is taken out."""

from typing import Any

import numpy as np
from jaxtyping import Float, Float64
from numpy.typing import NDArray

from validate.errors import InputError
from validate.numerics.formats import to_float64

__all__ = ["centred_rms"]

BLOCK_VALUES = 1 << 18
"""Values of each side that are worked on at once."""


def centred_rms(
    ref: Float[NDArray[Any], "rows vocab"], cand: Float[NDArray[Any], "rows vocab"]
) -> Float64[NDArray[Any], " rows"]:
    """Root mean square of ``cand - ref`` over the vocabulary, less its mean, for each row.

    A constant added to a row of logits changes no probability, so it is no
    error: the mean difference is taken out. Every id counts alike; weighted by
    probability the same quantity would be ``sqrt(2 KL)`` to second order.

    Args:
        ref: Reference logits (here often the oracle's), any float dtype, shape (rows, vocab).
        cand: Candidate logits at the same positions, same shape.

    Returns:
        One error per row in logits (nats). Ids that are -inf on both sides are left out; a row
        with fewer than two ids left has error 0.

    Raises:
        InputError: The shapes differ, a value is NaN or +inf, or an id is -inf on one side alone.
    """
    if ref.shape != cand.shape:
        msg = f"centred_rms: ref has shape {ref.shape}, cand has shape {cand.shape}"
        raise InputError(msg)
    step = max(1, BLOCK_VALUES // max(ref.shape[1], 1))
    parts = [
        _block(to_float64(ref[start : start + step]), to_float64(cand[start : start + step]), start)
        for start in range(0, len(ref), step)
    ]
    return np.concatenate([np.zeros(0), *parts])


def _block(ref: NDArray[np.float64], cand: NDArray[np.float64], start: int) -> NDArray[np.float64]:
    masked = np.isneginf(ref) & np.isneginf(cand)
    with np.errstate(invalid="ignore"):
        err = cand - ref
    err[masked] = 0.0
    if not np.isfinite(err).all():
        row, column = (int(i[0]) for i in np.nonzero(~np.isfinite(err)))
        msg = (
            f"centred_rms: row {start + row} id {column} is {ref[row, column]} in ref and "
            f"{cand[row, column]} in cand; settle non-finite values first"
        )
        raise InputError(msg)
    left = np.maximum(np.count_nonzero(~masked, axis=1), 1)
    err -= (err.sum(axis=1) / left)[:, None]
    err[masked] = 0.0
    rms: NDArray[np.float64] = np.sqrt((err * err).sum(axis=1) / left)
    return rms
