"""Ratios of sums that never divide by zero, and short words for indices and errors."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

__all__ = ["clean_text", "ranges", "ratio"]


def ratio(
    err2: Float64[NDArray[Any], "..."], ref2: Float64[NDArray[Any], "..."]
) -> Float64[NDArray[Any], "..."]:
    """Relative L2 errors ``sqrt(err2 / ref2)`` from sums of squares.

    Returns:
        Exactly 0 where ``err2`` is 0, also where both are; ``inf`` where ``ref2`` alone is 0;
        NaN where ``err2`` is NaN.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        made: NDArray[np.float64] = np.where(err2 == 0, 0.0, np.sqrt(err2 / ref2))
    return made


def ranges(numbers: Iterable[Any]) -> str:
    """Ascending integers as ranges: ``0-2,7,11``.

    Example:
        >>> ranges([12, 13, 14, 15]), ranges([3, 7, 11]), ranges([0, 1])
        ('12-15', '3,7,11', '0,1')
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and int(number) == runs[-1][1] + 1:
            runs[-1][1] = int(number)
        else:
            runs.append([int(number), int(number)])
    parts = []
    for low, high in runs:
        if high - low > 1:
            parts.append(f"{low}-{high}")
        else:
            parts += [str(low)] if low == high else [str(low), str(high)]
    return ",".join(parts)


def clean_text(errors: Float64[NDArray[Any], " n"]) -> str:
    """``exact`` when every error is 0, else the largest of them."""
    worst = float(errors.max())
    return "exact" if worst == 0 else f"within {worst:.2g}"
