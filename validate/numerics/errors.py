"""Error measures of one tensor against another: relative L2, scale and offset, worst place."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Shaped
from numpy.typing import NDArray

from validate.errors import InputError
from validate.numerics.formats import to_float64

__all__ = [
    "ScaleFit",
    "max_abs_err",
    "mismatch_share",
    "nmse",
    "rel_l2",
    "scale_fit",
    "worst_index",
]

Axes = tuple[int, ...] | int | None
"""Axes to reduce over; None reduces all of them to a zero-dimensional array."""


class ScaleFit(NamedTuple):
    """Least-squares fits of cand by ref; each field has the shape of the axes that were kept."""

    scale: Float64[NDArray[Any], "..."]
    """Alpha of ``cand ~ alpha * ref``; 1 when equal. NaN where ref is all zero (undefined)."""
    slope: Float64[NDArray[Any], "..."]
    """Slope of ``cand ~ slope * ref + offset``. NaN where ref is constant (undefined)."""
    offset: Float64[NDArray[Any], "..."]
    """Offset of that line, in the unit of the tensor. NaN where ref is constant (undefined)."""


def rel_l2(
    ref: Shaped[NDArray[Any], "..."], cand: Shaped[NDArray[Any], "..."], axes: Axes = None
) -> Float64[NDArray[Any], "..."]:
    """``||cand - ref|| / ||ref||`` over ``axes``; 1 means an error as large as the reference.

    Args:
        ref: Reference values, any float dtype.
        cand: Candidate values, same shape.
        axes: Axes to reduce over, all when None.

    Returns:
        One ratio for each kept index. Exactly 0 where both sides are equal, also where both are
        zero; ``inf`` where ref is all zero and cand is not.

    Raises:
        InputError: The shapes differ, nothing is reduced over, or a value is not finite.
    """
    left, right = _finite_pair(ref, cand, axes)
    err = _norm(right - left, axes)
    base = _norm(left, axes)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: NDArray[np.float64] = np.where(err == 0, 0.0, err / base)
    return np.asarray(ratio)


def nmse(
    ref: Shaped[NDArray[Any], "..."], cand: Shaped[NDArray[Any], "..."], axes: Axes = None
) -> Float64[NDArray[Any], "..."]:
    """``sum (cand - ref)^2 / sum ref^2``, the square of ``rel_l2``; as in llama.cpp's backend tests."""
    return np.asarray(rel_l2(ref, cand, axes) ** 2)


def max_abs_err(
    ref: Shaped[NDArray[Any], "..."], cand: Shaped[NDArray[Any], "..."], axes: Axes = None
) -> Float64[NDArray[Any], "..."]:
    """Greatest ``|cand - ref|`` over ``axes``, in the unit of the tensor.

    Raises:
        InputError: The shapes differ, nothing is reduced over, or a value is not finite.
    """
    left, right = _finite_pair(ref, cand, axes)
    return np.asarray(np.max(np.abs(right - left), axis=axes))


def mismatch_share(
    ref: Shaped[NDArray[Any], "..."], cand: Shaped[NDArray[Any], "..."], *, atol: float, rtol: float
) -> float:
    """Share of values outside ``|cand - ref| <= atol + rtol * |ref|``.

    Raises:
        InputError: The shapes differ, the arrays are empty, or a value is not finite.
    """
    left, right = _finite_pair(ref, cand, None)
    inside = np.abs(right - left) <= atol + rtol * np.abs(left)
    return 1.0 - int(np.count_nonzero(inside)) / left.size


def scale_fit(
    ref: Shaped[NDArray[Any], "..."], cand: Shaped[NDArray[Any], "..."], axes: Axes = None
) -> ScaleFit:
    """Least-squares scale, and scale with offset, of cand by ref over ``axes``.

    A wrong softmax scale or a doubled merge weight shows here while the cosine stays at 1.

    Raises:
        InputError: The shapes differ, nothing is reduced over, or a value is not finite.

    Source:
        Normal equations of one-parameter and two-parameter least squares;
        checked against ``numpy.linalg.lstsq``.
    """
    left, right = _finite_pair(ref, cand, axes)
    unit = np.max(np.abs(left), axis=axes, keepdims=True)  # squares neither overflow nor vanish
    unit = np.where(unit == 0, 1.0, unit)
    left, right = left / unit, right / unit
    mean_left = np.mean(left, axis=axes, keepdims=True)
    mean_right = np.mean(right, axis=axes, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.sum(left * right, axis=axes) / np.sum(left * left, axis=axes)
        spread = np.sum((left - mean_left) ** 2, axis=axes)
        slope = np.sum((left - mean_left) * (right - mean_right), axis=axes) / spread
    kept_left, kept_right = np.squeeze(mean_left, axis=axes), np.squeeze(mean_right, axis=axes)
    offset = (kept_right - slope * kept_left) * np.squeeze(unit, axis=axes)
    return ScaleFit(np.asarray(scale), np.asarray(slope), np.asarray(offset))


def worst_index(err: Shaped[NDArray[Any], "..."]) -> tuple[int, ...]:
    """Index of the greatest value; the first in row-major order among equals.

    Raises:
        InputError: The array is empty or holds NaN, for which no place is the worst.
    """
    values = to_float64(err)
    if values.size == 0:
        msg = f"worst_index: the array of shape {values.shape} is empty"
        raise InputError(msg)
    if np.isnan(values).any():
        count = int(np.count_nonzero(np.isnan(values)))
        msg = f"worst_index: {count} of {values.size} values are NaN; settle them first"
        raise InputError(msg)
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(values)), values.shape))


def _norm(values: NDArray[np.float64], axes: Axes) -> NDArray[np.float64]:
    unit = np.max(np.abs(values), axis=axes, keepdims=True)  # squares neither overflow nor vanish
    unit = np.where(unit == 0, 1.0, unit)
    scaled = np.sum((values / unit) ** 2, axis=axes)
    norm: NDArray[np.float64] = np.asarray(np.sqrt(scaled) * np.squeeze(unit, axis=axes))
    return norm


def _finite_pair(
    ref: NDArray[Any], cand: NDArray[Any], axes: Axes
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if ref.shape != cand.shape:
        msg = f"errors: ref has shape {ref.shape}, cand has shape {cand.shape}"
        raise InputError(msg)
    over = range(ref.ndim) if axes is None else (axes,) if isinstance(axes, int) else axes
    if any(ref.shape[axis] == 0 for axis in over):
        msg = f"errors: nothing to compare over axes {axes} of shape {ref.shape}"
        raise InputError(msg)
    sides = to_float64(ref), to_float64(cand)
    for name, values in zip(("ref", "cand"), sides, strict=True):
        bad = ~np.isfinite(values)
        if bad.any():
            at = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
            msg = (
                f"errors: {name} holds {int(np.count_nonzero(bad))} of {values.size} values that "
                f"are not finite, the first at {at}; settle non-finite values first"
            )
            raise InputError(msg)
    return sides
