"""Counts of non-finite values, told by place, side and kind."""

import numpy as np

from validate.metrics._finite import Findings
from validate.metrics._unmeasured import no_tensors, undefined
from validate.schema import Measurement, Worst

__all__ = ["measure_nonfinite"]

UNIT, N_OF = "values", "tensors"


def measure_nonfinite(metric: str, bad: Findings, *, tensors: int, what: str) -> Measurement:
    """Make the count of what was found.

    Args:
        metric: Name of the metric.
        bad: Every tensor in which some side holds a non-finite value.
        tensors: How many tensors were looked at, a side.
        what: The tensors in words.

    Returns:
        Deterministic count over ref and cand; undefined when no tensor was looked at.
    """
    if tensors == 0:
        return undefined(metric, no_tensors(what), unit=UNIT, n_of=N_OF)
    sides = {side: sum(one.counts.get(side, 0) for one in bad) for side in ("ref", "cand")}
    breakdown = {side: float(count) for side, count in sides.items()}
    breakdown["places unlike on the two sides"] = float(sum(one.unlike for one in bad))
    worst = None
    if bad:
        top = bad[int(np.argmax([sum(one.counts.values()) for one in bad]))]
        worst = Worst(
            prompt=top.prompt,
            place=f"{top.name} index {top.first}",
            value=float(sum(top.counts.values())),
            detail="; ".join(f"{side} {words}" for side, words in top.kinds.items()),
        )
    return Measurement(
        metric=metric,
        value=float(sides["ref"] + sides["cand"]),
        unit=UNIT,
        n=tensors,
        n_of=N_OF,
        worst=worst,
        breakdown=breakdown,
    )
