"""From numbers to places on a canvas: linear and logarithmic scales with their ticks."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from validate.gates.outcome import number

__all__ = ["Scale", "Tick", "every", "linear", "logarithmic"]

TICKS = 5
"""About as many ticks as a linear scale gets."""
DECADES = 8
"""Decades up to which a logarithmic scale has a tick in each, and most that it spans."""
NICE = (1.0, 2.0, 2.5, 5.0, 10.0)


class Tick(NamedTuple):
    """One tick."""

    at: float
    label: str


class Scale(NamedTuple):
    """Values in ``[low, high]`` on pixels ``[start, end]``; values outside lie on the edge."""

    low: float
    high: float
    start: float
    end: float
    log: bool
    ticks: tuple[Tick, ...]

    def at(self, value: float) -> float:
        """Pixel of a value, to a tenth."""
        low, high = self.low, self.high
        if self.log:
            value = math.log(value) if value > 0 else math.log(low)
            low, high = math.log(low), math.log(high)
        share = (value - low) / (high - low)
        inside = 0.0 if share < 0 else 1.0 if share > 1 else share
        return round(self.start + inside * (self.end - self.start), 1)


def linear(values: Iterable[float], *, start: float, end: float, zero: bool = True) -> Scale:
    """A linear scale over ``values``, from 0 where ``zero``, to the tick above the largest.

    Example:
        >>> [tick.label for tick in linear([0.1, 0.42], start=0.0, end=100.0).ticks]
        ['0', '0.1', '0.2', '0.3', '0.4', '0.5']
    """
    known = [*values, *([0.0] if zero else [])]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    if not high > low:
        high = low + (abs(low) or 1.0)
    step = _step((high - low) / TICKS)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    scale = Scale(first * step, last * step, start, end, log=False, ticks=())
    marks = [place * step for place in range(first, last + 1)]
    return scale._replace(ticks=tuple(Tick(scale.at(mark), number(mark)) for mark in marks))


def _step(wanted: float) -> float:
    power = 10.0 ** math.floor(math.log10(wanted))
    return next(nice for nice in NICE if nice * power >= wanted * (1 - 1e-9)) * power


def logarithmic(values: Iterable[float], *, start: float, end: float) -> Scale:
    """A scale in whole decades over the positive ``values``, the uppermost ``DECADES`` at most.

    Example:
        >>> [tick.label for tick in logarithmic([0.003, 0.2], start=0.0, end=100.0).ticks]
        ['0.001', '0.01', '0.1', '1']
    """
    known = [value for value in values if value > 0]
    if not known:
        return linear([], start=start, end=end)
    top = math.ceil(math.log10(max(known)) - 1e-9)
    bottom = math.floor(math.log10(min(known)) + 1e-9)
    bottom = max(min(bottom, top - 1), top - DECADES)
    scale = Scale(10.0**bottom, 10.0**top, start, end, log=True, ticks=())
    marks = [10.0**power for power in range(bottom, top + 1)]
    if top - bottom == 1:
        marks = [mark * factor for mark in marks[:-1] for factor in (1, 2, 5)] + marks[-1:]
    return scale._replace(ticks=tuple(Tick(scale.at(mark), number(mark)) for mark in marks))


def every(labels: Sequence[str], *, most: int) -> list[bool]:
    """Which labels of a crowded axis are written: every n-th, from the first.

    Example:
        >>> every(["a", "b", "c", "d", "e"], most=3)
        [True, False, True, False, True]
    """
    stride = -(-len(labels) // most) or 1
    return [place % stride == 0 for place in range(len(labels))]
