"""SiTU, the gated activation of Kimi K3, and the three-matrix MLP around it."""

import numpy as np
from jaxtyping import Float64

from validate.oracle.records import Array
from validate.oracle.sigmoid import sigmoid

__all__ = ["situ", "situ_mlp"]


def situ(
    gate: Float64[Array, "*shape"],
    up: Float64[Array, "*shape"],
    *,
    beta: float,
    linear_beta: float,
) -> Float64[Array, "*shape"]:
    """SiTU (v2): ``beta tanh(gate/beta) sigmoid(gate) * linear_beta tanh(up/linear_beta)``.

    A SiLU-gated unit whose two factors are bounded: by ``beta`` in the gate and
    by ``linear_beta`` in the linear branch. Both betas to infinity give SwiGLU.

    Args:
        gate: Gate branch, float64.
        up: Linear branch, same shape.
        beta: Bound of the gate branch; 4 in Kimi K3.
        linear_beta: Bound of the linear branch; 25 in Kimi K3.

    Returns:
        Activation, same shape, within ``beta * linear_beta`` in magnitude.

    Source:
        ATOM ``model_ops/activations.py`` and aiter ``ActivationType.Situv2``;
        ``activation_situ_beta`` and ``activation_situ_linear_beta`` in the published config.

    Example:
        >>> y = situ(np.array([50.0]), np.array([1e6]), beta=4.0, linear_beta=25.0)
        >>> f"{y[0]:.1f}"
        '100.0'
    """
    bounded_silu = beta * np.tanh(gate / beta) * sigmoid(gate)
    bounded_up = linear_beta * np.tanh(up / linear_beta)
    y: Array = bounded_silu * bounded_up
    return y


def situ_mlp(
    x: Float64[Array, "rows width"],
    *,
    gate: Float64[Array, "inter width"],
    up: Float64[Array, "inter width"],
    down: Float64[Array, "width inter"],
    beta: float,
    linear_beta: float,
) -> Float64[Array, "rows width"]:
    """Gated MLP: ``down situ(gate x, up x)``.

    Args:
        x: Rows, float64.
        gate: Gate projection, [out, in].
        up: Linear projection, [out, in].
        down: Output projection, [out, in].
        beta: See ``situ``.
        linear_beta: See ``situ``.

    Returns:
        Rows of the same width as ``x``.

    Source:
        ATOM ``models/kimi_k3.py``: dense layer 0, shared expert and each routed expert.
    """
    y: Array = situ(x @ gate.T, x @ up.T, beta=beta, linear_beta=linear_beta) @ down.T
    return y
