"""``attention.routing_weight``: the largest change of a routing weight where the experts agree."""

from validate.metrics._finite import why_undefined
from validate.metrics._routing import routing
from validate.metrics._unmeasured import no_tensors, undefined
from validate.schema import Levels, Measurement, Pair

__all__ = ["attention_routing_weight"]

METRIC, UNIT, N_OF = "attention.routing_weight", "weight", "tokens over layers"


def attention_routing_weight(pair: Pair, _levels: Levels) -> Measurement:
    """Largest ``|cand - ref|`` of one expert's routing weight, over tokens with the same set.

    Weights are matched by expert, not by rank. Tokens that a router tie set apart are
    left out; their largest change stands in the breakdown.

    Args:
        pair: Ref and cand.
        _levels: Not used: a maximum over all that was compared has no interval.

    Returns:
        Deterministic measurement, weights being shares of 1; n = tokens over layers with the
        same set; ``worst`` names prompt, position, layer and expert. Undefined when a score or
        weight holds NaN or infinities, without routers, or when no token has the same set.

    Source:
        flashinfer-ai/flashinfer#2889 (MO-07) and sgl-project/sglang#8511 (MO-09): renormalisation
        or scaling applied 0, 1 or 2 times leaves the ids right.
    """
    found = routing(pair)
    flips = found.flips
    why = why_undefined(found.bad)
    if why is None and flips.rows == 0:
        why = no_tensors("router tensors")
    elif why is None and flips.weight_rows == 0:
        why = f"none of {flips.rows} tokens over layers has the same experts on both sides"
    if why is not None:
        return undefined(METRIC, why, unit=UNIT, n_of=N_OF, n=flips.weight_rows)
    return Measurement(
        metric=METRIC,
        value=flips.weight_err,
        unit=UNIT,
        n=flips.weight_rows,
        n_of=N_OF,
        worst=flips.weight_worst,
        worst_value=flips.weight_err,
        breakdown={"at tokens set apart by router ties": flips.weight_apart},
    )
