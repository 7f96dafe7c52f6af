"""``renorm.value_error``: kept entries keep their ratios."""

from validate.metrics._renorm import largest
from validate.schema import Levels, Measurement, Pair

__all__ = ["renorm_value_error"]


def renorm_value_error(pair: Pair, _levels: Levels) -> Measurement:
    """Largest relative error of a kept entry of cand's, given the set that its row keeps.

    An entry must be its input over the sum of the kept inputs, so a wrong kept set shows in
    ``renorm.kept_set`` alone. A row that keeps nothing has an infinite error.

    Args:
        pair: Ref and cand.
        _levels: Not used: a maximum over all that was captured has no interval.

    Returns:
        Deterministic measurement; n = rows. Undefined as ``renorm.kept_set``.

    Source:
        sgl-project/sglang#36173 (SA-05); upstream tests allow 1e-3 (flashinfer, aiter), which
        hides a token of that probability.
    """
    return largest(
        pair,
        "renorm.value_error",
        unit="relative error",
        number=lambda row: row.value_error,
        detail="a kept entry is off its share",
    )
