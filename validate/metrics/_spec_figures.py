"""Acceptance of both sides in figures: what a speed-up rests on."""

import numpy as np

from validate.metrics._spec_read import spec_side
from validate.metrics._spec_streams import SpecSide
from validate.schema import Pair

__all__ = ["acceptance_figures"]


def acceptance_figures(pair: Pair) -> dict[str, float]:
    """Acceptance length, tokens per target forward, and acceptance by draft index, by side and kind.

    A step is one forward of the target: it emits the accepted drafts and one token more. The
    acceptance of a draft index is the mean of its own decisions where it was reached.
    """
    shown: dict[str, float] = {}
    for role, side in (("cand", pair.cand), ("ref", pair.ref)):
        shown |= _figures(role, spec_side(pair, side))
    return shown


def _figures(role: str, side: SpecSide) -> dict[str, float]:
    shown = {}
    for drawn in side.kinds.values():
        steps = drawn.steps
        if steps is None or not len(steps):
            continue
        name, judged = f"{role}.{drawn.kind}", steps.judged
        shown[f"{name}.accepted_per_step"] = float(np.mean(steps.count))
        shown[f"{name}.tokens_per_forward"] = float(np.mean(steps.count)) + 1.0
        for row in range(judged.shape[1]):
            reached = judged[:, row]
            if reached.any():
                rate = float(np.mean(steps.accepts[reached, row]))
                shown[f"{name}.draft_{row + 1}"] = rate
        gap = steps.confidence[judged] - steps.expected[judged]
        if gap.size and np.isfinite(gap).all():
            shown[f"{name}.confidence_minus_acceptance"] = float(np.mean(gap))
    return shown
