"""Stable log-softmax in float64; masked entries (-inf) stay masked."""

from typing import Any

import numpy as np
from jaxtyping import Float64, Shaped
from numpy.typing import NDArray

from validate.errors import InputError
from validate.numerics.formats import to_float64

__all__ = ["log_softmax", "logsumexp"]


def logsumexp(logits: Shaped[NDArray[Any], "*rows vocab"]) -> Float64[NDArray[Any], "*rows"]:
    """``ln sum exp`` over the last axis, in nats.

    Raises:
        InputError: The last axis is empty, a value is NaN or +inf, or a row is all -inf.
    """
    values = to_float64(logits)
    if values.shape[-1] == 0:
        msg = f"log-softmax over an empty vocabulary: shape {values.shape}"
        raise InputError(msg)
    top = np.max(values, axis=-1, keepdims=True)
    if not np.isfinite(top).all():
        msg = (
            f"log-softmax: {int(np.count_nonzero(~np.isfinite(top)))} of {top.size} rows hold NaN "
            "or +inf, or are -inf throughout; settle non-finite values first"
        )
        raise InputError(msg)
    total = np.log(np.sum(np.exp(values - top), axis=-1))
    return np.asarray(top[..., 0] + total)


def log_softmax(
    logits: Shaped[NDArray[Any], "*rows vocab"],
) -> Float64[NDArray[Any], "*rows vocab"]:
    """Natural-log probabilities over the last axis; -inf stays -inf.

    Raises:
        InputError: As ``logsumexp``.

    Source:
        Checked against ``scipy.special.log_softmax``.
    """
    return np.asarray(to_float64(logits) - logsumexp(logits)[..., None])
