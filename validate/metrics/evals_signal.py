"""``evals.signal``: can these answers show anything, or are they empty sums and constants?"""

from collections.abc import Sequence

from validate.metrics._evals import blocked, first_filters
from validate.metrics._reason import without_value
from validate.schema import Levels, Measurement, Pair, Worst
from validate.schema.evals import EvalItem, EvalPair
from validate.stats import proportion_limits

__all__ = ["at_chance", "evals_signal"]

NAME, UNIT, N_OF = "evals.signal", "empty answers", "items"
FEW = 20
"""Items below which equal answers are no alarm."""
CHOICES = 2
SURE = Levels(low=0.95)


def evals_signal(pair: Pair, _levels: Levels) -> Measurement:
    """Count items of either side whose answer carries no information.

    A server that returns no prompt log-probabilities makes the harness sum an empty slice: every
    choice scores exactly 0, the score is exactly chance, and ref and cand agree perfectly, so
    that no comparison of scores can see it.

    Args:
        pair: Evals of both sides.
        _levels: Not used: a count over all items.

    Returns:
        Deterministic count, n = items: all choices exactly 0, all items of a task exactly equal,
        all responses of a task empty. The breakdown holds the score against chance and how
        often two extractors disagree, by task and side.

    Source:
        ggml-org/llama.cpp#27174 and lm-eval#4158 (TV-06).
    """
    reason = blocked(pair)
    if reason is not None:
        return without_value(NAME, reason, unit=UNIT, n_of=N_OF)
    pairs = first_filters(pair)
    alarms = [
        (role, one.task.name, count, why)
        for one in pairs
        for role in ("ref", "cand")
        for count, why in [_empty(getattr(one, role))]
        if count
    ]
    worst = max(alarms, key=lambda alarm: alarm[2], default=None)
    return Measurement(
        metric=NAME,
        value=float(sum(alarm[2] for alarm in alarms)),
        unit=UNIT,
        n=sum(len(one.ref) for one in pairs),
        n_of=N_OF,
        worst=None
        if worst is None
        else Worst(place=f"{worst[0]}: {worst[1]}", value=float(worst[2]), detail=worst[3]),
        pattern="; ".join(f"{role} {task}: {n} items, {why}" for role, task, n, why in alarms[:3])
        or None,
        breakdown={**_chances(pairs), **_extractors(pair.evals.pairs)},
    )


def at_chance(items: Sequence[EvalItem], *, metric: str, chance: float | None) -> bool:
    """Whether a score is not shown to be better than a guess; of an unknown guess: whether it is 0."""
    right = sum(item.scores.get(metric, 0.0) > 0.0 for item in items)
    if chance is None:
        return right == 0
    low = proportion_limits(right, len(items), levels=SURE).low
    return low is None or not low > chance


def _empty(items: Sequence[EvalItem]) -> tuple[int, str]:
    """How many items carry nothing, and how that looks."""
    zero = [item for item in items if item.loglikelihoods and not any(item.loglikelihoods)]
    several = [item for item in zero if len(item.loglikelihoods) >= CHOICES]
    if several or (zero and len(zero) == len(items) >= FEW):
        count = len(several) or len(zero)
        return count, "log-likelihoods of exactly 0: an empty slice was summed"
    if len(items) < FEW:
        return 0, ""
    values = (value for item in items for value in item.loglikelihoods)
    first = next(values, None)
    if first is not None and all(value == first for value in values):
        return len(items), f"every log-likelihood is {first:g}: no variance at all"
    if all(item.response is not None and not item.response.strip() for item in items):
        return len(items), "every response is empty"
    return 0, ""


def _chances(pairs: Sequence[EvalPair]) -> dict[str, float]:
    """1 where a side is not shown to be better than a guess, by task and metric."""
    return {
        f"{role} {one.task.name}: {metric} at chance": 1.0
        for one in pairs
        for role in ("ref", "cand")
        for metric in one.task.metrics
        if one.task.chance is not None
        and at_chance(getattr(one, role), metric=metric, chance=one.task.chance)
    }


def _extractors(pairs: Sequence[EvalPair]) -> dict[str, float]:
    """Share of items that two filters of a task score otherwise, in percent."""
    by_task: dict[str, list[EvalPair]] = {}
    for one in pairs:
        by_task.setdefault(one.task.name, []).append(one)
    found = {}
    for name, held in by_task.items():
        for other in held[1:]:
            for role in ("ref", "cand"):
                a = {item.doc_id: item.scores for item in getattr(held[0], role)}
                unlike = sum(a[item.doc_id] != item.scores for item in getattr(other, role))
                key = f"{role} {name}: {held[0].filter} and {other.filter} disagree, %"
                found[key] = 100.0 * unlike / len(a)
    return found
