"""``renorm.sum_error``: rows sum to 1 after the division."""

from validate.metrics._renorm import largest
from validate.schema import Levels, Measurement, Pair

__all__ = ["renorm_sum_error"]


def renorm_sum_error(pair: Pair, _levels: Levels) -> Measurement:
    """Largest distance of a row's sum from 1 after the op; from 0 where the input is all zero.

    Summed exactly, in float64, whatever the dtype of the row.

    Args:
        pair: Ref and cand.
        _levels: Not used: a maximum over all that was captured has no interval.

    Returns:
        Deterministic measurement; n = rows. Undefined as ``renorm.kept_set``.

    Source:
        sgl-project/sglang#15648 (SA-15) and the renormalisation that is skipped or done twice
        (MO-09): what follows works on masses that are no distribution.
    """
    return largest(
        pair,
        "renorm.sum_error",
        unit="|sum - 1|",
        number=lambda row: row.sum_error,
        detail="the row does not sum to 1",
    )
