"""Measurements of renorm rows: cand judged on its own inputs, ref looked at first.

A ref whose own rows break what rounding allows is no yardstick: every renorm metric is then
undefined and says ``REF_BLAMED``.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from validate.metrics._reason import Reason, without_value
from validate.metrics._renorm_asked import other_question
from validate.metrics._renorm_judge import Judged, rounding
from validate.metrics._renorm_rows import Row, SideRows, read_side
from validate.schema import Measurement, Pair, Side, Worst

__all__ = ["Both", "both", "largest", "measurable", "where"]

BLAMED = "REF_BLAMED"
N_OF = "rows"


class Both(NamedTuple):
    """The rows of the two sides; ref's have passed."""

    ref: SideRows
    cand: SideRows


def both(pair: Pair) -> Both | Reason:
    """Rows of both sides, or why cand's cannot be judged; read once a pair."""
    return pair.once("renorm.rows", lambda: _both(pair))


def _both(pair: Pair) -> Both | Reason:
    ref = _rows(pair, pair.ref, "ref")
    if isinstance(ref, Reason):
        return ref
    cand = _rows(pair, pair.cand, "cand")
    if isinstance(cand, Reason):
        return cand
    why = _unlike(pair, ref, cand)
    if why is not None:
        return Reason(why, "unlike")
    return _idle(pair, ref, cand) or Both(ref, cand)


def _unlike(pair: Pair, ref: SideRows, cand: SideRows) -> str | None:
    """Why cand's rows cannot be set against ref's; None where they can."""
    if ref.prompts != cand.prompts:
        apart = sorted(ref.prompts ^ cand.prompts)
        return (
            f"ref holds renorm rows of {len(ref.prompts)} prompts and cand of {len(cand.prompts)}; "
            f"{apart[0]} is one of {len(apart)} that only one side has rows of"
        )
    fault = _broken(ref)
    if fault is not None:
        return f"{BLAMED}: ref '{pair.ref.label}' breaks its own rows: {fault}"
    other = other_question(ref.rows, cand.rows)
    return other and f"ref and cand did not filter the same rows alike: {other}"


def _idle(pair: Pair, ref: SideRows, cand: SideRows) -> Reason | None:
    """Why nothing was tested where no row of a side has an entry to remove."""
    for role, side, rows in (("ref", pair.ref, ref.rows), ("cand", pair.cand, cand.rows)):
        if not any(row.judged.bad or row.judged.low < row.judged.entries for row in rows):
            return Reason(
                f"none of the {len(rows)} renorm rows of {role} '{side.label}' has a token to "
                "remove, so the filters were not tested; capture rows whose top_k or top_p bind"
            )
    return None


def _rows(pair: Pair, side: Side, role: str) -> SideRows | Reason:
    """What one side's rows say of it; the same in every pair of a run that it is in."""
    key = f"renorm.{role}.{','.join(pair.prompts)}"
    return pair.once_a_side(side, key, lambda: read_side(side, pair.prompts, role=role))


def _broken(side: SideRows) -> str | None:
    """The first thing that no rounding explains; None where there is none."""
    if side.changed:
        return f"the input of {side.changed[0]} was another after the call"
    for row in side.rows:
        found, bound = row.judged, rounding(row.vocab, u_out=row.u_out)
        if found.bad:
            return f"{where(row)} holds {found.bad} values that are no probabilities"
        if found.wrong is not None:
            return f"{where(row)} {found.wrong}"
        numbers = (found.sum_error, found.value_error, found.shortfall)
        for number, what in zip(numbers, ("sum", "values", "kept mass"), strict=True):
            if not number <= bound:
                return (
                    f"{where(row)} is off by {number:.3g} in its {what}, rounding gives {bound:.3g}"
                )
    return None


def where(row: Row) -> str:
    """Prompt, position and row in words."""
    return f"{row.prompt} position {row.position} (renorm row {row.row})"


def measurable(pair: Pair) -> Both | Reason:
    """As ``both``, but a reason too where a value of cand's rows is no probability."""
    found = both(pair)
    if isinstance(found, Reason):
        return found
    bad = [row for row in found.cand.rows if row.judged.bad]
    if not bad:
        return found
    count = sum(row.judged.bad for row in bad)
    return Reason(
        f"{count} values in {len(bad)} of cand's {len(found.cand.rows)} renorm rows are NaN, "
        f"infinite or negative, first at {where(bad[0])}"
    )


def largest(
    pair: Pair, metric: str, *, unit: str, number: Callable[[Judged], float], detail: str
) -> Measurement:
    """The largest of one number over cand's rows; ref's largest stands in the breakdown.

    Args:
        pair: Ref and cand.
        metric: Name of the metric.
        unit: Of the number.
        number: Of one row.
        detail: What the number is, for the worst place.

    Returns:
        Deterministic measurement; n = rows.
    """
    found = measurable(pair)
    if isinstance(found, Reason):
        return without_value(metric, found, unit=unit, n_of=N_OF)
    rows = found.cand.rows
    values = [number(row.judged) for row in rows]
    top = int(np.argmax(values))
    return Measurement(
        metric=metric,
        value=values[top],
        unit=unit,
        n=len(rows),
        n_of=N_OF,
        worst=Worst(
            prompt=rows[top].prompt,
            position=rows[top].position,
            place=f"renorm.out row {rows[top].row}",
            value=values[top],
            detail=f"{detail}, k={rows[top].k}, p={rows[top].p:.6g}",
        ),
        worst_value=values[top],
        breakdown={"ref": float(np.max([number(row.judged) for row in found.ref.rows]))},
    )
