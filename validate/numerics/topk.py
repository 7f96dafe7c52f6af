"""What a top-k capture still proves: bounds of KL and TVD from k logits, log-sum-exp and tail."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray
from scipy import special

from validate.errors import InputError
from validate.numerics.formats import to_float64

__all__ = ["TopKBounds", "TopKRows", "topk_bounds"]

Row = NDArray[np.float64]

SLACK = 1e-5
"""How far kept mass and tail may be from 1 together: a log-sum-exp of 20 rounded to float32."""
TINY = 5e-324
"""Stands in for a rest that underflowed to 0: its logarithm is finite and no larger than the true one
can be small."""
NEAR = 1.0
"""|ln p - ln q| up to which the second-order form of the KL term is the more accurate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopKRows:
    """One side's rows: the k likeliest ids, and what is known of all others together.

    Shapes are checked by ``topk_bounds``, with a message that names the side.
    """

    ids: NDArray[Any]
    """Token ids, shape (rows, k); each at most once in a row."""
    logits: NDArray[Any]
    """Their raw logits, same shape; -inf: masked."""
    lse: NDArray[Any]
    """Log-sum-exp over the whole vocabulary, shape (rows)."""
    tail_mass: NDArray[Any]
    """Probability of all ids left out together, in [0, 1]."""
    row_min: NDArray[Any] | None = None
    """Smallest logit of the row over the whole vocabulary; None: not stored."""
    top: bool = True
    """No id left out has a greater logit than any kept one. False for an id set that the other side
    chose: then only the tail as a whole bounds an id that was left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopKBounds:
    """One entry per row in each field; natural logarithms, nats."""

    kl_low: Float64[NDArray[Any], " rows"]
    """KL(ref || cand) of the coarsened laws: shared ids one by one, all others as one."""
    kl_high: Float64[NDArray[Any], " rows"]
    """No law that fits both rows has a greater KL(ref || cand); inf without cand's row minimum."""
    tvd_low: Float64[NDArray[Any], " rows"]
    """Total variation of the coarsened laws, in [0, 1]."""
    tvd_high: Float64[NDArray[Any], " rows"]
    """The same as if the others shared no probability, in [0, 1]."""


def topk_bounds(ref: TopKRows, cand: TopKRows) -> TopKBounds:
    """Bound KL(ref || cand) and TVD of each row from top-k captures of both sides.

    Tells what can be said of the whole vocabulary when only a part of it was stored. The two
    sides may have kept different ids and different k; best is one shared id set, where the
    bounds are as close as the tail is small.

    Lower bounds: merging ids never raises a divergence. Upper bound of KL: of ids not shared,
    ref's own part of the sum is at most p ln p where p is known and tail * ln(the most that one id can
    have) where it is not, and cand gives each at least exp(row_min - lse).

    Args:
        ref: Reference rows.
        cand: Candidate rows at the same positions.

    Returns:
        One entry per row and bound; empty arrays for no rows. ``kl_low`` is inf where cand masks
        a shared id that ref does not. The reverse KL: swap the arguments; its upper bound then needs
        ref's row minimum.

    Raises:
        InputError: Shapes differ, k is 0, an id stands twice in a row, a value is NaN or +inf, a
            tail is outside [0, 1], a row minimum is above a kept logit, or kept mass and tail are
            not 1 together.

    Numerics:
        Float64 throughout. Equal rows give exactly 0 for both lower bounds. Bounds hold up to
        rounding of the inputs: a log-sum-exp in float32 moves them by about 1e-6 relative.

    Source:
        Cover and Thomas, Elements of Information Theory, 2.7 (log sum inequality); checked against
        the full sum in ``tests/unit/numerics/test_topk.py``.

    Example:
        >>> half, tail = np.log([[0.5]]), np.array([0.5])
        >>> one, ids = np.zeros(1), np.array([[7]])
        >>> a = TopKRows(ids=ids, logits=half, lse=one, tail_mass=tail)
        >>> b = TopKRows(ids=ids, logits=np.log([[0.9]]), lse=one, tail_mass=np.array([0.1]))
        >>> found = topk_bounds(a, b)
        >>> f"{found.kl_low[0]:.4f} {found.kl_high[0]} {found.tvd_low[0]:.1f}"
        '0.5108 inf 0.4'
    """
    _check("ref", ref)
    _check("cand", cand)
    if len(ref.ids) != len(cand.ids):
        msg = f"topk_bounds: ref has {len(ref.ids)} rows, cand {len(cand.ids)}"
        raise InputError(msg)
    left, right = _logprobs(ref), _logprobs(cand)
    tails = to_float64(ref.tail_mass), to_float64(cand.tail_mass)
    least = _least(cand)
    made = [
        _row(
            (ref.ids[i], left[i], float(tails[0][i])),
            (cand.ids[i], right[i], float(tails[1][i])),
            least=float(least[i]),
            top=ref.top,
        )
        for i in range(len(left))
    ]
    columns = np.array(made, dtype=np.float64).reshape(len(made), 4).T
    return TopKBounds(
        kl_low=columns[0], kl_high=columns[1], tvd_low=columns[2], tvd_high=columns[3]
    )


