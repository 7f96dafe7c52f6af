"""A ``Measurement`` and a ``Limit`` in, a ``Verdict`` out; a gate never sees an array."""

from validate.gates.judge import judge
from validate.gates.noise import MIN_REPEATS, noise_floor, unit_roundoff
from validate.gates.outcome import gravest
from validate.gates.waive import overall, waive

__all__ = [
    "MIN_REPEATS",
    "gravest",
    "judge",
    "noise_floor",
    "overall",
    "unit_roundoff",
    "waive",
]
