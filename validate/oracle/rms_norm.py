"""Root-mean-square normalisation."""

import numpy as np
from jaxtyping import Float64

from validate.oracle.records import Array

__all__ = ["rms_norm"]


def rms_norm(
    x: Float64[Array, "*rows width"], weight: Float64[Array, " width"], *, eps: float
) -> Float64[Array, "*rows width"]:
    """RMSNorm: ``weight * x / sqrt(mean(x^2) + eps)`` over the last axis.

    Args:
        x: Values, float64; the last axis is normalised.
        weight: Scale of each channel.
        eps: Added to the mean square, inside the root. Kimi K3 takes 1e-5, its
            q_a and kv_a norms 1e-6 in ATOM and HF and ``rms_norm_eps`` elsewhere.

    Returns:
        Normalised values, same shape as ``x``.

    Source:
        Zhang and Sennrich 2019 (arXiv 1910.07467), eq. 4; eps inside the root
        as in HF ``modeling_kimi_linear.py`` (KimiRMSNorm).

    Example:
        >>> x = np.array([[3.0, 4.0]])  # mean square 12.5; 12.5 + 12.5 = 25
        >>> rms_norm(x, np.array([1.0, 2.0]), eps=12.5).tolist()
        [[0.6, 1.6]]
    """
    mean_square = np.mean(x * x, axis=-1, keepdims=True)
    normed: Array = weight * x / np.sqrt(mean_square + eps)
    return normed
