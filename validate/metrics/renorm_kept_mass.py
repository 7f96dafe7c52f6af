"""``renorm.kept_mass``: the mass of what a row keeps reaches p."""

from validate.metrics._renorm import largest
from validate.schema import Levels, Measurement, Pair

__all__ = ["renorm_kept_mass"]


def renorm_kept_mass(pair: Pair, _levels: Levels) -> Measurement:
    """Largest probability mass by which what a row of cand's keeps falls short of p.

    The mass of the kept entries, on cand's own input, over the mass that top-k leaves; 0 where
    it reaches p. A row without top-p must keep all that top-k leaves.

    Args:
        pair: Ref and cand.
        _levels: Not used: a maximum over all that was captured has no interval.

    Returns:
        Deterministic measurement; n = rows. Undefined as ``renorm.kept_set``.

    Source:
        flashinfer-ai/flashinfer#2202 (SA-06): the token that crosses p is dropped;
        alibaba/rtp-llm#932 (SA-14): the first token is, where it alone exceeds p.
    """
    return largest(
        pair,
        "renorm.kept_mass",
        unit="mass",
        number=lambda row: row.shortfall,
        detail="what is kept falls short of p",
    )
