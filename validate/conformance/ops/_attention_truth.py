"""What attention must give in float64, and how far rounding may carry a kernel from it.

The error model of one output ``o = sum_j p_j v_j`` with weights ``p = softmax(s)``:

- scores: a dot product of D terms in an accumulator of roundoff ``u_acc`` is off by at most
  ``D u_acc sum|q||k|`` times the scale; dequantised or rounded keys add ``u_in`` per product; the
  exponential adds a few ``u_acc`` of its argument. Call the sum e_j: weight j is off by e_j p_j.
- weights rounded to the operand format before the second product, as matrix units need, are off
  by ``u_p p_j``, or by ``floor`` of the largest weight where the format underflows.
- the second product and the normaliser, T terms each, are off by ``T u_acc sum p|v|``.
- the result is rounded once: ``u_out |o|``.

Added up they bound every element (``element``). Most of these errors are independent and
have no sign of their own, so the length of a row's error is near the root of the sum of
their squares (Higham and Mary 2019, probabilistic error analysis): ``variance`` is that
sum with the variance u^2/3 of a uniform rounding error, and limits on rows and on the bulk are
multiples of its root.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from validate.numerics import unit_roundoff
from validate.oracle import causal_attention, latent_attention

__all__ = [
    "U_ACC",
    "Precision",
    "Truth",
    "absorbed_truth",
    "dense_truth",
    "no_keys",
    "precision_of",
    "rows_of",
    "stack",
]

Array = np.ndarray

U_ACC = 2.0**-22
"""Roundoff of the accumulator: float32 with the truncation of matrix units (2 bits lost)."""
_EXP = 8
"""Roundings of an exponential and its argument, in units of U_ACC."""
_HALF_SMALLEST = {"float8_e4m3fn": 2.0**-10, "float8_e4m3fnuz": 2.0**-11, "float16": 2.0**-25}
"""Half the smallest subnormal; bfloat16 and float32 reach so low that it never counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Unit roundoffs that a kernel is allowed."""

    out: float
    """Of the output format."""
    out_floor: float
    """Half the smallest subnormal of the output format."""
    weights: float
    """Of the format that softmax weights are rounded to before the second product."""
    floor: float
    """Half the smallest weight of that format, where the largest is 1."""
    operand: float
    """Of keys and values widened from a narrower format; 0 where they are used as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Attention in float64 with the limits of its error."""

    out: Array
    """[rows, heads, value]."""
    lse: Array
    """[rows, heads]; -inf where a row sees no key."""
    element: Array
    """[rows, heads, value]: bound on each element's error."""
    variance: Array
    """[rows, heads, value]: expected square of each element's error."""
    lse_limit: Array
    """[rows, heads]: bound on the error of the log-sum-exp, in nats."""


def precision_of(operand: str, out: str) -> Precision:
    """Roundoffs of a kernel whose operands and output have these formats.

    A float8 operand may meet weights rounded to float8 too (as in float8 flash attention).
    """
    return Precision(
        out=unit_roundoff(out),
        out_floor=_HALF_SMALLEST.get(out, 0.0),
        weights=unit_roundoff(operand),
        floor=_HALF_SMALLEST.get(operand, 0.0),
        operand=0.0,
    )


def absorbed_truth(
    q: Array, kv: Array, *, latent: int, scale: float, first: int, precision: Precision
) -> Truth:
    """Absorbed attention of one request: row i sees cache entries 0 .. first + i.

    Args:
        q: [rows, heads, latent + rope], float64.
        kv: [keys, latent + rope], float64.
        latent: Width of the values.
        scale: Softmax scale.
        first: Cache index of row 0's own entry; -1 or less when row 0 sees nothing.
        precision: Roundoffs allowed.
    """
    part = latent_attention(q, kv, latent=latent, scale=scale, first=first)
    keys, values = kv[None], kv[None, :, :latent]
    return _with_limits(
        q, keys, values, part.out, part.lse, scale=scale, first=first, precision=precision
    )


