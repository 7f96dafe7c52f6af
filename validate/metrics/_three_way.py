"""Errors of ref and cand against the same truth, by tensor, head and prompt, and their ratio."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Integer
from numpy.typing import NDArray

from validate.metrics._later import Later
from validate.metrics._quartile import third_quartile
from validate.metrics._words import ratio
from validate.schema import Levels, Measurement, Worst

__all__ = [
    "UNIT",
    "Half",
    "PlaceErrors",
    "Ways",
    "add_errors",
    "add_halves",
    "half_of",
    "measure_ways",
]

UNIT = "err(cand) / err(ref)"
SIDES = ("ref", "cand")

Array = NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class PlaceErrors:
    """Both sides' squared errors of one tensor against the truth."""

    by_prompt: dict[str, Array] = field(default_factory=dict)
    """(4, heads): squared error of ref and cand, then squared truth of ref and of cand."""
    rows: Array = field(default_factory=lambda: np.zeros(2))
    """Largest squared error of one row, of ref and of cand."""
    at: tuple[str, int] | None = None
    """Prompt and position of cand's largest row error."""


@dataclass(slots=True, kw_only=True)
class Ways:
    """Errors by tensor name."""

    places: dict[str, PlaceErrors] = field(default_factory=dict)


class Half(NamedTuple):
    """One side's errors of one tensor of one prompt against its truth."""

    err2: Array
    """(heads,) squared error."""
    truth2: Array
    """(heads,) squared truth."""
    row2: float
    """Largest squared error of one row."""
    row: int
    """Which row that is."""


class Unit(NamedTuple):
    """One thing whose error is compared: a head over all rows, or the worst row of a tensor."""

    place: str
    ref: float
    cand: float
    at: tuple[str, int] | None


def add_errors(
    ways: Ways,
    name: str,
    *,
    prompt: str,
    positions: Integer[NDArray[Any], " rows"],
    ref: tuple[
        Float64[NDArray[Any], "rows heads value"], Float64[NDArray[Any], "rows heads value"]
    ],
    cand: tuple[
        Float64[NDArray[Any], "rows heads value"], Float64[NDArray[Any], "rows heads value"]
    ],
) -> None:
    """Add one prompt's rows of one tensor.

    Args:
        ways: Where to add.
        name: Tensor name.
        prompt: Prompt id.
        positions: Position of each row.
        ref: Ref's values, and the truth for ref.
        cand: Cand's values, and the truth for cand.
    """
    add_halves(
        ways,
        name,
        prompt=prompt,
        positions=positions,
        ref=half_of(*ref),
        cand=half_of(*cand),
    )


def half_of(
    got: Float64[NDArray[Any], "rows heads value"], true: Float64[NDArray[Any], "rows heads value"]
) -> Half:
    """One side's errors of one prompt's rows of one tensor.

    Args:
        got: The side's values.
        true: What they should be.
    """
    err = got - true
    err2 = np.einsum("rhv,rhv->rh", err, err)
    by_row = err2.sum(axis=1)
    row = int(np.argmax(by_row)) if by_row.size else 0
    return Half(
        err2=err2.sum(axis=0),
        truth2=np.einsum("rhv,rhv->h", true, true),
        row2=float(by_row[row]) if by_row.size else 0.0,
        row=row,
    )


def add_halves(
    ways: Ways,
    name: str,
    *,
    prompt: str,
    positions: Integer[NDArray[Any], " rows"],
    ref: Half,
    cand: Half,
) -> None:
    """Add one prompt's rows of one tensor, whose errors are known side by side.

    Args:
        ways: Where to add.
        name: Tensor name.
        prompt: Prompt id.
        positions: Position of each row.
        ref: Errors of ref.
        cand: Errors of cand.
    """
    if positions.size == 0:
        return
    place = ways.places.setdefault(name, PlaceErrors())
    sums = np.stack([ref.err2, cand.err2, ref.truth2, cand.truth2])
    place.by_prompt[prompt] = place.by_prompt.get(prompt, np.zeros_like(sums)) + sums
    if place.at is None or not cand.row2 <= place.rows[1]:
        place.at = prompt, int(positions[cand.row])
    place.rows = np.maximum(place.rows, (ref.row2, cand.row2))


