"""On which scale a metric's scores are: in [0, 1], on another one, or astray on one side."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.metrics._reason import Reason
from validate.schema.evals import EvalItem, EvalPair, EvalSet

__all__ = ["another_scale", "scores_of", "stray", "unjudged", "without_scores"]

SLACK = 1e-6
"""Rounding of a mean in float32: a score of 1.0000001 is 1."""
SHOWN = 3


class _Astray(NamedTuple):
    """A score outside [0, 1] on one side of a metric that is in [0, 1] on the other."""

    role: str
    many: int
    total: int
    doc: int
    value: float


def scores_of(items: Sequence[EvalItem], metric: str) -> NDArray[np.float64]:
    """One number an item; NaN where there is none; rounding beyond 0 and 1 is cut."""
    held = np.array([item.scores.get(metric, np.nan) for item in items])
    near = (held >= -SLACK) & (held <= 1.0 + SLACK)
    return np.where(near, np.clip(held, 0.0, 1.0), held)


def _outside(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Numbers that are no share of 1."""
    return np.asarray(np.isfinite(values) & ~((values >= 0.0) & (values <= 1.0)))


def another_scale(ref: NDArray[np.float64], cand: NDArray[np.float64]) -> bool:
    """Whether both sides hold scores outside [0, 1]: points of 100, a perplexity."""
    return bool(_outside(ref).any() and _outside(cand).any())


def stray(one: EvalPair, metric: str, *, named: str) -> Reason | None:
    """The reason that scores of one side alone lie outside [0, 1]; None: none do.

    Such a metric cannot be left out: one score of 7 would take all wrong answers with it.
    """
    found = [
        _Astray(role, int(out.sum()), out.size, items[at].doc_id, float(values[at]))
        for role, items in (("ref", one.ref), ("cand", one.cand))
        for values in [scores_of(items, metric)]
        for out in [_outside(values)]
        if out.any()
        for at in [int(np.flatnonzero(out)[0])]
    ]
    if len(found) != 1:
        return None
    first = found[0]
    other = "cand" if first.role == "ref" else "ref"
    why = (
        f"{first.role} holds {first.many} of {first.total} scores outside [0, 1] in {named}, "
        f"e.g. doc {first.doc}: {metric} {first.value:.4g}, where {other}'s are all inside: the "
        "sides are scored by other rules, or samples are damaged; next: score both sides anew by "
        "one version of lm-eval"
    )
    return Reason(why, "unlike")


def without_scores(one: EvalPair) -> str | None:
    """Why nothing of a task was judged, though something should be; None: log-likelihoods are.

    Called for a task through a filter of which no metric is in [0, 1].
    """
    metrics = list(one.task.metrics)
    if metrics:
        return (
            f"task {one.name}, metric {metrics[0]}: {_ranges(one.ref, one.cand, metrics[0])}, which "
            "no limit in points fits; next: score it by a metric in [0, 1], e.g. a share of 100"
        )
    if any(item.loglikelihoods for item in one.ref):
        return None
    return (
        f"task {one.name} has no score of any item on either side; next: run it with a metric that "
        "lm-eval writes for each sample"
    )


def _ranges(ref: Sequence[EvalItem], cand: Sequence[EvalItem], metric: str) -> str:
    told = []
    for role, items in (("ref", ref), ("cand", cand)):
        values = scores_of(items, metric)
        known = values[np.isfinite(values)]
        told.append(f"{role} {known.min():.4g} to {known.max():.4g}")
    return f"scores are on another scale than [0, 1] ({', '.join(told)})"


def unjudged(ref: EvalSet, cand: EvalSet) -> list[str]:
    """Metrics whose scores no gate looks at, in sentences."""
    held = _grouped(ref.items), _grouped(cand.items)
    told = []
    for name, task in ref.tasks.items():
        for label in task.filters:
            one, two = held[0][name, label], held[1][name, label]
            where = name if label == "none" else f"{name} ({label})"
            told += [
                f"metric {metric} of {where}: {_ranges(one, two, metric)}"
                for metric in task.metrics
                if another_scale(scores_of(one, metric), scores_of(two, metric))
            ]
    rest = len(told) - SHOWN
    return [*told[:SHOWN], *([f"{rest} more metrics on another scale"] if rest > 0 else [])]


def _grouped(items: Iterable[EvalItem]) -> dict[tuple[str, str], list[EvalItem]]:
    found: dict[tuple[str, str], list[EvalItem]] = defaultdict(list)
    for item in items:
        found[item.task, item.filter].append(item)
    return found
