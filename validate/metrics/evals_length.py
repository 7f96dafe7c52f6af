"""``evals.length``: are cand's answers shorter or longer than ref's?"""

from collections import Counter

from validate.metrics._evals import first_filters, hygiene
from validate.metrics._evals_parts import binary_part, combine, shared_levels
from validate.metrics._reason import Reason, without_value
from validate.schema import Levels, Measurement, Pair
from validate.schema.evals import EvalItem, EvalPair

__all__ = ["evals_length"]

NAME, UNIT, N_OF = "evals.length", "points", "items"
TENTH = 0.1


def evals_length(pair: Pair, levels: Levels) -> Measurement:
    """Greatest surplus of answers that became a tenth shorter over those that became longer, or back.

    Near-ties make single answers longer and others shorter alike; a stop that comes early, a lost
    end token or a budget moves them one way, often before any score moves.

    Args:
        pair: Evals of both sides.
        levels: Of the greatest limits over tasks and directions; the lower one is shared out.

    Returns:
        Measurement in points, at least 0: |share shorter - share longer|, of the worst task. Lengths
        are counted in tokens where both sides keep ids, else in characters. The breakdown holds
        mean lengths and finish reasons of both sides. Undefined without generated text; unlike as
        ``evals.score_drop``.

    Source:
        The bound on output length in MLPerf inference (tests 06 to 09); ``validate.stats.drop_limits``.
    """
    reason = hygiene(pair)
    pairs = [one for one in first_filters(pair) if _written(one)] if reason is None else []
    if reason is None and not pairs:
        reason = Reason("no task holds generated text")
    if reason is not None:
        return without_value(NAME, reason, unit=UNIT, n_of=N_OF)
    each = shared_levels(levels, 2 * len(pairs))
    parts = []
    shown: dict[str, float] = {}
    for one in pairs:
        lengths = _lengths(one)
        shorter = sum(b < (1.0 - TENTH) * a for a, b in lengths)
        longer = sum(b > (1.0 + TENTH) * a for a, b in lengths)
        n = len(lengths)
        parts.append(binary_part(f"{one.task.name}, shorter", shorter, longer, n, levels=each))
        parts.append(binary_part(f"{one.task.name}, longer", longer, shorter, n, levels=each))
        for role, at in (("ref", 0), ("cand", 1)):
            shown[f"{one.task.name}: {role} mean length"] = sum(both[at] for both in lengths) / n
            shown |= _finishes(one, role)
    return combine(NAME, parts, levels=levels, breakdown=shown)


def _written(one: EvalPair) -> bool:
    return all(item.response is not None for item in (*one.ref, *one.cand))


def _lengths(one: EvalPair) -> list[tuple[int, int]]:
    if all(item.token_ids is not None for item in (*one.ref, *one.cand)):
        return [(_tokens(a), _tokens(b)) for a, b in zip(one.ref, one.cand, strict=True)]
    return [
        (len(a.response or ""), len(b.response or ""))
        for a, b in zip(one.ref, one.cand, strict=True)
    ]


def _tokens(item: EvalItem) -> int:
    return len(item.token_ids or ())


def _finishes(one: EvalPair, role: str) -> dict[str, float]:
    """Share of each finish reason, in percent."""
    items: tuple[EvalItem, ...] = getattr(one, role)
    counts = Counter(item.finish for item in items if item.finish is not None)
    return {
        f"{one.task.name}: {role} ends by {reason}, %": 100.0 * count / len(items)
        for reason, count in sorted(counts.items())
    }
