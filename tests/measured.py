"""The one array assertion of this test suite: it refuses NaN, emptiness and unlike shapes."""

from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


def assert_measured(actual: Any, expected: Any, *, atol: float, rtol: float) -> None:
    """Require ``|actual - expected| <= atol + rtol * |expected|`` everywhere, all finite."""
    a = np.asarray(actual, dtype=np.float64)
    e = np.asarray(expected, dtype=np.float64)
    assert a.shape == e.shape, f"shape {a.shape}, expected {e.shape}"
    assert a.size > 0, "nothing to compare: both are empty"
    assert np.isfinite(e).all(), f"expected holds {np.count_nonzero(~np.isfinite(e))} non-finite"
    assert np.isfinite(a).all(), f"actual holds {np.count_nonzero(~np.isfinite(a))} non-finite"
    err = np.abs(a - e)
    bound = atol + rtol * np.abs(e)
    worst = int(np.argmax(err - bound))
    at = tuple(int(i) for i in np.unravel_index(worst, e.shape))
    assert (err <= bound).all(), (
        f"{int((err > bound).sum())} of {e.size} outside atol={atol} rtol={rtol}; worst at {at}: "
        f"{a.flat[worst]!r}, expected {e.flat[worst]!r}, |diff| {err.flat[worst]:.3e}"
    )


def known(value: T | None) -> T:
    """The value, which must be there."""
    assert value is not None, "nothing was measured"
    return value