def dense_truth(
    q: Array, k: Array, v: Array, *, scale: float, first: int, precision: Precision
) -> Truth:
    """Attention of one request with a key and a value per head; row i sees keys 0 .. first + i.

    Args:
        q: [rows, heads, qk], float64.
        k: [keys, heads, qk], float64.
        v: [keys, heads, value], float64.
        scale: Softmax scale.
        first: Index of row 0's own key; at least ``len(k) - 1`` for attention without a mask.
        precision: Roundoffs allowed.
    """
    part = causal_attention(q, k, v, scale=scale, first=first)
    return _with_limits(
        q,
        k.transpose(1, 0, 2),
        v.transpose(1, 0, 2),
        part.out,
        part.lse,
        scale=scale,
        first=first,
        precision=precision,
    )


def no_keys(rows: int, heads: int, value: int) -> Truth:
    """Rows that see no key: output 0, log-sum-exp -inf."""
    zero = np.zeros((rows, heads, value))
    flat = np.zeros((rows, heads))
    return Truth(out=zero, lse=flat - np.inf, element=zero, variance=zero, lse_limit=flat)


def _with_limits(
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array,
    *,
    scale: float,
    first: int,
    precision: Precision,
) -> Truth:
    """Limits round ``out`` and ``lse``; ``k`` and ``v`` are [heads or 1, keys, width]."""
    rows, width, keys = q.shape[0], q.shape[2], k.shape[1]
    heads_first = q.transpose(1, 0, 2)
    seen = np.arange(keys)[None, :] <= first + np.arange(rows)[:, None]
    if not seen.any():
        return no_keys(rows, q.shape[1], v.shape[2])
    lse_h = np.where(np.isfinite(lse), lse, 0.0).T[..., None]
    scores = np.where(seen, scale * (heads_first @ k.transpose(0, 2, 1)), -np.inf)
    p = np.exp(scores - lse_h)
    held = np.where(seen, np.abs(scores), 0.0)
    dots = abs(scale) * (np.abs(heads_first) @ np.abs(k).transpose(0, 2, 1))
    squares = scale**2 * (np.square(heads_first) @ np.square(k).transpose(0, 2, 1))
    top = np.max(held, axis=-1, keepdims=True)
    exponent = _EXP * U_ACC * (1.0 + held + top)
    e = np.expm1(np.minimum((width * U_ACC + 2 * precision.operand) * dots + exponent, 50.0))
    sigma2 = (width * U_ACC**2 + 2 * precision.operand**2) * squares + exponent**2
    size, flat = np.abs(v), np.abs(out).transpose(1, 0, 2)
    under = precision.floor * np.exp(np.where(seen, scores, -np.inf).max(-1, keepdims=True) - lse_h)
    weight = 2 * precision.weights + precision.operand + (keys + _EXP) * U_ACC
    pe = p * e
    element = (
        precision.out * flat
        + precision.out_floor
        + weight * (p @ size)
        + pe @ size
        + pe.sum(-1, keepdims=True) * flat
        + under * (seen.astype(np.float64) @ size)
    )
    square_v, p2 = np.square(v), np.square(p)
    u2 = (precision.weights**2 + precision.operand**2) / 3
    p2s = p2 * sigma2
    variance = (
        ((precision.out * flat) ** 2 + precision.out_floor**2) / 3
        + u2 * (p2 @ square_v + p2.sum(-1, keepdims=True) * flat**2)
        + 2 * (p2s @ square_v + p2s.sum(-1, keepdims=True) * flat**2)
        + ((np.sqrt(keys) + _EXP) * U_ACC * (p @ size)) ** 2
        + under**2 / 3 * (seen.astype(np.float64) @ square_v)
    )
    summed = pe.sum(-1) + precision.weights * 6 * np.sqrt(p2.sum(-1)) + (keys + _EXP) * U_ACC
    lse_limit = summed.T + 2 * U_ACC * np.abs(lse_h[..., 0]).T + under[..., 0].T * keys
    return Truth(
        out=out,
        lse=lse,
        element=element.transpose(1, 0, 2),
        variance=variance.transpose(1, 0, 2),
        lse_limit=lse_limit,
    )


def stack(parts: list[Truth]) -> Truth:
    """Rows of several requests, one after another."""
    fields: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("out", "lse", "element", "variance", "lse_limit")
    }
    return Truth(**fields)


def rows_of(truth: Truth, rows: Array) -> Truth:
    """The named rows, in that order."""
    return Truth(
        out=truth.out[rows],
        lse=truth.lse[rows],
        element=truth.element[rows],
        variance=truth.variance[rows],
        lse_limit=truth.lse_limit[rows],
    )
