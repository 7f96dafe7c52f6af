"""Drawing one id from a row, and the filters of a request put together, in float64."""

from typing import Literal

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from validate.oracle.records import Array
from validate.oracle.renorm import (
    LowK,
    Mass,
    PerRow,
    Ties,
    min_p as keep_min_p,
    top_k_kept,
    top_k_renorm_prob,
    top_p_kept,
    top_p_renorm_prob,
)

__all__ = ["Order", "draw", "filtered"]

Order = Literal["top_k_first", "joint"]
"""``top_k_first``: top-p counts the mass of the row that top-k left, divided anew (the order
flashinfer calls ``top_k_first``); ``joint``: top-k and top-p both look at the row as it came,
and an entry stays when both keep it."""

Ids = NDArray[np.int64]


def draw(weights: Float64[Array, "rows vocab"], uniforms: Float64[Array, " rows"]) -> Ids:
    """Inversion of the cumulative sum: the first id whose cumulative weight exceeds ``u * sum``.

    Args:
        weights: Not negative, finite; rows need not sum to 1.
        uniforms: One a row, in [0, 1).

    Returns:
        One id a row, int64. An id of weight 0 is never drawn, but a row that sums to 0
        gives the last id.

    Source:
        flashinfer ``include/flashinfer/sampling.cuh`` (``DeviceSamplingFromProb``: inclusive sum
        greater than u); sglang ``reject_sampling.py`` (empty row: last id).

    Example:
        >>> draw(np.array([[0.25, 0.0, 0.75]] * 3), np.array([0.2, 0.25, 0.9])).tolist()
        [0, 2, 2]
    """
    through = np.cumsum(weights, axis=1)
    beyond = through > (uniforms * through[:, -1])[:, None]
    last = weights.shape[1] - 1
    ids: Ids = np.where(beyond.any(axis=1), np.argmax(beyond, axis=1), last).astype(np.int64)
    return ids


def filtered(
    probs: Float64[Array, "rows vocab"],
    *,
    top_k: PerRow,
    top_p: PerRow,
    min_p: PerRow,
    order: Order = "top_k_first",
    ties: Ties = "all",
    low_k: LowK = "off",
    mass: Mass = "relative",
) -> Float64[Array, "rows vocab"]:
    """Top-k, top-p and min-p of one request a row; the law that a sampler has to draw from.

    Min-p comes last: its threshold and its values are of one row, the one that the other two
    left, so it does not matter whether that row was divided.

    Args:
        probs: Probabilities, float64; not written.
        top_k: k of each row or one for all; the vocabulary or more (or less than 1) is off.
        top_p: p of each row or one for all; 1 is off.
        min_p: Share of the largest, of each row or one for all; 0 is off.
        order: What top-p counts.
        ties: What becomes of entries equal to the last one kept.
        low_k: What k <= 0 means.
        mass: What the kept mass must reach.

    Returns:
        Rows that sum to 1, or to 0 where the row does.

    Raises:
        InputError: The shapes do not fit, or a parameter is NaN.

    Source:
        sglang ``layers/sampler.py``; flashinfer ``top_k_top_p_sampling_from_probs``
        (``filter_apply_order``); sgl-project/sglang#36173 shows both orders in one engine.

    Example:
        >>> row = np.array([[0.35, 0.25, 0.2, 0.05, 0.15]])
        >>> [
        ...     int((filtered(row, top_k=4, top_p=0.82, min_p=0.0, order=order) > 0).sum())
        ...     for order in ("top_k_first", "joint")
        ... ]
        [3, 4]
    """
    if order == "joint":
        both = top_k_kept(probs, top_k, ties=ties, low_k=low_k)
        both &= top_p_kept(probs, top_p, ties=ties, mass=mass)
        left = np.where(both, probs, 0.0)
    else:
        first = top_k_renorm_prob(probs, top_k, ties=ties, low_k=low_k)
        left = top_p_renorm_prob(first, top_p, ties=ties, mass=mass)
    return keep_min_p(left, min_p)