def _row(
    ref: tuple[NDArray[Any], Row, float],
    cand: tuple[NDArray[Any], Row, float],
    *,
    least: float,
    top: bool,
) -> tuple[float, float, float, float]:
    """KL low and high, TVD low and high of one row; ``least``: ln of cand's least probability."""
    _, here, there = np.intersect1d(ref[0], cand[0], assume_unique=True, return_indices=True)
    lp, lq = ref[1][here], cand[1][there]
    own = np.exp(np.delete(ref[1], here))
    rest_p = ref[2] + float(own.sum())
    rest_q = cand[2] + float(np.exp(np.delete(cand[1], there)).sum())
    p, q = np.exp(lp), np.exp(lq)
    shared = float(np.sum(_terms(lp, lq, p, q)))
    rest = np.array([rest_p]), np.array([rest_q])
    with np.errstate(divide="ignore"):
        logs = np.log(rest[0]), np.log(np.maximum(rest[1], TINY))
    low = shared + float(_terms(*logs, *rest).sum())
    high = low
    if rest_p > 0.0:
        cap = np.minimum(np.exp(ref[1].min()), ref[2]) if top else ref[2]
        known = float(np.sum(special.xlogy(own, own)) + special.xlogy(ref[2], cap))
        high = shared + (rest_q - rest_p) + known - rest_p * least
    apart = float(np.sum(np.abs(p - q)))
    tvd_low = 0.5 * (apart + abs(rest_p - rest_q))
    tvd_high = 0.5 * (apart + rest_p + rest_q)
    return (low, float(np.maximum(high, low)), *np.minimum((tvd_low, tvd_high), 1.0).tolist())


def _terms(
    lp: NDArray[Any], lq: NDArray[Any], p: NDArray[Any], q: NDArray[Any]
) -> NDArray[np.float64]:
    """``p ln(p / q) + q - p``, of second order where p and q are close; q where p is 0."""
    with np.errstate(invalid="ignore", over="ignore"):
        d = np.where(p > 0, lp - lq, 0.0)
        close = p * (np.expm1(-d) + d)
        far = np.where(p > 0, p * d, 0.0) + (q - p)
    result: NDArray[np.float64] = np.where((np.abs(d) <= NEAR) & (p > 0), close, far)
    return result


def _logprobs(side: TopKRows) -> NDArray[np.float64]:
    made: Row = to_float64(side.logits) - to_float64(side.lse)[:, None]
    return made


def _least(side: TopKRows) -> NDArray[np.float64]:
    """Logarithm of the least probability of each row; -inf where it is not stored."""
    if side.row_min is None:
        return np.full(len(side.ids), -np.inf)
    made: Row = to_float64(side.row_min) - to_float64(side.lse)
    return made


def _check(name: str, side: TopKRows) -> None:
    rows, k = side.ids.shape if side.ids.ndim == 2 else (-1, 0)  # noqa: PLR2004 - rows and k
    shapes = {part.shape for part in (side.lse, side.tail_mass)}
    shapes |= set() if side.row_min is None else {side.row_min.shape}
    if k < 1 or side.logits.shape != (rows, k) or shapes != {(rows,)}:
        msg = (
            f"topk_bounds: {name} has ids {side.ids.shape}, logits {side.logits.shape} and per-row "
            f"values {sorted(shapes)}; wanted (rows, k) twice with k >= 1, and (rows,)"
        )
        raise InputError(msg)
    tail, logprobs = to_float64(side.tail_mass), _logprobs(side)
    ordered = np.sort(side.ids, axis=1)
    least = _least(side)
    wrong = {
        "holds an id twice": (ordered[:, 1:] == ordered[:, :-1]).any(axis=1),
        "holds NaN or +inf": ~(logprobs < np.inf).all(axis=1),
        "has a tail outside [0, 1]": ~((tail >= 0.0) & (tail <= 1.0)),
        "has a row minimum above a kept logit": ~(least <= logprobs.min(axis=1)),
        "keeps mass that is not 1 with its tail": ~(
            np.abs(np.exp(logprobs).sum(axis=1) + tail - 1.0) <= SLACK
        ),
    }
    for what, rows_wrong in wrong.items():
        if rows_wrong.any():
            msg = f"topk_bounds: {name} row {int(np.argmax(rows_wrong))} {what}"
            raise InputError(msg)
