"""Kimi Delta Attention by chunks: the WY / UT form, derived on its own.

Shares no function with ``kda``: norm, gate and recurrence are written again, in
another way, so that a slip in either shows as a difference.
"""

import numpy as np
from jaxtyping import Float64

from validate.oracle.records import Array, KdaOutput

__all__ = ["kda_chunk"]


def kda_chunk(
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
    chunk: int = 16,
) -> KdaOutput:
    """KDA in chunks of ``chunk`` tokens: one triangular solve a chunk instead of a recurrence.

    With G_t the running sum of log decays inside the chunk, unrolling the
    recurrence gives ``S_t = Diag(e^G_t) S_0 + sum_{s<=t} Diag(e^(G_t - G_s)) k_s u_s^T``
    with ``u_t = beta_t (v_t - S_0^T (e^G_t k_t) - sum_{s<t} A_ts u_s)`` and
    ``A_ts = sum_c k_tc k_sc e^(G_tc - G_sc)``. That is the linear system
    ``(I + beta A) U = beta (V - (e^G K) S_0)``, solved as ``U = T V' - T K' S_0`` (UT and WY).

    Args:
        q: See ``kda``.
        k: See ``kda``.
        v: See ``kda``.
        f: See ``kda``.
        b: See ``kda``.
        a_log: See ``kda``.
        dt_bias: See ``kda``.
        lower_bound: See ``kda``.
        state: See ``kda``.
        l2_eps: See ``kda``.
        chunk: Tokens a chunk; the last one may be shorter. It does not change the result.

    Returns:
        ``KdaOutput`` as from ``kda``.

    Numerics:
        ``e^(G_t - G_s)`` is formed from the difference, which is never positive
        for s <= t, so nothing overflows at any chunk length.

    Source:
        Kimi Linear (arXiv 2510.26692), section on chunkwise parallel form;
        Yang et al. 2024 (arXiv 2406.06484) for the WY / UT transform;
        fla ``ops/kda/naive.py`` (``naive_chunk_kda``). Proved against ``kda``.
    """
    tokens, heads, key = q.shape
    value = v.shape[-1]
    # Head first from here on: [heads, tokens, ...].
    length = np.linalg.norm(q, axis=-1, keepdims=True)
    Q = (q / np.sqrt(key * (length**2 + l2_eps))).swapaxes(0, 1)
    K = (k * (np.vecdot(k, k)[..., None] + l2_eps) ** -0.5).swapaxes(0, 1)
    V = v.swapaxes(0, 1)
    # The logistic function as exp(-log(1 + exp(-z))).
    steep = (f + dt_bias) * np.exp(a_log).reshape(1, heads, 1)
    log_decay = (lower_bound * np.exp(-np.logaddexp(0.0, -steep))).swapaxes(0, 1)
    beta = np.exp(-np.logaddexp(0.0, -b)).T[..., None]
    S = np.zeros((heads, key, value)) if state is None else np.array(state)
    pieces = []
    for start in range(0, tokens, chunk):
        part = slice(start, start + chunk)
        read, S = _one_chunk(
            Q[:, part], K[:, part], V[:, part], log_decay[:, part], beta[:, part], S
        )
        pieces.append(read)
    out = np.concatenate(pieces, axis=1) if pieces else np.zeros((heads, 0, value))
    return KdaOutput(out=np.ascontiguousarray(out.swapaxes(0, 1)), state=S)


def _one_chunk(
    Q: Array, K: Array, V: Array, log_decay: Array, beta: Array, S: Array
) -> tuple[Array, Array]:
    """Outputs [heads, C, value] and the next state for one chunk of C tokens."""
    C = K.shape[1]
    G = np.cumsum(log_decay, axis=1)
    upto = np.tril(np.ones((C, C)))
    below = upto - np.eye(C)
    # e^(G_t - G_s) for s <= t; 0 elsewhere, with the exponent masked before exp.
    gap = (G[:, :, None, :] - G[:, None, :, :]) * upto[None, :, :, None]
    fade = np.exp(gap) * upto[None, :, :, None]
    A = beta * np.einsum("htc,hsc,htsc->hts", K, K, fade) * below
    from_start = np.exp(G)
    rhs = np.concatenate([beta * V, beta * from_start * K], axis=-1)
    solved = np.linalg.solve(np.eye(C) + A, rhs)
    U = solved[..., : V.shape[-1]] - solved[..., V.shape[-1] :] @ S
    read = (from_start * Q) @ S + np.einsum("htc,hsc,htsc->hts", Q, K, fade) @ U
    to_end = np.exp(G[:, -1:, :] - G)
    S_next = from_start[:, -1, :, None] * S + (to_end * K).swapaxes(1, 2) @ U
    return read, S_next