def measure_ways(
    metric: str,
    ways: Ways,
    levels: Levels,
    *,
    shown: Mapping[str, Ways],
    extra: Mapping[str, float],
) -> Measurement:
    """Ratio of the two errors, paired by prompt, and its worst unit.

    A prompt's error is ``sqrt(mean over tensors of sum err^2 / sum truth^2)``, so that every
    layer and mode weighs the same. Units are heads (pooled over prompts and rows) and the
    worst row of each tensor (cand's largest row error over ref's largest).

    Args:
        metric: Name of the metric.
        ways: Errors that make the value; at least one place.
        levels: Confidence levels of the interval.
        shown: Errors to break down, by word put before their place's name.
        extra: Further companions for the breakdown.

    Returns:
        Third quartile of the prompts' ratios with order-statistic limits; n = prompts;
        ``worst_value`` is the largest ratio of a unit. Undefined where an error of ref is
        exactly 0 (nothing to divide by) or an error is not finite.
    """
    by_prompt = _by_prompt(ways)
    numbers = np.array(list(by_prompt.values()))
    units = list(_units(ways))
    more = dict(extra)
    breakdown = Later(lambda: {**_breakdown(shown, levels), **more})
    why = _why_undefined(by_prompt, units)
    if why is not None:
        return Measurement(
            metric=metric,
            value=None,
            unit=UNIT,
            n=len(by_prompt),
            n_of="prompts",
            why_undefined=why,
            breakdown=breakdown,
        )
    compared = [unit for unit in units if unit.ref > 0]
    ratios = [unit.cand / unit.ref for unit in compared]
    top = int(np.argmax(ratios))
    more["units exact on both sides"] = float(len(units) - len(compared))
    quartile = third_quartile(numbers[:, 1] / numbers[:, 0], levels=levels)
    return Measurement(
        metric=metric,
        value=quartile.value,
        unit=UNIT,
        n=len(by_prompt),
        n_of="prompts",
        interval=quartile.interval,
        worst=_worst(compared[top], ratios[top]),
        worst_value=ratios[top],
        breakdown=breakdown,
        n_needed=quartile.n_needed,
        pooled=len(by_prompt),
    )


def _worst(unit: Unit, value: float) -> Worst:
    prompt, position = unit.at or (None, None)
    return Worst(
        prompt=prompt,
        position=position,
        place=unit.place,
        value=value,
        detail=f"error of ref {unit.ref:.4g}, of cand {unit.cand:.4g}",
    )


def _by_prompt(ways: Ways) -> dict[str, Array]:
    """Relative errors (ref, cand) by prompt, every tensor weighing the same."""
    shares: dict[str, list[Array]] = {}
    for place in ways.places.values():
        for prompt, sums in place.by_prompt.items():
            shares.setdefault(prompt, []).append(ratio(sums[:2].sum(axis=1), sums[2:].sum(axis=1)))
    return {prompt: np.sqrt(np.mean(np.square(many), axis=0)) for prompt, many in shares.items()}


def _units(ways: Ways) -> Iterator[Unit]:
    for name, place in ways.places.items():
        total = np.sum(list(place.by_prompt.values()), axis=0)
        heads = total.shape[1]
        errors = ratio(total[:2], total[2:])
        for head in range(heads):
            where = f"{name} head {head}" if heads > 1 else name
            yield Unit(where, float(errors[0, head]), float(errors[1, head]), None)
        rows = np.sqrt(place.rows)
        yield Unit(f"{name} worst row", float(rows[0]), float(rows[1]), place.at)


def _why_undefined(by_prompt: Mapping[str, Array], units: list[Unit]) -> str | None:
    """Why there is no ratio, in one sentence; None when there is one."""
    for prompt, errors in by_prompt.items():
        for side, err in zip(SIDES, errors, strict=True):
            if not math.isfinite(err):
                return f"the oracle is all zero where {side} is not, in prompt {prompt}"
            if err == 0:
                return f"the error of {side} is exactly 0 in prompt {prompt}: nothing to divide"
    return _unit_undefined(units)


def _unit_undefined(units: list[Unit]) -> str | None:
    for unit in units:
        if not math.isfinite(unit.ref) or not math.isfinite(unit.cand):
            return f"the oracle is all zero at {unit.place}"
        if unit.ref == 0 and unit.cand != 0:
            return f"the error of ref is exactly 0 at {unit.place} and that of cand is not"
    return None if any(unit.ref > 0 for unit in units) else "no unit has an error on ref's side"


def _breakdown(shown: Mapping[str, Ways], levels: Levels) -> dict[str, float]:
    """Both sides' errors, their ratio and its limits, by tensor and by head."""
    made: dict[str, float] = {}
    for word, ways in shown.items():
        for name, place in ways.places.items():
            sums = np.array(list(place.by_prompt.values()))
            title = f"{word}{name.removesuffix('.out')}"
            made |= _compared(title, sums.sum(axis=2), levels)
            if sums.shape[2] > 1:
                for head in range(sums.shape[2]):
                    made |= _compared(f"{title} head {head}", sums[:, :, head], levels)
    return made


def _compared(title: str, sums: Array, levels: Levels) -> dict[str, float]:
    """Errors of both sides and, where every prompt has some, the paired ratio.

    Args:
        title: What it is.
        sums: (prompts, 4) squared errors of ref and cand, then their squared truths.
        levels: Confidence levels of the limits.
    """
    total = sums.sum(axis=0)
    both = ratio(total[:2], total[2:])
    made = {f"{title} {side}": float(err) for side, err in zip(SIDES, both, strict=True)}
    errors = ratio(sums[:, :2], sums[:, 2:])
    if np.isfinite(errors).all() and (errors > 0).all():
        found = third_quartile(errors[:, 1] / errors[:, 0], levels=levels)
        limits = found.interval
        named = {"ratio": found.value, "ratio low": limits.low, "ratio high": limits.high}
        made |= {f"{title} {key}": one for key, one in named.items() if one is not None}
    return {key: one for key, one in made.items() if math.isfinite(one)}
