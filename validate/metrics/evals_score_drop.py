"""``evals.score_drop``: how many points does a score lose, item by item?"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.metrics._evals import by_doc, flip, hygiene
from validate.metrics._evals_parts import (
    POINTS,
    Part,
    binary_part,
    bounded_part,
    combine,
    shared_levels,
)
from validate.metrics._evals_scale import another_scale, scores_of, stray, without_scores
from validate.metrics._reason import Reason, without_value
from validate.metrics.evals_signal import at_chance
from validate.schema import Levels, Measurement, Pair
from validate.schema.evals import EvalPair

__all__ = ["evals_score_drop"]

NAME, UNIT, N_OF = "evals.score_drop", "points", "items"
SHOWN = 3
"""Flips that a line names; the breakdown names the first hundred each way."""
LISTED = 100


class _Column(NamedTuple):
    """One metric of one task on both sides."""

    one: EvalPair
    metric: str
    name: str
    ref: NDArray[np.float64]
    cand: NDArray[np.float64]


def evals_score_drop(pair: Pair, levels: Levels) -> Measurement:
    """Greatest drop of a task's score from ref to cand, in points, on the same items.

    Every metric in [0, 1] of every task and filter is a part: right and wrong answers by exact
    limits on the discordant items, other scores by betting limits over documents. Unpaired tests
    waste most of the sample: of 1,319 items on which both sides agree on 98 %, 26 tell.

    Args:
        pair: Evals of both sides.
        levels: Of the greatest limits over the parts; the lower one is shared out (Holm).

    Returns:
        Measurement in points, positive where cand is worse; the breakdown holds per part the scores,
        the drop,
        the flips both ways, McNemar's exact p, plain and by Holm, the smallest drop that the test
        sees at this n, and every flipped item with the first token at which its responses part
        (null where no ids were kept). No upper limit where ref is no better than a guess. Unlike
        where hygiene forbids a look at scores, or scores of one side alone leave [0, 1]; no upper
        limit where a task has no metric in [0, 1] on either side.

    Source:
        ``validate.stats.drop_limits``, ``betting_limits``, ``holm``; EleutherAI/lm-evaluation-harness#3831.
    """
    reason = hygiene(pair) or _astray(pair)
    columns = [] if reason is not None else _columns(pair)
    open_tasks = [] if reason is not None else _open(pair, columns)
    if reason is None and not columns:
        none = "no task has a score in [0, 1]: evals.loglik_delta alone can tell"
        reason = Reason(open_tasks[0] if open_tasks else none)
    reason = reason or _numberless(columns)
    if reason is not None:
        return without_value(NAME, reason, unit=UNIT, n_of=N_OF)
    each = shared_levels(levels, len(columns))
    parts = [_scored(_blinded(_part(column, each), column), column) for column in columns]
    found = combine(NAME, parts, levels=levels, breakdown=_flips(columns), pattern=_pattern(parts))
    return _unbounded(found, open_tasks[0]) if open_tasks else found


def _astray(pair: Pair) -> Reason | None:
    """Scores of one side outside of the scale that the other's are on."""
    return next(
        (
            reason
            for one in pair.evals.pairs
            for metric in one.task.metrics
            if (reason := stray(one, metric, named=_name(one, metric))) is not None
        ),
        None,
    )


def _open(pair: Pair, columns: list[_Column]) -> list[str]:
    """Tasks none of whose metrics was judged, in sentences."""
    judged = {column.one.name for column in columns}
    told = [without_scores(one) for one in pair.evals.pairs if one.name not in judged]
    return [why for why in told if why is not None]


def _unbounded(found: Measurement, why: str) -> Measurement:
    """Without an upper limit: a task that was not judged may have lost any number of points."""
    if found.interval is None:
        return found
    return replace(found, interval=replace(found.interval, high=None), why_open=why)


def _columns(pair: Pair) -> list[_Column]:
    found = []
    for one in pair.evals.pairs:
        for metric, better in one.task.metrics.items():
            ref, cand = scores_of(one.ref, metric), scores_of(one.cand, metric)
            if another_scale(ref, cand):
                continue
            if better is False:
                ref, cand = 1.0 - ref, 1.0 - cand
            found.append(_Column(one, metric, _name(one, metric), ref, cand))
    return found


def _name(one: EvalPair, metric: str) -> str:
    return one.name if len(one.task.metrics) == 1 else f"{one.name} {metric}"


