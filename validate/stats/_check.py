"""What every estimator asks of its input: finite numbers, sane levels."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from validate.errors import InputError
from validate.schema import Levels

Numbers = Sequence[float | int] | NDArray[np.float64]


def finite(values: Numbers, *, name: str) -> NDArray[np.float64]:
    """One-dimensional float64 copy.

    Raises:
        InputError: It is not one-dimensional, or a value is NaN or infinite.
    """
    array = np.array(values, dtype=np.float64)
    if array.ndim != 1:
        msg = f"`{name}` must be one-dimensional, got shape {array.shape}"
        raise InputError(msg)
    bad = ~np.isfinite(array)
    if bad.any():
        first = int(np.argmax(bad))
        msg = (
            f"`{name}` holds {int(np.count_nonzero(bad))} of {array.size} values that are not "
            f"finite, the first at {first}: {array[first]}"
        )
        raise InputError(msg)
    return array


def check_levels(levels: Levels) -> None:
    """Refuse confidence levels outside (0, 1), NaN included.

    Raises:
        InputError: A level is not strictly between 0 and 1.
    """
    for name in ("low", "high"):
        level = getattr(levels, name)
        if not 0.0 < level < 1.0:
            msg = f"`levels.{name}` must lie strictly between 0 and 1, got {level}"
            raise InputError(msg)
