"""Kimi Delta Attention, token by token: the recurrence as it is defined."""

import numpy as np
from jaxtyping import Float64

from validate.oracle.records import Array, KdaOutput
from validate.oracle.sigmoid import sigmoid

__all__ = ["kda", "l2_norm", "lower_bound_gate"]


def l2_norm(x: Float64[Array, "*rows width"], *, eps: float) -> Float64[Array, "*rows width"]:
    """L2 normalisation: ``x / sqrt(sum(x^2) + eps)`` over the last axis.

    Args:
        x: Values, float64.
        eps: Added to the sum of squares, inside the root.

    Returns:
        Same shape; a row of zeros stays zero.

    Source:
        fla ``modules/l2norm.py``; eps 1e-6 in ``ops/kda``.
    """
    y: Array = x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + eps)
    return y


def lower_bound_gate(
    f: Float64[Array, "tokens heads key"],
    *,
    a_log: Float64[Array, " heads"],
    dt_bias: Float64[Array, "heads key"],
    lower_bound: float,
) -> Float64[Array, "tokens heads key"]:
    """Log decay: ``g = L sigmoid(exp(A_log) (f + dt_bias))`` with L < 0.

    Args:
        f: Raw gate input W_fb W_fa x, float64.
        a_log: Log of the gate's steepness, one a head.
        dt_bias: Offset, one a key channel.
        lower_bound: L; -5 in Kimi K3, so a channel keeps at least exp(-5) of itself a token.

    Returns:
        Natural log of the decay, in (L, 0).

    Source:
        fla ``ops/kda/gate.py`` (``naive_kda_lowerbound_gate``).
    """
    g: Array = lower_bound * sigmoid(np.exp(a_log)[:, None] * (f + dt_bias))
    return g


def kda(
    *,
    q: Float64[Array, "tokens heads key"],
    k: Float64[Array, "tokens heads key"],
    v: Float64[Array, "tokens heads value"],
    f: Float64[Array, "tokens heads key"],
    b: Float64[Array, "tokens heads"],
    a_log: Float64[Array, " heads"],
    dt_bias: Float64[Array, "heads key"],
    lower_bound: float,
    state: Float64[Array, "heads key value"] | None = None,
    l2_eps: float = 1e-6,
) -> KdaOutput:
    """KDA recurrence over ``tokens``, starting from ``state``.

    Per token and head: ``S <- Diag(exp g) S``; ``S <- S + beta k (v - S^T k)^T``;
    ``o = S^T q``, with q and k L2-normed, q scaled by ``key^-0.5`` and
    ``beta = sigmoid(b)``. The decay comes before the update, and the read-out
    sees the token's own update.

    Args:
        q: Queries after the short convolution, float64, before L2 norm and scale.
        k: Keys after the short convolution, before L2 norm.
        v: Values after the short convolution.
        f: Raw forget-gate input.
        b: Raw input of beta, one a head.
        a_log: See ``lower_bound_gate``.
        dt_bias: See ``lower_bound_gate``.
        lower_bound: See ``lower_bound_gate``.
        state: S before the first token, key first; zeros when None.
        l2_eps: Eps of the L2 norms.

    Returns:
        ``KdaOutput``: o of every token, and S after the last one.

    Source:
        Kimi Linear (arXiv 2510.26692), eq. 1; fla ``ops/kda/naive.py``
        (``naive_recurrent_kda``); HF ``modeling_kimi_linear.py`` (``torch_recurrent_kda``).
        Proved against ``kda_chunk``.
    """
    tokens, heads, key = q.shape
    value = v.shape[-1]
    q_hat = l2_norm(q, eps=l2_eps) * key**-0.5
    k_hat = l2_norm(k, eps=l2_eps)
    decay = np.exp(lower_bound_gate(f, a_log=a_log, dt_bias=dt_bias, lower_bound=lower_bound))
    beta = sigmoid(b)
    S = np.zeros((heads, key, value)) if state is None else state.copy()
    out = np.empty((tokens, heads, value))
    for t in range(tokens):
        S = decay[t, :, :, None] * S
        recalled = np.einsum("hkv,hk->hv", S, k_hat[t])
        correction = beta[t, :, None] * (v[t] - recalled)
        S = S + k_hat[t, :, :, None] * correction[:, None, :]
        out[t] = np.einsum("hkv,hk->hv", S, q_hat[t])
    return KdaOutput(out=out, state=S)
