"""Renorm rows against the logits that they must come from, on one side."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validate.numerics import to_float64, unit_roundoff
from validate.schema import Side

__all__ = ["untied"]

RELATIVE, ABSOLUTE = 1e-5, 1e-9
"""What a float32 softmax may be off by: 2^-24 times the distance of a logit to the largest (30
nats: 2e-6) and the sum's rounding, with room; and entries so small that nothing follows."""


def untied(side: Side, prompt: str, held: Mapping[str, NDArray[Any]]) -> str | None:
    """The first row of ``renorm.in`` that is not the softmax of the side's own logits row.

    Args:
        side: The side that holds the rows.
        prompt: Their prompt.
        held: Its renorm tensors by the name after ``renorm.``; their form was checked.

    Returns:
        The place and both values; None where every row whose position the side's full
        ``logits`` hold is their softmax. A row that holds NaN or infinities is left to
        ``renorm.nonfinite``.
    """
    if not {"logits", "logits.positions"} <= set(side.names(prompt)):
        return None
    stored = [int(place) for place in side.tensor(prompt, "logits.positions")]
    logits = to_float64(side.tensor(prompt, "logits"))
    given = to_float64(held["in"])
    relative = RELATIVE + unit_roundoff(held["in"].dtype.name)
    for row, position in enumerate(int(place) for place in held["positions"]):
        if position not in stored or not np.isfinite(given[row]).all():
            continue
        one = logits[stored.index(position)]
        if len(one) != given.shape[1]:
            return f"renorm.in row {row} has {given.shape[1]} entries, logits {len(one)}"
        if np.isnan(one).any() or np.isposinf(one).any():
            continue
        expected = _softmax(one)
        off = ~(np.abs(given[row] - expected) <= relative * expected + ABSOLUTE)
        if off.any():
            first = int(np.flatnonzero(off)[0])
            return (
                f"renorm.in row {row} (position {position}) is not the softmax of its own logits: "
                f"id {first} has probability {given[row, first]:.6g}, its logits give "
                f"{expected[first]:.6g} ({int(off.sum())} of {len(one)} ids differ)"
            )
    return None


def _softmax(row: NDArray[np.float64]) -> NDArray[np.float64]:
    """Softmax of one row; NaN throughout where the row has NaN, +inf or -inf alone."""
    with np.errstate(invalid="ignore"):
        weights = np.exp(row - row.max())
        return np.asarray(weights / weights.sum())
