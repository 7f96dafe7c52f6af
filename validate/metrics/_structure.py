"""Structure search: what is wrong with an output, told by heads, rows and positions.

An ``ErrorMap`` adds up squared errors while tensors stream by; ``find_structure``
reads it once at the end. Nothing here knows a limit: a unit counts as wrong when
its relative L2 error exceeds ``WRONG`` times the noise that the caller expects of a
clean one, so noise alone has no structure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float64, Integer
from numpy.typing import NDArray

from validate.metrics._positions import where_positions
from validate.metrics._words import clean_text, ranges, ratio

__all__ = ["WRONG", "ErrorMap", "add_lse", "add_rows", "find_structure", "new_map"]

WRONG = 4.0
"""A unit is wrong above this multiple of the expected noise."""
MATCHED = 4.0
"""A head is another head when that match is this many times closer than its own."""
SEPARATED = 2.0
"""Wrong heads are named when each is this many times worse than every clean one."""
MIN_VALUES = 8
"""Fewest numbers a head must have given before it can be recognised as another head."""

Array = NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class ErrorMap:
    """Sums of squared error and squared reference of one tensor, over all prompts.

    Sums are over (rows, values); ``ratio`` makes relative L2 errors of them.
    """

    buckets: int
    """Buckets of ``profile``; the last one takes all later positions."""
    width: int
    """Positions in one bucket of ``profile``."""
    err2: Array
    """(heads,) sum of (cand - ref)^2."""
    ref2: Array
    """(heads,) sum of ref^2."""
    along: Array
    """(heads,) sum of (cand - ref) * ref; over ``ref2`` it is the scale error alpha - 1."""
    cand2: Array
    """(heads,) sum of cand^2."""
    cross: Array
    """(heads, heads) sum of cand head h times ref head m."""
    values: int = 0
    """Numbers that each head gave so far."""
    cells: dict[int, tuple[Array, Array]] = field(default_factory=dict)
    """By batch row: (heads,) squared error and squared reference."""
    rows: dict[int, int] = field(default_factory=dict)
    """By batch row: how many token rows it gave."""
    profile: dict[int, tuple[Array, Array]] = field(default_factory=dict)
    """By batch row: squared error and squared reference by position bucket, heads together."""
    lse_gap2: Array | None = None
    """(heads, heads) sum of (cand lse of head h - ref lse of head m)^2; None without LSE."""
    lse_sums: Array = field(default_factory=lambda: np.zeros(3))
    """Count, sum and sum of squares of ref's LSE, for its spread."""


def new_map(heads: int, *, buckets: int, width: int = 1) -> ErrorMap:
    """An empty map of ``heads`` heads whose profiles have ``buckets`` buckets of ``width`` positions."""
    if heads < 1 or buckets < 1 or width < 1:
        msg = f"error map: heads={heads}, buckets={buckets} and width={width} must be at least 1"
        raise ValueError(msg)
    return ErrorMap(
        buckets=buckets,
        width=width,
        err2=np.zeros(heads),
        ref2=np.zeros(heads),
        along=np.zeros(heads),
        cand2=np.zeros(heads),
        cross=np.zeros((heads, heads)),
    )


