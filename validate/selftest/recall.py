"""Metrics that remember what they measured between captures that every case shares."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from validate.metrics import METRICS, Metric
from validate.schema import Levels, Measurement, Pair, Side

__all__ = ["recalling"]


def recalling(shared: Sequence[Side]) -> dict[str, Metric]:
    """All metrics; a pair of two of the ``shared`` sides is measured once.

    A metric is a function of its pair and levels alone, and ref and its repeats are the same
    captures in every case: only what involves cand is measured anew.

    Args:
        shared: Sides that stay the same; they must outlive the result.
    """
    known = {id(side) for side in shared}
    memory: dict[tuple[Any, ...], Measurement] = {}

    def measured(name: str, metric: Metric, pair: Pair, levels: Levels) -> Measurement:
        sides = [pair.ref, pair.cand, *pair.repeats]
        if any(id(side) not in known for side in sides):
            return metric(pair, levels)
        key = (name, levels, pair.near_tie, pair.route_gap, pair.prompts, *map(id, sides))
        if key not in memory:
            memory[key] = metric(pair, levels)
        return memory[key]

    made: dict[str, Callable[[Pair, Levels], Measurement]] = {
        name: partial(measured, name, metric) for name, metric in METRICS.items()
    }
    return made
