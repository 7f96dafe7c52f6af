"""Attention residuals: a softmax over the residual stream's earlier stretches."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from validate.oracle.records import Array
from validate.oracle.rms_norm import rms_norm

__all__ = ["attn_res"]


def attn_res(
    bank: Sequence[Float64[Array, "rows hidden"]],
    prefix: Float64[Array, "rows hidden"],
    *,
    norm: Float64[Array, " hidden"],
    proj: Float64[Array, " hidden"],
    eps: float,
) -> Float64[Array, "rows hidden"]:
    """AttnRes: mix of bank and running prefix by ``softmax_i <RMSNorm(c_i; norm), proj>``.

    Scores are taken from the normed candidates, the mix from the raw ones.

    Args:
        bank: Closed prefixes, oldest first; may be empty, then the prefix is returned as it is.
        prefix: Running prefix, the last candidate.
        norm: Scale of the RMSNorm of the scores.
        proj: Projection of a normed candidate to its score.
        eps: Eps of that RMSNorm; 1e-5 in Kimi K3.

    Returns:
        Mixed rows, the input of the ordinary pre-norm.

    Source:
        Attention Residuals (arXiv 2603.15031); fla ``ops/attnres/naive.py``; ATOM
        ``model_ops/attention_residual.py``.

    Example:
        Two candidates with scores 1 and 1: their mean.

        >>> x, y = np.array([[2.0, 2.0]]), np.array([[6.0, 6.0]])
        >>> attn_res([x], y, norm=np.ones(2), proj=np.array([1.0, 0.0]), eps=0.0).tolist()
        [[4.0, 4.0]]
    """
    candidates = np.stack([*bank, prefix])  # [candidates, rows, hidden]
    scores = rms_norm(candidates, norm, eps=eps) @ proj
    e = np.exp(scores - np.max(scores, axis=0))
    share = e / np.sum(e, axis=0)
    mixed: Array = np.sum(share[:, :, None] * candidates, axis=0)
    return mixed
