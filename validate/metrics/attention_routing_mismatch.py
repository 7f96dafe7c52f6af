"""``attention.routing_mismatch``: tokens sent to other experts, ties aside."""

from validate.metrics._finite import why_undefined
from validate.metrics._routing import routing
from validate.metrics._unmeasured import no_tensors, undefined
from validate.schema import Levels, Measurement, Pair

__all__ = ["attention_routing_mismatch"]

METRIC, UNIT, N_OF = "attention.routing_mismatch", "expert sets", "tokens over layers"


def attention_routing_mismatch(pair: Pair, _levels: Levels) -> Measurement:
    """Count of expert sets that differ by more than noise can explain.

    A set counts when the gap between an expert that only ref took and one that only cand
    took, by ref's selection scores, exceeds ``pair.route_gap``; else it is a tie. After a tie
    the token's later sets follow from it and are counted apart. A set also counts, anywhere,
    when cand chose against its own scores by more than the gap, or named an expert twice or
    one that does not exist.

    Args:
        pair: Ref and cand; ``route_gap`` is in units of the selection score.
        _levels: Not used: a count has no interval.

    Returns:
        Deterministic count; n = tokens over layers; ``worst`` names the largest gap and both
        sets. Undefined when a score or weight holds NaN or infinities, or without routers.

    Source:
        tenstorrent/tt-metal#51009 (TV-15): a recall threshold passes real mis-routing;
        sgl-project/sglang#31213 (MO-01): sets change while the weights of common experts stay
        exact.
    """
    found = routing(pair)
    flips = found.flips
    why = why_undefined(found.bad)
    if why is None and flips.rows == 0:
        why = no_tensors("router tensors")
    if why is not None:
        return undefined(METRIC, why, unit=UNIT, n_of=N_OF, n=flips.rows)
    breakdown = {
        "ties": float(flips.ties),
        "after a tie": float(flips.downstream),
        "ref against its own scores": float(flips.own["ref"]),
        "cand against its own scores": float(flips.own["cand"]),
    }
    if flips.worst is not None and flips.worst.value is not None:
        breakdown["largest gap"] = flips.worst.value
    return Measurement(
        metric=METRIC,
        value=float(flips.faults),
        unit=UNIT,
        n=flips.rows,
        n_of=N_OF,
        worst=flips.worst,
        breakdown=breakdown,
    )
