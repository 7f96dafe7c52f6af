"""Non-finite values, counted by kind and with their first place, before any arithmetic."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Shaped
from numpy.typing import NDArray

from validate.numerics.formats import to_float64

__all__ = ["NonFinite", "count_nonfinite", "unlike_nonfinite"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFinite:
    """How many values of an array are not finite, by kind."""

    size: int
    """Values looked at."""
    nan: int
    positive: int
    """Count of +inf."""
    negative: int
    """Count of -inf."""
    first: tuple[int, ...] | None
    """Index of the first one in row-major order; None when all are finite."""

    @property
    def total(self) -> int:
        """NaN and infinities of both signs together."""
        return self.nan + self.positive + self.negative


def count_nonfinite(array: Shaped[NDArray[Any], "..."]) -> NonFinite:
    """Count NaN, +inf and -inf of one array of any float dtype.

    Raises:
        InputError: The array is not of a float format.
    """
    values = to_float64(array)
    finite = np.isfinite(values)
    if finite.all():
        return NonFinite(size=values.size, nan=0, positive=0, negative=0, first=None)
    return NonFinite(
        size=values.size,
        nan=int(np.count_nonzero(np.isnan(values))),
        positive=int(np.count_nonzero(values == np.inf)),
        negative=int(np.count_nonzero(values == -np.inf)),
        first=first_index(~finite),
    )


def unlike_nonfinite(
    ref: Shaped[NDArray[Any], "..."], cand: Shaped[NDArray[Any], "..."]
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Places where the two sides are not finite in the same way; the sign of infinities counts.

    NaN on both sides counts as unlike: a NaN stands for no value, so it can't agree.
    """
    left, right = to_float64(ref), to_float64(cand)
    either = ~np.isfinite(left) | ~np.isfinite(right)
    unlike: NDArray[np.bool_] = either & ~(left == right)
    return unlike


def first_index(mask: NDArray[np.bool_]) -> tuple[int, ...] | None:
    """Index of the first True in row-major order, None when there is none."""
    if not mask.any():
        return None
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(mask)), mask.shape))
