"""Uniform numbers that depend on a key and a place alone: equal on every machine, in any order.

The generator is a counter-based hash: 64-bit SplitMix finalisers over the key
and each coordinate in turn (Steele, Lea and Flood, OOPSLA 2014, for the
finaliser). A number is the hash's upper 53 bits plus one half, over 2^53, so
that neither 0 nor 1 occurs.
"""

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike, NDArray

__all__ = ["keyed_hash", "keyed_uniform"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return np.asarray(x ^ (x >> np.uint64(31)), np.uint64)


def keyed_hash(key: int, *coordinates: ArrayLike) -> NDArray[np.uint64]:
    """64 bits for a key and broadcast integer coordinates; shape of the broadcast.

    Args:
        key: any integer; its lowest 64 bits count.
        coordinates: integers or integer arrays, e.g. request seed, position, stream.

    Raises:
        TypeError: a coordinate is not of an integer dtype.
    """
    arrays = [np.asarray(c) for c in coordinates]
    for place, array in enumerate(arrays):
        if not np.issubdtype(array.dtype, np.integer):
            msg = f"coordinate {place} has dtype {array.dtype}; keyed numbers take integers"
            raise TypeError(msg)
    state = np.full(
        np.broadcast_shapes(*(a.shape for a in arrays)), key & 0xFFFFFFFFFFFFFFFF, np.uint64
    )
    with np.errstate(over="ignore"):
        state = _mixed(state + _GOLDEN)
        for array in arrays:
            state = _mixed((state ^ array.astype(np.int64).astype(np.uint64)) + _GOLDEN)
    return state


def keyed_uniform(key: int, *coordinates: ArrayLike) -> Float64[np.ndarray, "..."]:
    """Float64 in (0, 1) for a key and integer coordinates."""
    bits = keyed_hash(key, *coordinates) >> np.uint64(11)
    return (bits.astype(np.float64) + 0.5) * 2.0**-53
