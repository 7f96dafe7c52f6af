"""Multi-head latent attention, absorbed: contractions over the latent, no per-head key.

Shares no function with ``mla``: norm, softmax, mask and gate are written again,
in another way, so that a slip in either shows as a difference.
"""

import numpy as np
from jaxtyping import Float64

from validate.oracle.records import Array, MlaOutput, MlaWeights, Partial

__all__ = ["latent_attention", "mla_absorbed"]


def latent_attention(
    q_latent: Float64[Array, "rows heads latent_rope"],
    kv: Float64[Array, "tokens latent_rope"],
    *,
    latent: int,
    scale: float,
    first: int,
) -> Partial:
    """Multi-query attention over the latent cache; row i sees cache entries 0 .. first + i.

    Args:
        q_latent: Absorbed queries ``[q_nope W_k | q_pe]``, float64.
        kv: Cache: normed latent, then k_pe. Keys are whole entries, values the latent alone.
        latent: Width of the latent.
        scale: ``(nope + rope)^-0.5`` of the *decompressed* widths.
        first: Cache index of row 0's own entry; see ``causal_attention``.

    Returns:
        ``Partial`` whose output is [rows, heads, latent], still to be up-projected.

    Source:
        DeepSeek-V2 (arXiv 2405.04434), section 2.1.2 and appendix C; the decode form of AITER
        ``mla_decode_fwd`` (q width latent + rope, v width latent).
    """
    rows, heads, _ = q_latent.shape
    out = np.zeros((rows, heads, latent))
    lse = np.full((rows, heads), -np.inf)
    for i in range(rows):
        keys = kv[: max(first + i + 1, 0)]
        if len(keys) == 0:
            continue
        scores = (q_latent[i] @ keys.T) * scale
        lse[i] = np.logaddexp.reduce(scores, axis=1)
        out[i] = np.exp(scores - lse[i][:, None]) @ keys[:, :latent]
    return Partial(out=out, lse=lse)


def mla_absorbed(
    x: Float64[Array, "rows hidden"],
    weights: MlaWeights,
    *,
    heads: int,
    nope: int,
    rope: int,
    eps: float,
    past: Float64[Array, "past latent_rope"] | None = None,
) -> MlaOutput:
    """MLA of Kimi K3, absorbed: ``q' = [q_nope W_k | q_pe]`` against the latent cache.

    ``q_nope·(W_k c) = (W_k^T q_nope)·c`` moves the key up-projection to the query,
    and ``sum_t p_t W_v c_t = W_v sum_t p_t c_t`` moves the value up-projection
    behind the softmax.

    Args:
        x: See ``mla``.
        weights: See ``mla``.
        heads: See ``mla``.
        nope: See ``mla``.
        rope: See ``mla``.
        eps: See ``mla``.
        past: See ``mla``.

    Returns:
        ``MlaOutput`` as from ``mla``.

    Source:
        DeepSeek-V2 (arXiv 2405.04434), section 2.1.2; ATOM ``attention_mla.py``. Proved against
        ``mla``.
    """
    rows = len(x)
    latent = len(weights.kv_a_norm)
    a = weights.q_a @ x.T  # columns are tokens here
    a = a * (weights.q_a_norm[:, None] / np.sqrt(np.square(a).sum(0) / len(a) + eps))
    q = (weights.q_b @ a).T.reshape(rows, heads, nope + rope)
    entry = np.array(x @ weights.kv_a.T)
    power = np.linalg.norm(entry[:, :latent], axis=1) ** 2 / latent
    entry[:, :latent] = np.outer((power + eps) ** -0.5, weights.kv_a_norm) * entry[:, :latent]
    kv = entry if past is None else np.vstack([past, entry])
    w_k, w_v = np.split(weights.kv_b.reshape(heads, -1, latent), [nope], axis=1)
    q_latent = np.dstack([np.einsum("rhn,hnl->rhl", q[:, :, :nope], w_k), q[:, :, nope:]])
    scale = 1.0 / np.sqrt(nope + rope)
    part = latent_attention(q_latent, kv, latent=latent, scale=scale, first=len(kv) - rows)
    out = np.einsum("rhl,hvl->rhv", part.out, w_v)
    gate = 0.5 + 0.5 * np.tanh(0.5 * (x @ weights.g.T))
    y = np.einsum("rn,dn->rd", gate * out.reshape(rows, -1), weights.o)
    return MlaOutput(out=out, lse=part.lse, y=y, kv=kv)
