"""``evals.rates``: does cand give more empty, cut or unreadable answers than ref?"""

import math
from collections.abc import Callable

from validate.metrics._evals import blocked, hygiene
from validate.metrics._evals_parts import binary_part, combine, shared_levels
from validate.metrics._reason import without_value
from validate.schema import Levels, Measurement, Pair
from validate.schema.evals import EvalItem, EvalPair

__all__ = ["evals_rates"]

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
        The greatest rise, in points. Undefined as ``evals.score_drop``.

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
        found = list(zip([bad(a) for a in one.ref], [bad(b) for b in one.cand], strict=True))
        rose = sum(b and not a for a, b in found)
        fell = sum(a and not b for a, b in found)
        name = f"{one.name}, {kind}"
        parts.append(binary_part(name, rose, fell, len(found), levels=each))
        for role, at in (("ref", 0), ("cand", 1)):
            count = sum(both[at] for both in found)
            if count:
                shown[f"{name}: {role} %"] = 100.0 * count / len(found)
    return combine(NAME, parts, levels=levels, breakdown=shown)


def _empty(item: EvalItem) -> bool:
    return item.response is not None and not item.response.strip()


def _cut(item: EvalItem) -> bool:
    return item.finish == "length"


def _unreadable(item: EvalItem) -> bool:
    return item.answer == UNREADABLE


def _invalid(item: EvalItem) -> bool:
    return not math.isfinite(sum(item.loglikelihoods) + sum(item.scores.values()))


_KINDS: dict[str, Callable[[EvalItem], bool]] = {
    "empty": _empty,
    "cut": _cut,
    "unreadable": _unreadable,
    "invalid": _invalid,
}


def _known(one: EvalPair, kind: str) -> bool:
    """Whether both sides' items of a task can tell."""
    items = (*one.ref, *one.cand)
    if kind == "invalid":
        return True
    if kind == "cut":
        return all(item.finish is not None for item in items)
    return all(item.response is not None for item in items)
