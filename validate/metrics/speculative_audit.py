"""``speculative.audit``: is the state after a commit that of replaying the committed tokens?"""

import numpy as np

from validate.metrics._reason import Reason, without_value
from validate.metrics._spec_inside import KIND
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
    drawn = side.kinds.get(KIND)
    sizes, counts, places = [], [], []
    for place, prompt in enumerate(pair.prompts):
        if drawn is None or drawn.steps is None or TENSOR not in pair.cand.names(prompt):
            continue
        steps = drawn.steps.where(drawn.steps.prompt == place)
        audit = np.asarray(pair.cand.tensor(prompt, TENSOR), np.float64)
        audit = np.where(audit < 0, np.nan, audit)  # no distance is negative
        if len(audit) != len(steps) or audit.ndim != 2:  # noqa: PLR2004  steps by states
            reason = Reason(
                f"{prompt}/{TENSOR}: {audit.shape} for {len(steps)} steps; one row a step", "unlike"
            )
            return without_value(NAME, reason, unit=UNIT, n_of="steps")
        sizes.append(audit)
        counts.append(steps.count)
        places += [(prompt, int(p)) for p in steps.place]
    if not places:
        reason = Reason(
            "no prompt holds an audit; capture prompts tagged 'speculative' and 'tensors'"
        )
        return without_value(NAME, reason, unit=UNIT, n_of="steps")
    audit, count = np.concatenate(sizes), np.concatenate(counts)
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


def _where(per_step: np.ndarray, count: np.ndarray) -> str | None:
    """The accepted count whose steps are furthest off."""
    if np.isnan(per_step).any() or len(np.unique(count)) < 2:  # noqa: PLR2004  nothing to set apart
        return None
    means = {int(c): float(np.mean(per_step[count == c])) for c in np.unique(count)}
    top = max(means, key=lambda c: means[c])
    return f"largest after {top} accepted drafts (mean {means[top]:.3g})"
