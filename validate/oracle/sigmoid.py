"""The logistic function."""

import numpy as np
from jaxtyping import Float64

from validate.oracle.records import Array

__all__ = ["sigmoid"]


def sigmoid(x: Float64[Array, "*shape"]) -> Float64[Array, "*shape"]:
    """Logistic function ``1 / (1 + exp(-x))``, accurate to float64 for either sign.

    Args:
        x: Any shape, float64.

    Returns:
        Values in [0, 1], same shape.

    Numerics:
        Written with ``exp(-|x|)``, which cannot overflow.

    Source:
        Closed form; used by Kimi K3 for beta, decay, output gates and router.

    Example:
        >>> sigmoid(np.array([0.0, -800.0, 800.0])).tolist()
        [0.5, 0.0, 1.0]
    """
    small = np.exp(-np.abs(x))
    y: Array = np.where(x >= 0, 1.0, small) / (1.0 + small)
    return y
