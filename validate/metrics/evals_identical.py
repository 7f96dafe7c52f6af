"""``evals.identical``: were the answers made by this run, or served from another's cache?"""

from validate.metrics._evals import blocked, first_filters, identical_answers, unlike_runs
from validate.metrics._reason import Reason, without_value
from validate.schema import Levels, Measurement, Pair, Side, Worst
from validate.schema.evals import evals_of

__all__ = ["evals_identical"]

NAME, UNIT, N_OF = "evals.identical", "answers of doubtful origin", "items"


def evals_identical(pair: Pair, _levels: Levels) -> Measurement:
    """Count answers that no request accounts for, and refuse runs that agree to the last digit.

    Two unlike runs (other weights, or another path) never give the same log-likelihoods to the
    last digit: a cache that is not keyed by the model does.

    Args:
        pair: Evals of both sides.
        _levels: Not used: a count over all requests.

    Returns:
        Deterministic count: requests of either side that were neither sent nor cached; n = items.
        Unlike where all log-likelihoods of a task (or answers drawn at a temperature) are equal
        between unlike runs, or where answers came from a cache of another model.

    Source:
        EleutherAI/lm-evaluation-harness#2715, #4063 and #3881, pytorch/ao#3073 (TV-03).
    """
    reason = blocked(pair) or identical_answers(pair) or _foreign(pair)
    if reason is not None:
        return without_value(NAME, reason, unit=UNIT, n_of=N_OF)
    gaps = {role: _unaccounted(side) for role, side in (("ref", pair.ref), ("cand", pair.cand))}
    worst = max(gaps, key=lambda role: gaps[role])
    pairs = first_filters(pair)
    equal = sum(
        a.loglikelihoods == b.loglikelihoods and a.response == b.response
        for one in pairs
        for a, b in zip(one.ref, one.cand, strict=True)
    )
    return Measurement(
        metric=NAME,
        value=float(sum(gaps.values())),
        unit=UNIT,
        n=sum(len(one.ref) for one in pairs),
        n_of=N_OF,
        worst=Worst(place=worst, value=float(gaps[worst])) if gaps[worst] else None,
        pattern=_pattern(worst, pair.ref if worst == "ref" else pair.cand) if gaps[worst] else None,
        breakdown={"answers equal to the last digit": float(equal), **_counts(pair)},
    )


def _foreign(pair: Pair) -> Reason | None:
    """Unlike runs that took answers from one cache: its key does not tell their models apart."""
    counted = [evals_of(side) for side in (pair.ref, pair.cand)]
    requests = [None if evals is None else evals.requests for evals in counted]
    keys = [None if one is None else one.cache_key for one in requests]
    if not unlike_runs(pair) or keys[0] is None or keys[0] != keys[1]:
        return None
    served = {
        role: one
        for role, one in zip(("ref", "cand"), requests, strict=True)
        if one is not None and one.cached
    }
    if not served:
        return None
    told = ", ".join(f"{role} {one.cached} of {one.asked} answers" for role, one in served.items())
    why = (
        f"ref and cand are unlike runs, yet their caches have one key ({keys[0][:12]}) and served "
        f"{told}: the key does not tell their models apart"
    )
    return Reason(why, "unlike")


def _unaccounted(side: Side) -> int:
    evals = evals_of(side)
    if evals is None or evals.requests is None:
        return 0
    counted = evals.requests
    return abs(counted.asked - counted.sent - counted.cached)


def _pattern(role: str, side: Side) -> str:
    evals = evals_of(side)
    counted = None if evals is None else evals.requests
    if counted is None:
        return role
    return (
        f"{role} asked for {counted.asked} answers, sent {counted.sent} and took {counted.cached} "
        "from a cache"
    )


def _counts(pair: Pair) -> dict[str, float]:
    found: dict[str, float] = {}
    for role, side in (("ref", pair.ref), ("cand", pair.cand)):
        evals = evals_of(side)
        if evals is not None and evals.requests is not None:
            found[f"{role}: requests sent"] = float(evals.requests.sent)
            found[f"{role}: answers from a cache"] = float(evals.requests.cached)
    return found
