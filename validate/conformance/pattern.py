"""What failing sweep points and wrong coordinates have in common, in plain words.

Two sources. The axes of all points: conditions that every failing point meets and that
passing points do not, joined while they narrow the failure down. The wrong coordinates of
the breaches: ``heads >= 12``, ``only rows >= 1``, ``after a boundary of 64``.

A condition is told only if that many failing points would meet it by chance, were the
failing points drawn at random from all points, with probability at most ``CHANCE``.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from validate.conformance.records import Axis, Breach

__all__ = ["CHANCE", "Point", "find_patterns"]

CHANCE = 0.02
"""A coincidence of a failure with a condition at this level or above is not told."""
_MODULI = (2, 4, 8, 16, 32, 64)
_CONDITIONS = 3
_VALUES = 4
_LEAST_BOUNDARY = 8
_SERIAL = frozenset({"token", "position", "key", "step", "query"})
"""Coordinates along which something can start at a boundary and go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A sweep point that ran."""

    id: str
    axes: Mapping[str, Axis]
    breaches: tuple[Breach, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Condition:
    text: str
    meets: Callable[[Mapping[str, Axis]], bool]


def find_patterns(points: Sequence[Point]) -> tuple[str, ...]:
    """Say what the failing points share.

    Args:
        points: Every point that ran, passing ones too.

    Returns:
        Sentences, the most telling first; empty when nothing failed or nothing is shared.
    """
    failing = [point for point in points if point.breaches]
    if not failing:
        return ()
    told = list(_coordinate_patterns(failing))
    whole, exact = _axis_pattern(points, lambda point: bool(point.breaches))
    clauses = dict.fromkeys(breach.clause for point in failing for breach in point.breaches)
    apart: dict[str, list[str]] = {}
    if not exact and len(clauses) > 1:
        for clause in clauses:
            found, _ = _axis_pattern(points, lambda point, it=clause: _breaks(point, it))  # type: ignore[misc]
            if found is not None:
                apart.setdefault(found, []).append(clause)
    if apart:
        told += [f"{', '.join(names)}: {found}" for found, names in apart.items()]
    elif whole is not None:
        told.append(whole)
    return tuple(told)


def _breaks(point: Point, clause: str) -> bool:
    return any(breach.clause == clause for breach in point.breaches)


def _axis_pattern(
    points: Sequence[Point], fails: Callable[[Point], bool]
) -> tuple[str | None, bool]:
    """What failing points share along the axes, and whether it tells them from all others."""
    failing = [point for point in points if fails(point)]
    if len(failing) == len(points):
        every = f"every sweep point ({len(points)} of {len(points)})"
        return every if len(points) > 1 else None, True
    left = list(points)
    chosen: list[_Condition] = []
    while len(chosen) < _CONDITIONS and len(left) > len(failing):
        best = _best(left, failing)
        if best is None:
            break
        chosen.append(best)
        left = [point for point in left if best.meets(point.axes)]
    if not chosen:
        return None, False
    when = " and ".join(condition.text for condition in chosen)
    count = f"{len(failing)} of {len(left)} such points fail"
    exact = len(left) == len(failing)
    return f"only when {when}" + ("" if exact else f" ({count})"), exact


def _best(left: Sequence[Point], failing: Sequence[Point]) -> _Condition | None:
    """The condition that all failing points meet and the fewest others do."""
    best, fewest = None, len(left)
    for condition in _conditions(left, failing):
        met = sum(condition.meets(point.axes) for point in left)
        chance = math.comb(met, len(failing)) / math.comb(len(left), len(failing))
        if met < fewest and chance <= CHANCE:
            best, fewest = condition, met
    return best


def _conditions(left: Sequence[Point], failing: Sequence[Point]) -> Iterator[_Condition]:
    """Every condition along one axis that all failing points meet, the simplest first."""
    names = dict.fromkeys(
        name for point in left for name in point.axes if all(name in p.axes for p in left)
    )
    for name in names:
        found = list(dict.fromkeys(point.axes[name] for point in failing))
        others = {point.axes[name] for point in left} - set(found)
        if not others:
            continue
        flags = all(isinstance(value, bool) for value in (*found, *others))
        if flags:
            yield _Condition(
                text=f"with {name}" if found[0] else f"without {name}",
                meets=lambda axes, name=name, value=found[0]: axes[name] is value,  # type: ignore[misc]
            )
            continue
        if all(_is_number(value) for value in (*found, *others)):
            yield from _number_conditions(name, [v for v in found if _is_number(v)], others)
        if len(found) <= _VALUES:
            text = f"{name} = {_shown(found[0])}"
            if len(found) > 1:
                text = f"{name} in {{{', '.join(_shown(value) for value in _sorted(found))}}}"
            yield _Condition(
                text=text,
                meets=lambda axes, name=name, found=tuple(found): axes[name] in found,  # type: ignore[misc]
            )


def _number_conditions(
    name: str, found: Sequence[int | float | str], others: Iterable[Axis]
) -> Iterator[_Condition]:
    values = [float(value) for value in found]
    rest = [float(value) for value in others]
    low, high = min(values), max(values)
    if any(value < low for value in rest):
        below = max(value for value in rest if value < low)
        text = f"{name} > 1" if below == 1 else f"{name} >= {_shown(low)}"
        yield _Condition(
            text=text,
            meets=lambda axes: float(axes[name]) >= low,
        )
    if any(value > high for value in rest):
        yield _Condition(
            text=f"{name} {'=' if low == high else '<='} {_shown(high)}",
            meets=lambda axes: float(axes[name]) <= high,
        )
    if all(value == int(value) for value in (*values, *rest)):
        for modulus in _MODULI:
            inside = {value % modulus == 0 for value in values}
            if len(inside) == 1:
                wanted = inside.pop()
                yield _Condition(
                    text=f"{name} {'is' if wanted else 'is not'} a multiple of {modulus}",
                    meets=lambda axes, modulus=modulus, wanted=wanted: (  # type: ignore[misc]
                        (float(axes[name]) % modulus == 0) is wanted
                    ),
                )


def _coordinate_patterns(failing: Sequence[Point]) -> Iterator[str]:
    breaches = [breach for point in failing for breach in point.breaches]
    for axis in dict.fromkeys(name for breach in breaches for name in breach.wrong):
        here = [breach.wrong[axis] for breach in breaches if breach.wrong.get(axis)]
        if not here:
            continue
        starts = [min(wrong) for wrong in here]
        every = {value for wrong in here for value in wrong}
        boundary = math.gcd(*starts) & -math.gcd(*starts)
        if min(starts) > 0 and axis in _SERIAL and boundary >= _LEAST_BOUNDARY:
            yield f"{_plural(axis)} after a boundary of {boundary} (first at {min(starts)})"
        elif min(starts) > 0:
            one = len(every) == 1
            yield f"only {axis} {min(every)}" if one else f"only {_plural(axis)} >= {min(starts)}"
        elif every == {0} and _has_more(axis, failing):
            yield f"only {axis} 0"


def _has_more(axis: str, failing: Sequence[Point]) -> bool:
    """Whether some failing point has more than one of the coordinate, as its axes tell."""
    names = {_plural(axis), "batch"} if axis == "row" else {_plural(axis)}
    return any(
        isinstance(point.axes.get(name), int) and int(point.axes[name]) > 1
        for point in failing
        for name in names
    )


def _plural(axis: str) -> str:
    return "queries" if axis == "query" else f"{axis}s"


def _is_number(value: Axis) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _sorted(values: Iterable[Axis]) -> list[Axis]:
    return sorted(values, key=lambda value: (isinstance(value, str), str(value), value))


def _shown(value: Axis) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