def add_rows(
    errors: ErrorMap,
    ref: Float64[NDArray[Any], "rows heads value"],
    cand: Float64[NDArray[Any], "rows heads value"],
    *,
    batch_row: int,
    positions: Integer[NDArray[Any], " rows"],
) -> tuple[Array, Array]:
    """Add one prompt's rows.

    Returns:
        Squared error and squared reference by (row, head), for the caller's own sums.
    """
    diff = cand - ref
    err2 = np.einsum("rhv,rhv->rh", diff, diff)
    ref2 = np.einsum("rhv,rhv->rh", ref, ref)
    by_head = err2.sum(axis=0), ref2.sum(axis=0)
    errors.err2 += by_head[0]
    errors.ref2 += by_head[1]
    errors.along += np.einsum("rhv,rhv->h", diff, ref)
    errors.cand2 += np.einsum("rhv,rhv->h", cand, cand)
    heads = ref.shape[1]
    left, right = (np.moveaxis(side, 1, 0).reshape(heads, -1) for side in (cand, ref))
    errors.cross += left @ right.T
    errors.values += left.shape[1]
    errors.rows[batch_row] = errors.rows.get(batch_row, 0) + ref.shape[0]
    cell = errors.cells.setdefault(batch_row, (np.zeros(heads), np.zeros(heads)))
    empty = np.zeros(errors.buckets), np.zeros(errors.buckets)
    line = errors.profile.setdefault(batch_row, empty)
    at = np.minimum(positions // errors.width, errors.buckets - 1)
    for place, part in ((0, err2), (1, ref2)):
        cell[place][:] += by_head[place]
        np.add.at(line[place], at, part.sum(axis=1))
    return err2, ref2


def add_lse(
    errors: ErrorMap,
    ref: Float64[NDArray[Any], "rows heads"],
    cand: Float64[NDArray[Any], "rows heads"],
) -> None:
    """Add one prompt's log-sum-exps, by which heads are recognised even after a projection."""
    gap2 = ((cand[:, :, None] - ref[:, None, :]) ** 2).sum(axis=0)
    errors.lse_gap2 = gap2 if errors.lse_gap2 is None else errors.lse_gap2 + gap2
    errors.lse_sums += (ref.size, ref.sum(), (ref * ref).sum())


def find_structure(errors: ErrorMap, *, noise: float, chunk: int | None = None) -> str | None:
    """Name the heads, batch rows or positions that are wrong.

    Args:
        errors: The filled map.
        noise: Relative L2 error expected of a clean unit; above 0.
        chunk: Tokens in a prefill chunk, where known.

    Returns:
        A phrase such as ``heads 12-15 wrong, others exact`` or ``all heads, only batch rows
        >= 1 wrong (row 0 exact)``; None when nothing exceeds the noise, or when neither all
        heads nor a set of them that stands out does: rows hit by an expert that another
        token was sent to look like that.
    """
    limit = WRONG * noise
    rows, wrong_rows = _batch_rows(errors, limit)
    permuted = _permuted(errors, limit)
    if permuted is not None:
        return ", ".join(part for part in (permuted, rows) if part)
    what = _which_heads(errors, limit, wrong_rows)
    if what is None:
        return None
    if rows is None:
        rows = where_positions(errors.profile, width=errors.width, limit=limit, chunk=chunk)
    return ", ".join(part for part in (what, rows) if part)


def _which_heads(errors: ErrorMap, limit: float, wrong_rows: Sequence[int]) -> str | None:
    """Which heads are wrong in the batch rows that are; None unless all are or a gap tells them."""
    heads = _head_errors(errors, wrong_rows)
    wrong = np.flatnonzero(~(heads <= limit))
    if wrong.size == 0:
        return None
    scaled = "" if wrong_rows else _scaled(errors, wrong, limit)
    if wrong.size == heads.size:
        return f"all heads{scaled}"
    clean = np.delete(heads, wrong)
    if not float(heads[wrong].min()) >= SEPARATED * float(clean.max()):
        return None
    noun = "head" if wrong.size == 1 else "heads"
    return f"{noun} {ranges(wrong)}{scaled or ' wrong'}, others {clean_text(clean)}"


def _head_errors(errors: ErrorMap, wrong_rows: Sequence[int]) -> Array:
    """Relative error by head, over the wrong batch rows or, without any, over all rows."""
    made = _cells_error(errors, wrong_rows) if wrong_rows else ratio(errors.err2, errors.ref2)
    return np.where(np.isnan(made), np.inf, made)


def _cells_error(errors: ErrorMap, rows: Sequence[int]) -> Array:
    """Relative error by head over some batch rows.

    The reference is at least the head's mean square over all rows: a head that
    happens to be small in a short prompt has a large relative error of rounding alone.
    """
    cells = [errors.cells[row] for row in rows]
    err2, ref2 = (np.sum([cell[place] for cell in cells], axis=0) for place in (0, 1))
    share = sum(errors.rows[row] for row in rows) / max(sum(errors.rows.values()), 1)
    made: Array = ratio(err2, np.maximum(ref2, errors.ref2 * share))
    return made


def _scaled(errors: ErrorMap, wrong: NDArray[np.intp], limit: float) -> str:
    """`` scaled by ...`` when a factor explains the wrong heads, else nothing."""
    ref2 = errors.ref2[wrong]
    if not (ref2 > 0).all():
        return ""
    alpha = 1 + errors.along[wrong] / ref2
    left = np.maximum(errors.err2[wrong] - errors.along[wrong] ** 2 / ref2, 0.0)
    if not (ratio(left, ref2) <= limit).all():
        return ""
    low, high = float(alpha.min()), float(alpha.max())
    text = f"{low:.4g}" if f"{low:.4g}" == f"{high:.4g}" else f"{low:.4g} to {high:.4g}"
    return f" scaled by {text}"


def _batch_rows(errors: ErrorMap, limit: float) -> tuple[str | None, list[int]]:
    """Batch rows that are wrong while others are clean, in words and as numbers."""
    worst = {row: float(_cells_error(errors, [row]).max()) for row in sorted(errors.cells)}
    wrong = [row for row, err in worst.items() if not err <= limit]
    clean = [row for row, err in worst.items() if err <= limit]
    if not wrong or not clean:
        return None, []
    after = clean_text(np.array([worst[row] for row in clean]))
    noun = "row" if len(clean) == 1 else "rows"
    which = f">= {wrong[0]}" if wrong[0] > clean[-1] and len(worst) > 1 else ranges(wrong)
    return f"only batch rows {which} wrong ({noun} {ranges(clean)} {after})", wrong


def _permuted(errors: ErrorMap, limit: float) -> str | None:
    """The map from cand heads to the ref heads they equal, when that explains all wrong ones."""
    if errors.values >= MIN_VALUES:
        gap2 = errors.cand2[:, None] - 2 * errors.cross + errors.ref2[None, :]
        np.fill_diagonal(gap2, errors.err2)
        text = _matched(ratio(np.maximum(gap2, 0.0), errors.ref2[None, :]), limit)
        if text is not None:
            return text
    count, total, squares = (float(value) for value in errors.lse_sums)
    heads = errors.err2.size
    if errors.lse_gap2 is None or count < MIN_VALUES * heads:
        return None
    spread2 = squares - total * total / count
    if not spread2 > 0:
        return None
    text = _matched(ratio(errors.lse_gap2 * heads, np.full((heads, heads), spread2)), limit)
    return None if text is None else f"{text}, told by their LSE"


def _matched(distance: Array, limit: float) -> str | None:
    """Words for the best match of each cand head among ref heads; None unless all is explained.

    Args:
        distance: (heads, heads) relative distance of cand head h from ref head m.
        limit: A head farther than this from its own ref head is wrong, nearer to one is it.
    """
    own = np.diagonal(distance)
    best = np.argmin(distance, axis=1)
    nearest = distance[np.arange(own.size), best]
    wrong = ~(own <= limit)
    explained = (nearest <= limit) & (nearest * MATCHED <= own)
    if not wrong.any() or not explained[wrong].all():
        return None
    source = np.where(wrong, best, np.arange(own.size))
    pairs = ", ".join(f"{h}→{int(m)}" for h, m in enumerate(source))
    return f"heads permuted (cand head h equals ref head m{_rule(source)}: {pairs})"


def _rule(source: NDArray[np.intp]) -> str:
    """The formula behind a head map, where it is one of the usual."""
    h = np.arange(source.size)
    formulas: Mapping[str, NDArray[np.intp]] = {
        **{f"h // {k}, as a prefix read of repeated heads gives": h // k for k in (2, 3, 4, 6, 8)},
        **{f"h mod {k}": h % k for k in range(1, source.size)},
        **{f"(h + {k}) mod {h.size}": (h + k) % h.size for k in range(1, source.size)},
        "reversed": h[::-1],
    }
    named: Iterable[str] = (name for name, made in formulas.items() if (made == source).all())
    name = next(iter(named), None)
    return "" if name is None else f" = {name}"
