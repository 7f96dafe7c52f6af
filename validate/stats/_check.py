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


def check_share(value: float, *, name: str) -> None:
    """Refuse a level, rate or margin outside (0, 1), NaN included.

    Raises:
        InputError: It is not strictly between 0 and 1.
    """
    if not 0.0 < value < 1.0:
        msg = f"`{name}` must lie strictly between 0 and 1, got {value}"
        raise InputError(msg)


def check_positive(value: float, *, name: str) -> None:
    """Refuse a number that is not above 0 and finite, NaN included.

    Raises:
        InputError: It is 0, negative, NaN or infinite.
    """
    if not 0.0 < value < np.inf:
        msg = f"`{name}` must be positive and finite, got {value}"
        raise InputError(msg)


def check_count(count: int, n: int, *, name: str = "count") -> None:
    """Refuse a count outside 0 to n.

    Raises:
        InputError: ``0 <= count <= n`` does not hold.
    """
    if not 0 <= count <= n:
        msg = f"`{name}` must lie between 0 and `n`, got {name}={count} and n={n}"
        raise InputError(msg)


def check_pairs(ref: NDArray[np.float64], cand: NDArray[np.float64]) -> None:
    """Refuse two sides of unlike length: a pair is never made up.

    Raises:
        InputError: The lengths differ.
    """
    if ref.size != cand.size:
        msg = f"`ref` holds {ref.size} units and `cand` {cand.size}; pairs need as many of each"
        raise InputError(msg)
