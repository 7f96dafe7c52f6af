"""``renorm.kept_set``: rows that keep other tokens than the oracle does."""

from collections import Counter

from validate.metrics._reason import Reason, without_value
from validate.metrics._renorm import Both, measurable
from validate.metrics._renorm_rows import Row
from validate.schema import Levels, Measurement, Pair, Worst

__all__ = ["renorm_kept_set"]

METRIC, UNIT, N_OF = "renorm.kept_set", "rows", "rows"


def renorm_kept_set(pair: Pair, _levels: Levels) -> Measurement:
    """Count cand's rows whose kept set is not the float64 oracle's on the same input.

    The oracle filters cand's own captured probabilities with cand's own parameters under the tie
    rule that cand declares: top-k, division, top-p. Which of several equal entries are kept is
    free under ``exactly_k``; how many is not. A count is right where the cumulated mass meets p
    within the tie band ``(6 sqrt(n) + 4) u``, u the unit roundoff of float32, n the entries that
    top-k leaves.

    Args:
        pair: Ref and cand.
        _levels: Not used: a count over all that was captured has no interval.

    Returns:
        Deterministic count; n = rows. Undefined as ``renorm.nonfinite``, and when an entry of
        cand's is no probability.

    Source:
        sgl-project/sglang#36173 (SA-05), ROCm/aiter#5192 (SA-04) and
        flashinfer-ai/flashinfer#2202 (SA-06): kept sets that are off by a few tokens while
        sums stay 1.
    """
    found = measurable(pair)
    if isinstance(found, Reason):
        return without_value(METRIC, found, unit=UNIT, n_of=N_OF)
    wrong = [row for row in found.cand.rows if row.judged.wrong is not None]
    return Measurement(
        metric=METRIC,
        value=float(len(wrong)),
        unit=UNIT,
        n=len(found.cand.rows),
        n_of=N_OF,
        worst=_worst(wrong),
        pattern=_pattern(found, wrong),
        breakdown=_breakdown(found, wrong),
    )


def _worst(wrong: list[Row]) -> Worst | None:
    """The row that is off by most entries."""
    if not wrong:
        return None
    top = max(wrong, key=_off)
    return Worst(
        prompt=top.prompt,
        position=top.position,
        place=f"renorm.out row {top.row}",
        value=float(_off(top)),
        detail=top.judged.wrong,
    )


def _off(row: Row) -> int:
    """By how many entries the count is off; 0 where others are kept in their place."""
    found = row.judged
    return max(found.low - found.kept, found.kept - found.high, 0)


def _filters(row: Row) -> str:
    """Which of the two filters a row has."""
    both = {True: "top-k and top-p", False: "top-k alone"}
    one = {True: "top-p alone", False: "neither filter"}
    return (both if row.k < row.vocab else one)[row.p < 1]


def _pattern(found: Both, wrong: list[Row]) -> str | None:
    """The one kind of row that is wrong while others are right, if it is one."""
    kinds = {_filters(row) for row in wrong}
    others = {_filters(row) for row in found.cand.rows} - kinds
    if len(kinds) != 1 or not others:
        return None
    return f"only rows with {kinds.pop()}"


def _breakdown(found: Both, wrong: list[Row]) -> dict[str, float]:
    rows = found.cand.rows
    told = {
        "keeps too many": float(sum(row.judged.kept > row.judged.high for row in wrong)),
        "keeps too few": float(sum(row.judged.kept < row.judged.low for row in wrong)),
        "within the tie band": float(sum(row.judged.low != row.judged.high for row in rows)),
        "decided by the tie rule": float(sum(row.judged.tied for row in rows)),
    }
    by_kind = Counter(_filters(row) for row in wrong)
    return told | {f"wrong: {kind}": float(count) for kind, count in sorted(by_kind.items())}
