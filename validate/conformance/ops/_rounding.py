"""Judging values against the oracle by a model of rounding: worst element, worst row, bulk.

An operation gives, for every output value, the *scale* of the error that correct
rounding makes there: one standard contribution of each rounding, added in quadrature
(Higham and Mary 2019, SIAM J. Sci. Comput. 41(5): roundings that are independent in the
mean grow like the root of their number). Three multiples of it are limits: of a single
value, of the length of a row, of the length of everything. A lost row is invisible in the
bulk, a small bias everywhere is invisible in any one row: neither replaces the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from validate.conformance.records import Breach
from validate.numerics import to_float64, unit_roundoff

__all__ = ["CLAUSES", "Expected", "Multiples", "joined", "judge", "largest_ratios", "roundoff_of"]

Array = NDArray[np.float64]

CLAUSES: Mapping[str, str] = {
    "finite": "Where the oracle is finite, so is the output.",
    "element": "No value is further from the oracle than a multiple of its rounding error.",
    "worst-row": "No row is further from the oracle (L2) than a multiple of its rounding error.",
    "bulk": "All values together (L2) are within a multiple of their rounding error.",
}
"""Clauses that ``judge`` can break."""

_SHOWN = 256
"""Most coordinates listed on one axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiples:
    """How many times the modelled rounding error is still rounding."""

    element: float = 8.0
    row: float = 4.0
    bulk: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the oracle says of one output."""

    values: Array
    """Float64 values."""
    scale: Array
    """Error that rounding makes at each value, same shape; 0 demands equality."""
    axes: tuple[str, ...]
    """Name of each axis; the last one runs inside a row."""


def roundoff_of(array: np.ndarray | str) -> float:
    """Unit roundoff of an array's float dtype, or of a dtype by name."""
    return unit_roundoff(array if isinstance(array, str) else array.dtype.name)


def largest_ratios(expected: Expected, got: np.ndarray) -> tuple[float, float, float]:
    """Error over modelled rounding error: worst element, worst row, bulk; inf where not finite."""
    err = np.abs(to_float64(got) - expected.values)
    if not np.isfinite(err).all():
        return np.inf, np.inf, np.inf
    if err.size == 0:
        return 0.0, 0.0, 0.0
    by_row = _ratio(_length(err), _length(expected.scale))
    bulk = _ratio(_length(err.reshape(-1)), _length(expected.scale.reshape(-1)))
    return float(np.max(_ratio(err, expected.scale))), float(np.max(by_row)), float(bulk)


def joined(parts: Sequence[Expected]) -> Expected:
    """Parts one after another along the first axis."""
    return Expected(
        values=np.concatenate([part.values for part in parts]),
        scale=np.concatenate([part.scale for part in parts]),
        axes=parts[0].axes,
    )


def judge(
    name: str,
    expected: Expected,
    got: np.ndarray,
    *,
    place: str = "",
    multiples: Multiples | None = None,
) -> tuple[Breach, ...]:
    """Every clause of ``CLAUSES`` that one output breaks.

    Args:
        name: Output, for the words.
        expected: Oracle values and scale of the rounding error.
        got: What the implementation gave, any float dtype, the shape of ``expected``.
        place: Where in the sweep point, e.g. ``"row alone"``; empty for the plain call.
        multiples: Limits in units of the modelled error; the defaults when None.

    Returns:
        Breaches, the non-finite one alone if there is one: no number is drawn from NaN.

    Numerics:
        Float64 after exact widening. An error of 0 where the scale is 0 is a ratio of 0;
        any other error there is infinite.
    """
    limits = multiples or Multiples()
    values = to_float64(got)
    what = f"output '{name}'{f' ({place})' if place else ''}"
    wrong = ~np.isfinite(values) & np.isfinite(expected.values)
    if wrong.any():
        at = _first(wrong)
        words = (
            f"{what}: {int(wrong.sum())} of {values.size} values are not finite, the first "
            f"({values[at]}) at {_named(expected.axes, at)}; the oracle has {expected.values[at]:.4g}"
        )
        return (_breach("finite", words, expected.axes, at, wrong),)
    if values.size == 0:
        return ()
    err = np.abs(values - expected.values)
    ratio = _ratio(err, expected.scale)
    by_row = _ratio(_length(err), _length(expected.scale))
    found = []
    over = ~(ratio <= limits.element)
    if over.any():
        at = _worst(ratio)
        words = (
            f"{what}: {int(over.sum())} of {values.size} values off; worst at "
            f"{_named(expected.axes, at)}: {values[at]:.4g}, oracle {expected.values[at]:.4g}, "
            f"error {err[at]:.3g}, limit {limits.element * expected.scale[at]:.3g}"
        )
        found.append(_breach("element", words, expected.axes, at, over, ratio[at] / limits.element))
    over = ~(by_row <= limits.row)
    if over.any():
        at = _worst(by_row)
        axes = expected.axes[:-1]
        words = (
            f"{what}: {int(over.sum())} of {by_row.size} rows off; worst at "
            f"{_named(axes, at)}: rel-L2 {_relative(err[at], expected.values[at])}, error "
            f"{float(_length(err)[at]):.3g}, limit {limits.row * float(_length(expected.scale)[at]):.3g}"
        )
        found.append(_breach("worst-row", words, axes, at, over, by_row[at] / limits.row))
    total, allowed = float(np.sqrt(np.sum(err**2))), float(np.sqrt(np.sum(expected.scale**2)))
    bulk = float(_ratio(np.asarray(total), np.asarray(allowed)))
    if not bulk <= limits.bulk:
        words = (
            f"{what}: everything together is off by rel-L2 {_relative(err, expected.values)}; "
            f"error {total:.3g}, limit {limits.bulk * allowed:.3g}"
        )
        found.append(Breach(clause="bulk", what=words, ratio=bulk / limits.bulk))
    return tuple(found)


def _ratio(err: Array, scale: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Array = np.where(err == 0, 0.0, err / scale)
    return ratio


def _length(values: Array) -> Array:
    return np.asarray(np.sqrt(np.sum(values**2, axis=-1)))


def _relative(err: Array, values: Array) -> str:
    base = float(np.sqrt(np.sum(values**2)))
    return f"{float(np.sqrt(np.sum(err**2))) / base:.3g}" if base > 0 else "undefined (oracle 0)"


def _first(mask: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(mask)), mask.shape))


def _worst(ratio: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(ratio)), ratio.shape))


def _named(axes: Sequence[str], at: Sequence[int]) -> str:
    return ", ".join(f"{axis} {i}" for axis, i in zip(axes, at, strict=True)) or "the only row"


def _breach(
    clause: str,
    what: str,
    axes: Sequence[str],
    at: Sequence[int],
    over: np.ndarray,
    ratio: float | None = None,
) -> Breach:
    places = np.nonzero(over) if over.ndim else ()
    wrong = {
        axis: tuple(int(i) for i in np.unique(place)[:_SHOWN])
        for axis, place in zip(axes, places, strict=True)
    }
    return Breach(
        clause=clause,
        what=what,
        at=dict(zip(axes, at, strict=True)),
        wrong=wrong,
        ratio=None if ratio is None else float(ratio),
    )
