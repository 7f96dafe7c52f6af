"""``attention.propagated_ratio``: does cand end further from the oracle than ref?"""

from validate.metrics._finite import why_undefined
from validate.metrics._routing import routing
from validate.metrics._tensors import scan
from validate.metrics._three_way import UNIT, Ways, measure_ways
from validate.metrics._unmeasured import no_tensors, too_many_apart, undefined
from validate.schema import Levels, Measurement, Pair

__all__ = ["attention_propagated_ratio"]

METRIC = "attention.propagated_ratio"


def attention_propagated_ratio(pair: Pair, levels: Levels) -> Measurement:
    """Ratio of propagated errors: hidden states against the oracle's own run, err(cand) / err(ref).

    Everything upstream adds to it, so it says how much arrives and not where it came from:
    read ``attention.introduced_ratio`` for that. A prompt's error is ``sqrt(mean over layers and
    modes of sum err^2 / sum oracle^2)``. Rows that a router tie between any two of ref, cand
    and oracle set apart are left out and counted.

    Args:
        pair: Ref and cand, with the oracle's capture.
        levels: Confidence levels of the interval.

    Returns:
        Third quartile over prompts with order-statistic limits; n = prompts;
        ``worst_value`` is the largest ratio of a layer and mode, over all rows or at the worst
        row (cand's largest over ref's largest); ``breakdown`` gives both sides' errors, ratio
        and limits by layer, and by head for attention outputs. Undefined without an oracle
        or hidden states, with non-finite values on any side, where ties set more than half
        of all rows apart, or where ref's error is exactly 0.

    Source:
        As ``attention_introduced_ratio``, with the oracle's full run for the truth.
    """
    if pair.oracle is None:
        return undefined(
            METRIC, "no oracle capture was given; add an oracle target", unit=UNIT, n_of="prompts"
        )
    found = scan(pair)
    rows = found.oracle_rows.get("hidden")
    bad = [
        finding
        for group in ("hidden", "out")
        for finding in [*found.bad.get(group, []), *found.bad_oracle.get(group, [])]
    ]
    why = why_undefined([*bad, *routing(pair).bad])
    hidden = found.propagated.get("hidden", Ways())
    if why is None and rows is None:
        why = no_tensors("hidden states")
    if why is None and rows is not None:
        why = too_many_apart({"hidden": rows})
    if why is None and not hidden.places:
        why = "router ties set every row apart"
    if why is not None or rows is None:
        return undefined(METRIC, why or "", unit=UNIT, n_of="prompts")
    return measure_ways(
        METRIC,
        hidden,
        levels,
        shown={"": hidden, "output ": found.propagated.get("out", Ways())},
        extra={"rows": float(rows.rows), "rows set apart by router ties": float(rows.apart_rows)},
    )
