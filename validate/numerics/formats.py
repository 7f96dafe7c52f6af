"""Number formats: exact widening to float64, and distance in steps of a named dtype."""

from typing import Any

import ml_dtypes
import numpy as np
from jaxtyping import Float64, Shaped, UInt64
from numpy.typing import NDArray

from validate.errors import InputError

__all__ = ["DTYPES", "dtype_of", "to_float64", "ulp_distance", "unit_roundoff"]

DTYPES: dict[str, np.dtype[Any]] = {
    "float64": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
}
"""Float formats by full name; every value of each is a float64 value."""

_BITS: dict[int, type[np.signedinteger[Any]]] = {
    2: np.int16,
    4: np.int32,
    8: np.int64,
}


def dtype_of(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a float format.

    Raises:
        InputError: The name is none of ``DTYPES``.
    """
    if name not in DTYPES:
        msg = f"dtype {name!r} is no float format known here; known: {', '.join(DTYPES)}"
        raise InputError(msg)
    return DTYPES[name]


def to_float64(array: Shaped[NDArray[Any], "..."]) -> Float64[NDArray[Any], "..."]:
    """A fresh float64 copy, exact for every format of ``DTYPES``; NaN and infinities stay.

    Raises:
        InputError: The array is not of a float format (token ids are no measurements).
    """
    if array.dtype.name not in DTYPES:
        msg = f"array of dtype {array.dtype.name} is not a float array; known: {', '.join(DTYPES)}"
        raise InputError(msg)
    with np.errstate(invalid="ignore"):  # a signalling NaN in the capture is data, not a warning
        return np.array(array, dtype=np.float64, order="C", copy=True)


def unit_roundoff(dtype: str) -> float:
    """Half the distance from 1 to the next greater value of ``dtype``.

    Source: IEEE 754 for float64, float32, float16; 8 significand bits for
    bfloat16; 4 for both float8_e4m3 formats.
    """
    one = np.ones(1, dtype=dtype_of(dtype))
    after = (one.view(f"u{one.itemsize}") + 1).astype(f"u{one.itemsize}").view(one.dtype)
    return (float(after[0]) - 1.0) / 2


def ulp_distance(
    ref: Shaped[NDArray[Any], "..."], cand: Shaped[NDArray[Any], "..."], *, dtype: str
) -> UInt64[NDArray[Any], "..."]:
    """Distance in steps of representable values of ``dtype``, after rounding both sides to it.

    Zero and negative zero are the same value, so the smallest positive and the
    smallest negative number are two steps apart.

    Args:
        ref: Reference values, any float dtype.
        cand: Candidate values, same shape.
        dtype: ``float64``, ``float32``, ``float16`` or ``bfloat16``; the narrower of the
            two sides is the usual choice.

    Returns:
        Whole steps, elementwise.

    Raises:
        InputError: The shapes differ, a value is not finite in ``dtype``, or the format has
            one byte (its values are too few for steps to mean anything).

    Source:
        Order of IEEE 754 bit patterns read as sign and magnitude; checked
        against ``numpy.nextafter``.
    """
    target = dtype_of(dtype)
    if target.itemsize not in _BITS:
        msg = f"ulp distance is not defined for dtype {dtype}; use float16, bfloat16 or wider"
        raise InputError(msg)
    if ref.shape != cand.shape:
        msg = f"ulp distance: ref has shape {ref.shape}, cand has shape {cand.shape}"
        raise InputError(msg)
    steps_ref = _ordered(ref, target, "ref")
    steps_cand = _ordered(cand, target, "cand")
    high = np.maximum(steps_ref, steps_cand).view(np.uint64)
    low = np.minimum(steps_ref, steps_cand).view(np.uint64)
    distance: NDArray[np.uint64] = high - low  # wraps to the right difference for either sign
    return distance


def _ordered(
    array: NDArray[Any], target: np.dtype[Any], side: str
) -> np.ndarray[Any, np.dtype[np.int64]]:
    with np.errstate(over="ignore"):
        rounded = np.ascontiguousarray(to_float64(array).astype(target))
    if not np.isfinite(rounded).all():
        count = int(np.count_nonzero(~np.isfinite(rounded)))
        msg = (
            f"ulp distance: {side} holds {count} of {rounded.size} values that are not "
            f"finite in {target.name}; settle non-finite values first"
        )
        raise InputError(msg)
    bits = rounded.view(_BITS[target.itemsize]).astype(np.int64)
    lowest = np.int64(np.iinfo(_BITS[target.itemsize]).min)
    ordered: NDArray[np.int64] = np.where(bits < 0, lowest - bits, bits)
    return ordered
