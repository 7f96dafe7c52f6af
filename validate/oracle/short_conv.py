"""Causal depthwise convolution with SiLU, and the inputs it must remember."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from validate.oracle.records import Array
from validate.oracle.sigmoid import sigmoid

__all__ = ["ShortConv", "short_conv"]


class ShortConv(NamedTuple):
    """Activated output and the state for the next token."""

    y: Array
    """[tokens, channels], after SiLU."""
    state: Array
    """[channels, taps]: the last ``kernel - 1`` raw inputs, oldest first."""


def short_conv(
    x: Float64[Array, "tokens channels"],
    weight: Float64[Array, "channels kernel"],
    *,
    state: Float64[Array, "channels taps"] | None = None,
) -> ShortConv:
    """Short convolution: ``silu(sum_j weight[c, j] x[t - (kernel - 1) + j, c])``, no bias.

    Args:
        x: New inputs, float64, in token order.
        weight: One kernel a channel; the last tap multiplies the current token.
        state: The ``kernel - 1`` inputs before ``x``, oldest first; zeros when None.

    Returns:
        ``ShortConv``: output of each new token, and the state after the last.

    Source:
        fla ``modules/conv`` (``ShortConvolution``, activation silu) and
        ``layers/kda.py``; the state is sglang's ``KimiLinearStateShape`` conv entry.

    Example:
        One channel, kernel (1, 0, 0, 2): y = silu(x[t-3] + 2 x[t]).

        >>> weight = np.array([[1.0, 0.0, 0.0, 2.0]])
        >>> conv = short_conv(np.array([[1.0], [0.0], [0.0], [-0.5]]), weight)
        >>> [round(float(y), 4) for y in conv.y[:, 0]]  # silu(2), silu(0), silu(0), silu(1 - 1)
        [1.7616, 0.0, 0.0, 0.0]
        >>> conv.state.tolist()
        [[0.0, 0.0, -0.5]]
    """
    tokens, channels = x.shape
    taps = weight.shape[1] - 1
    before = np.zeros((taps, channels)) if state is None else state.T
    window = np.concatenate([before, x])  # [taps + tokens, channels]
    total = np.zeros((tokens, channels))
    for j in range(taps + 1):
        total += weight[:, j] * window[j : j + tokens]
    return ShortConv(total * sigmoid(total), window[tokens:].T.copy())
