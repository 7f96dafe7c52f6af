"""``speculative.audit``: is the state after a commit that of replaying the committed tokens?"""

from typing import NamedTuple

import numpy as np

from validate.metrics._reason import Reason, without_value
from validate.metrics._spec_inside import KIND, asked, cut
from validate.metrics._spec_streams import Column, SpecSide
from validate.metrics._spec_tests import judged_side
from validate.schema import Levels, Measurement, Pair, Worst

__all__ = ["speculative_audit"]

NAME = "speculative.audit"
TENSOR = f"spec.{KIND}.audit"
UNIT = "relative L2"


def speculative_audit(pair: Pair, levels: Levels) -> Measurement:
    """Largest relative L2 distance of a state after a commit from a replay of the committed tokens.

    KV, recurrent and convolution state after every verify step against a replay that feeds the
    committed tokens one at a time and carries a state of its own. A roll-back that forgets, or goes
    to the wrong step, shows at the accepted counts where it happens.

    Args:
        pair: The candidate's ``spec.spec-sampled.audit``.
        levels: Not used: a maximum is deterministic.

    Returns:
        Relative L2; ``n`` = steps. The breakdown holds the largest by accepted count and its mean.
        Undefined without audits.
    """
    del levels
    side = judged_side(pair)
    if isinstance(side, Reason):
        return without_value(NAME, side, unit=UNIT, n_of="steps")
    found = _audits(pair, side)
    if isinstance(found, Reason):
        return without_value(NAME, found, unit=UNIT, n_of="steps")
    audit, count, places = found
    per_step = np.max(audit, axis=1)
    at = int(np.argmax(np.where(np.isnan(per_step), np.inf, per_step)))
    state = int(np.argmax(np.where(np.isnan(audit[at]), np.inf, audit[at])))
    shown = {}
    for accepted in np.unique(count):
        shown[f"accepted_{int(accepted)}"] = float(np.max(per_step[count == accepted]))
        shown[f"accepted_{int(accepted)}.mean"] = float(np.mean(per_step[count == accepted]))
    return Measurement(
        metric=NAME,
        value=float(per_step[at]),
        unit=UNIT,
        n=len(per_step),
        n_of="steps",
        worst=Worst(
            prompt=places[at][0],
            position=places[at][1],
            place=f"state {state} after {int(count[at])} accepted drafts",
            value=float(per_step[at]),
        ),
        pattern=_where(per_step, count),
        breakdown=shown,
    )


class _Audits(NamedTuple):
    """Audits of all prompts, one entry a step."""

    audit: Column
    """[steps, states]"""
    accepted: Column
    """Drafts that were accepted."""
    places: list[tuple[str, int]]
    """Prompt, and position of the anchor."""


def _audits(pair: Pair, side: SpecSide) -> _Audits | Reason:
    drawn, states = side.kinds.get(KIND), _states(pair)
    sizes, counts, places = [], [], []
    for place, prompt in enumerate(pair.prompts):
        steps = None if drawn is None else drawn.steps_of(place)
        if steps is None or not len(steps) or not asked(pair, prompt, TENSOR):
            continue
        if why := cut(pair, prompt, TENSOR, wanted=len(steps), of="verify steps"):
            return why
        audit = np.asarray(pair.cand.tensor(prompt, TENSOR), np.float64)
        audit = np.where(audit < 0, np.nan, audit)  # no distance is negative
        if len(audit) != len(steps) or audit.ndim != 2:  # noqa: PLR2004  steps by states
            return Reason(
                f"{prompt}/{TENSOR}: {audit.shape} for {len(steps)} steps; one row a step", "unlike"
            )
        if audit.shape[1] != states:
            return Reason(
                f"{pair.cand.label}: {prompt}/{TENSOR} holds {audit.shape[1]} states, other audits "
                f"of this model {states}: states are missing; capture the prompt again, whole",
                "unlike",
            )
        sizes.append(audit)
        counts.append(steps.count)
        places += [(prompt, int(p)) for p in steps.place]
    if not places:
        return Reason(
            "no prompt holds an audit; capture prompts tagged 'speculative' and 'tensors'"
        )
    return _Audits(np.concatenate(sizes), np.concatenate(counts), places)


def _states(pair: Pair) -> int:
    """Most states that either side's audits hold of a step: both run one model, so all hold them."""
    held = [
        side.tensor(prompt, TENSOR).shape[1:]
        for side in (pair.ref, pair.cand)
        for prompt in pair.prompts
        if TENSOR in side.names(prompt)
    ]
    return max((shape[0] for shape in held if shape), default=0)


def _where(per_step: np.ndarray, count: np.ndarray) -> str | None:
    """The accepted count whose steps are furthest off, or that none is off at all."""
    if not per_step.any():
        return "every distance is exactly 0, as of states that are held against themselves"
    if np.isnan(per_step).any() or len(np.unique(count)) < 2:  # noqa: PLR2004  nothing to set apart
        return None
    means = {int(c): float(np.mean(per_step[count == c])) for c in np.unique(count)}
    top = max(means, key=lambda c: means[c])
    return f"largest after {top} accepted drafts (mean {means[top]:.3g})"
