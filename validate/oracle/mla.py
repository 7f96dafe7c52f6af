"""Multi-head latent attention, decompressed: every head gets its own keys and values."""

import numpy as np
from jaxtyping import Float64

from validate.oracle.records import Array, MlaOutput, MlaWeights, Partial
from validate.oracle.rms_norm import rms_norm
from validate.oracle.sigmoid import sigmoid

__all__ = ["causal_attention", "mla"]


def causal_attention(
    q: Float64[Array, "rows heads qk"],
    k: Float64[Array, "tokens heads qk"],
    v: Float64[Array, "tokens heads value"],
    *,
    scale: float,
    first: int,
) -> Partial:
    """Softmax attention in which row i sees keys 0 .. first + i.

    Args:
        q: Queries of ``rows`` consecutive tokens, float64.
        k: Keys, one a token.
        v: Values, one a token.
        scale: Factor on q·k before the softmax.
        first: Index in ``k`` of the key that belongs to row 0. Negative, or past
            the last key, for attention over a part of the keys (see ``lse_merge``).

    Returns:
        ``Partial``: normalised output and natural-log LSE of the scaled scores;
        a row that sees no key has output 0 and LSE -inf.

    Source:
        Vaswani et al. 2017 (arXiv 1706.03762), eq. 1, with the causal mask of section 3.2.3.

    Example:
        Two tokens, one head. Row 1 sees scores 0 and ln 3: weights 1/4 and 3/4.

        >>> q = np.array([[[1.0]], [[1.0]]])
        >>> k = np.array([[[0.0]], [[np.log(3.0)]]])
        >>> v = np.array([[[8.0]], [[4.0]]])
        >>> part = causal_attention(q, k, v, scale=1.0, first=0)
        >>> [round(float(o), 6) for o in part.out[:, 0, 0]]
        [8.0, 5.0]
        >>> [round(float(np.exp(lse)), 6) for lse in part.lse[:, 0]]
        [1.0, 4.0]
    """
    rows, tokens = q.shape[0], k.shape[0]
    # Head first: one [rows, qk] @ [qk, tokens] product a head.
    scores = scale * (q.transpose(1, 0, 2) @ k.transpose(1, 2, 0))
    seen = np.arange(tokens)[None, :] <= first + np.arange(rows)[:, None]
    scores = np.where(seen, scores, -np.inf)
    top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    shift = np.where(top == -np.inf, 0.0, top)
    e = np.exp(scores - shift)
    total = np.sum(e, axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):  # log 0 = -inf is the LSE of no key
        lse = (shift + np.log(total))[..., 0]
    out = (e / np.where(total == 0.0, 1.0, total)) @ v.transpose(1, 0, 2)
    return Partial(out=out.transpose(1, 0, 2), lse=lse.T)


def mla(
    x: Float64[Array, "rows hidden"],
    weights: MlaWeights,
    *,
    heads: int,
    nope: int,
    rope: int,
    eps: float,
    past: Float64[Array, "past latent_rope"] | None = None,
) -> MlaOutput:
    """MLA of Kimi K3, decompressed: NoPE, causal, elementwise output gate.

    ``q = W_qb RMSNorm(W_qa x)``; ``[c | k_pe] = W_kva x``; ``c <- RMSNorm(c)``;
    per head ``[k_nope | v] = W_kvb c`` and ``K = [k_nope | k_pe]``; softmax with
    scale ``(nope + rope)^-0.5``; ``y = W_o (out * sigmoid(W_g x))``. The rope
    dimensions are plain extra dimensions: nothing is rotated.

    Args:
        x: Layer inputs after the pre-norm, float64, consecutive tokens.
        weights: The layer's matrices.
        heads: Attention heads H.
        nope: Width of the key part that comes from the latent.
        rope: Width of the key part that all heads share.
        eps: Of the q_a and kv_a norms: 1e-6 in ATOM and HF, ``rms_norm_eps`` in
            the DeepSeek-style code of vLLM and sglang.
        past: Cache of the tokens before ``x`` (normed latent, then k_pe); none when None.

    Returns:
        ``MlaOutput``: output before the gate, natural-log LSE, layer output, and
        the cache with the new tokens appended.

    Source:
        DeepSeek-V2 (arXiv 2405.04434), section 2.1; ATOM ``models/kimi_k3.py``; sglang
        ``models/kimi_k3.py`` (``KimiK3MLAAttention``, skip_rope). Proved against ``mla_absorbed``.
    """
    rows = x.shape[0]
    latent = weights.kv_a_norm.shape[0]
    q = rms_norm(x @ weights.q_a.T, weights.q_a_norm, eps=eps) @ weights.q_b.T
    q = q.reshape(rows, heads, nope + rope)
    compressed = x @ weights.kv_a.T
    c = rms_norm(compressed[:, :latent], weights.kv_a_norm, eps=eps)
    new = np.concatenate([c, compressed[:, latent:]], axis=1)
    kv = new if past is None else np.concatenate([past, new])
    tokens = kv.shape[0]
    per_head = (kv[:, :latent] @ weights.kv_b.T).reshape(tokens, heads, -1)
    k_nope, v = per_head[..., :nope], per_head[..., nope:]
    k_pe = np.broadcast_to(kv[:, None, latent:], (tokens, heads, rope))
    k = np.concatenate([k_nope, k_pe], axis=-1)
    part = causal_attention(q, k, v, scale=(nope + rope) ** -0.5, first=tokens - rows)
    gated = part.out.reshape(rows, -1) * sigmoid(x @ weights.g.T)
    return MlaOutput(out=part.out, lse=part.lse, y=gated @ weights.o.T, kv=kv)
