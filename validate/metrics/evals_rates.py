"""``evals.rates``: does cand give more empty, cut or unreadable answers than ref?"""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from validate.metrics._evals import blocked, hygiene, unscored
from validate.metrics._evals_parts import binary_part, combine, shared_levels
from validate.metrics._reason import without_value
from validate.schema import Levels, Measurement, Pair
from validate.schema.evals import EvalItem, EvalPair

__all__ = ["evals_rates"]

Flags = NDArray[np.bool_]
NAME, UNIT, N_OF = "evals.rates", "points", "items"
UNREADABLE = "[invalid]"
"""What lm-eval's regular-expression filters give where nothing matches."""


def evals_rates(pair: Pair, levels: Levels) -> Measurement:
    """Rise of the rate of bad answers, cand over ref, in points, by task and kind.

    Kinds: *empty* (no text), *cut* (ended by the token budget), *unreadable* (the filter found no
    answer), *invalid* (a score or log-likelihood is no number). A budget that is a little too
    small, or a stop string inside the answer, shows here before it shows in a score.

    Args:
        pair: Evals of both sides.
        levels: Of the greatest limits over tasks and kinds; the lower one is shared out.

    Returns:
        The greatest rise, in points; the pattern names items without a score. Undefined as
        ``evals.score_drop``.

    Source:
        ``validate.stats.drop_limits``; TV-07.
    """
    reason = blocked(pair) or hygiene(pair)
    if reason is not None:
        return without_value(NAME, reason, unit=UNIT, n_of=N_OF)
    asked = [
        (one, kind, bad)
        for one in pair.evals.pairs
        for kind, bad in _KINDS.items()
        if _known(one, kind)
    ]
    each = shared_levels(levels, len(asked))
    parts = []
    shown = {}
    for one, kind, bad in asked:
        ref = bad(one.ref)
        cand = ref if one.cand is one.ref else bad(one.cand)
        rose, fell = int((cand & ~ref).sum()), int((ref & ~cand).sum())
        name = f"{one.name}, {kind}"
        parts.append(binary_part(name, rose, fell, ref.size, levels=each))
        for role, side in (("ref", ref), ("cand", cand)):
            count = int(side.sum())
            if count:
                shown[f"{name}: {role} %"] = 100.0 * count / ref.size
    return combine(NAME, parts, levels=levels, breakdown=shown, pattern=_unscored(pair))


def _unscored(pair: Pair) -> str | None:
    told = []
    for role in ("ref", "cand"):
        found = unscored(item for one in pair.evals.pairs for item in getattr(one, role))
        if found is not None:
            told.append(f"{role}: {found}")
    return "; ".join(told) or None


def _empty(items: Sequence[EvalItem]) -> Flags:
    return np.array([item.response is not None and not item.response.strip() for item in items])


def _cut(items: Sequence[EvalItem]) -> Flags:
    return np.array([item.finish == "length" for item in items])


def _unreadable(items: Sequence[EvalItem]) -> Flags:
    return np.array([item.answer == UNREADABLE for item in items])


def _invalid(items: Sequence[EvalItem]) -> Flags:
    """A number among scores and log-likelihoods is none: their sum is none either, or overflows."""
    sums = np.array([sum(item.loglikelihoods, sum(item.scores.values())) for item in items])
    bad: Flags = ~np.isfinite(sums)
    return bad


_KINDS: dict[str, Callable[[Sequence[EvalItem]], Flags]] = {
    "empty": _empty,
    "cut": _cut,
    "unreadable": _unreadable,
    "invalid": _invalid,
}


def _known(one: EvalPair, kind: str) -> bool:
    """Whether both sides' items of a task can tell."""
    if kind == "invalid":
        return True
    items = itertools.chain(one.ref, one.cand)
    if kind == "cut":
        return all(item.finish is not None for item in items)
    return all(item.response is not None for item in items)
