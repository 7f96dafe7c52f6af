"""Second derivations of the small operations, on purpose in another way and sharing no function.

The large ones, ``kda_chunk`` and ``mla_absorbed``, are part of the package.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def norm_by_length(x: Array, weight: Array, *, eps: float) -> Array:
    """RMSNorm by vector lengths: x sqrt(n) / sqrt(|x|^2 + n eps), row by row."""
    rows = x.reshape(-1, x.shape[-1])
    n = x.shape[-1]
    normed = [r * (n / (np.linalg.norm(r) ** 2 + n * eps)) ** 0.5 for r in rows]
    return (np.array(normed) @ np.diag(weight)).reshape(x.shape)


def logistic(x: Array) -> Array:
    """The logistic function by log-add-exp."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -x)))


def situ_by_exponentials(gate: Array, up: Array, *, beta: float, linear_beta: float) -> Array:
    """SiTU with tanh(z) written as expm1(2z) / (expm1(2z) + 2)."""
    g = np.expm1(2 * gate / beta)
    u = np.expm1(2 * up / linear_beta)
    return np.asarray(beta * g / (g + 2) * logistic(gate) * linear_beta * u / (u + 2))


def conv_by_channel(x: Array, weight: Array, *, state: Array | None = None) -> tuple[Array, Array]:
    """Causal convolution and SiLU, one ``np.convolve`` a channel; state [channels, taps]."""
    channels, kernel = weight.shape
    columns, states = [], []
    for c in range(channels):
        past = [0.0] * (kernel - 1) if state is None else list(state[c])
        series = np.array(past + list(x[:, c]))
        y = np.convolve(series, weight[c][::-1], mode="valid") if len(x) else np.zeros(0)
        columns.append(y / (1 + np.exp(-y)))
        states.append(series[len(series) - kernel + 1 :])
    return np.stack(columns, axis=1), np.stack(states)


def mix_by_rows(
    bank: Sequence[Array], prefix: Array, *, norm: Array, proj: Array, eps: float
) -> Array:
    """Attention residual, one row at a time, with the softmax as pairwise odds."""
    mixed = []
    for row in range(len(prefix)):
        candidates = [c[row] for c in bank] + [prefix[row]]
        score = [sum(c * norm * proj) / (sum(c**2) / len(c) + eps) ** 0.5 for c in candidates]
        odds = [1 / sum(np.exp(other - mine) for other in score) for mine in score]
        mixed.append(sum(o * c for o, c in zip(odds, candidates, strict=True)))
    return np.array(mixed)


def moe_dense(
    x: Array,
    *,
    router: Array,
    correction_bias: Array,
    down: Array,
    gate: Array,
    up: Array,
    out: Array,
    norm: Array,
    expand: Array,
    shared: tuple[Array, Array, Array],
    k: int,
    eps: float,
    beta: float,
    linear_beta: float,
) -> tuple[Array, Array]:
    """Latent MoE with every expert run on every row; returns output and dense weights [rows, E]."""
    p = logistic(np.einsum("rd,ed->re", x, router))
    score = p + correction_bias
    # Rank of an expert: how many beat it, or equal it with a lower index.
    lower = np.tri(len(router), k=-1).T.astype(bool)  # lower[a, b]: a < b
    beats = (score[:, :, None] > score[:, None, :]) | (
        (score[:, :, None] == score[:, None, :]) & lower
    )
    chosen = beats.sum(axis=1) < k
    share = p * chosen
    share = share / (share.sum(axis=1, keepdims=True) + 1e-20)
    z = np.einsum("rd,ld->rl", x, down)
    hidden = situ_by_exponentials(
        np.einsum("rl,eil->rei", z, gate),
        np.einsum("rl,eil->rei", z, up),
        beta=beta,
        linear_beta=linear_beta,
    )
    mixed = np.einsum("re,rei,eli->rl", share, hidden, out)
    routed = norm_by_length(mixed, norm, eps=eps) @ expand.T
    g, u, o = shared
    return routed + situ_by_exponentials(
        x @ g.T, x @ u.T, beta=beta, linear_beta=linear_beta
    ) @ o.T, share


def merge_by_sums(outs: Sequence[Array], lses: Sequence[Array]) -> tuple[Array, Array]:
    """Merge of partial attention by plain sums of exponentials, part by part; all LSE finite or -inf."""
    top = np.zeros_like(outs[0])
    total = np.zeros_like(lses[0])
    for out, lse in zip(outs, lses, strict=True):
        mass = np.where(np.isneginf(lse), 0.0, np.e**lse)
        total = total + mass
        top = top + np.where(mass[..., None] > 0, out, 0.0) * mass[..., None]
    seen = total > 0
    merged = np.divide(top, total[..., None], out=np.zeros_like(top), where=seen[..., None])
    return merged, np.log(total, out=np.full_like(total, -np.inf), where=seen)


def attend_by_loops(
    q: Array, k: Array, v: Array, *, scale: float, first: int
) -> tuple[Array, Array]:
    """Causal attention by three Python loops: output [rows, heads, value] and LSE [rows, heads]."""
    rows, heads, _ = q.shape
    out = np.zeros((rows, heads, v.shape[-1]))
    lse = np.full((rows, heads), -np.inf)
    for i in range(rows):
        for h in range(heads):
            mass = [
                float(np.exp(scale * (q[i, h] @ k[j, h]))) for j in range(len(k)) if j - first <= i
            ]
            if mass:
                out[i, h] = sum(m * v[j, h] for j, m in enumerate(mass)) / sum(mass)
                lse[i, h] = np.log(sum(mass))
    return out, lse


def segments(outputs: Sequence[Array], starts: Sequence[int]) -> list[Array]:
    """Sums of ``outputs`` between consecutive ``starts``; the last segment runs to the end."""
    return [np.sum(np.stack(outputs[a:b]), axis=0) for a, b in pairwise([*starts, len(outputs)])]