def _numberless(columns: list[_Column]) -> Reason | None:
    """Ref must have a number for every item; a number that cand lacks counts as the worst score."""
    for column in columns:
        bad = np.flatnonzero(~np.isfinite(column.ref))
        if bad.size == column.ref.size and not np.isfinite(column.cand).any():
            why = (
                f"neither side has a number for any of {bad.size} items of {column.name}, metric "
                f"{column.metric} ('N/A' or missing); next: score it, or leave it out on both sides"
            )
            return Reason(why)
        if bad.size:
            doc = column.one.ref[int(bad[0])].doc_id
            why = (
                f"ref has no number for {bad.size} of {column.ref.size} items of {column.name}, "
                f"e.g. doc {doc} ('N/A' or missing)"
            )
            return Reason(why)
    return None


def _drops(column: _Column) -> NDArray[np.float64]:
    return np.asarray(column.ref - np.where(np.isfinite(column.cand), column.cand, 0.0))


def _part(column: _Column, levels: Levels) -> Part:
    drops = _drops(column)
    docs = by_doc(column.one.ref, drops)
    binary = np.isin(column.ref, (0.0, 1.0)).all() and np.isin(np.abs(drops), (0.0, 1.0)).all()
    if not binary or docs.size != drops.size:
        return bounded_part(column.name, docs, levels=levels)
    lost, gained = int((drops > 0).sum()), int((drops < 0).sum())
    part = binary_part(column.name, lost, gained, drops.size, levels=levels)
    return replace(part, detail=_named(column, drops)) if lost + gained else part


def _blinded(part: Part, column: _Column) -> Part:
    """No upper limit where ref has nothing to lose."""
    chance = column.one.task.chance
    if not at_chance(column.one.ref, metric=column.metric, chance=chance):
        return part
    guess = "0" if chance is None else f"a guess ({100 * chance:.3g})"
    score = 100.0 * float(np.mean(column.ref))
    why = (
        f"{column.name}: ref scores {score:.3g} points, no better than {guess}: no drop would show"
    )
    return replace(part, high=None, blind=why)


def _scored(part: Part, column: _Column) -> Part:
    """With the mean scores of both sides in points, and the items."""
    cand = np.where(np.isfinite(column.cand), column.cand, 0.0)
    scores = {
        "items": float(column.ref.size),
        "ref": POINTS * float(np.mean(column.ref)),
        "cand": POINTS * float(np.mean(cand)),
    }
    return replace(part, shown={**scores, **part.shown})


def _named(column: _Column, drops: NDArray[np.float64]) -> str:
    """Counts and the first flips, both ways."""
    told = []
    for what, places in (
        ("lost", np.flatnonzero(drops > 0)),
        ("gained", np.flatnonzero(drops < 0)),
    ):
        shown = [_worded(flip(column.one, int(at))) for at in places[:SHOWN]]
        rest = len(places) - len(shown)
        more = f" and {rest} more" if rest > 0 else ""
        told.append(f"{len(places)} {what}" + (f" ({', '.join(shown)}{more})" if shown else ""))
    return f"{', '.join(told)} of {drops.size}"


def _worded(found: tuple[str, int | None]) -> str:
    name, token = found
    doc = name[name.rindex("doc ") :]
    return doc if token is None else f"{doc} from token {token}"


def _flips(columns: list[_Column]) -> dict[str, float]:
    """Flipped items with the first divergent token of their responses; NaN where it is not known."""
    found: dict[str, float] = {}
    for column in columns:
        drops = _drops(column)
        for what, places in (("lost", drops > 0), ("gained", drops < 0)):
            for at in np.flatnonzero(places)[:LISTED]:
                name, token = flip(column.one, int(at))
                key = f"{what} {name} {column.metric}: first divergent token"
                found[key] = math.nan if token is None else float(token)
    return found


def _pattern(parts: list[Part]) -> str | None:
    """A drop through one extractor alone: the form of the answers changed, not the answers."""
    fell = [part for part in parts if part.low is not None and part.low > 0.0]
    strict = [part.name for part in fell if "strict" in part.name]
    flexible = [part for part in parts if "flexible" in part.name]
    if strict and flexible and not any("flexible" in part.name for part in fell):
        return f"{strict[0]} falls and the flexible extractor does not: the form of answers changed"
    return f"{len(fell)} of {len(parts)} scores fall" if fell else None
