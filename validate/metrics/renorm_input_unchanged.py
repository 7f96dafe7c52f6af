"""``renorm.input_unchanged``: the op leaves the probabilities it was handed as they were."""

from validate.metrics._reason import Reason, without_value
from validate.metrics._renorm import both
from validate.schema import Levels, Measurement, Pair, Worst

__all__ = ["renorm_input_unchanged"]

METRIC, UNIT, N_OF = "renorm.input_unchanged", "prompts", "prompts"


def renorm_input_unchanged(pair: Pair, _levels: Levels) -> Measurement:
    """Count cand's prompts whose input rows were other bytes after the op than before.

    The capture holds the rows as they were handed over and a SHA-256 of the same memory, read
    again after the call.

    Args:
        pair: Ref and cand.
        _levels: Not used: a count over all that was captured has no interval.

    Returns:
        Deterministic count; n = prompts with renorm rows. Undefined as ``renorm.nonfinite``.

    Source:
        sgl-project/sglang#15648 (SA-15): min-p reads its threshold from a tensor that top-k and
        top-p have renormalised in place.
    """
    found = both(pair)
    if isinstance(found, Reason):
        return without_value(METRIC, found, unit=UNIT, n_of=N_OF)
    changed = found.cand.changed
    worst = Worst(prompt=changed[0], place="renorm.in") if changed else None
    return Measurement(
        metric=METRIC,
        value=float(len(changed)),
        unit=UNIT,
        n=len(found.cand.prompts),
        n_of=N_OF,
        worst=worst,
    )
