"""Judging a filtered row: which entries were kept, and what was made of them.

The kept set is judged by its order, its size and its ties; the values are then judged
against the oracle's division of the very entries that were kept, so that a legitimate choice
among ties moves no value.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from validate.conformance.ops._prob_rows import (
    U32,
    accumulated,
    is_damaged,
    orders,
    smallest_step,
    widened,
)
from validate.conformance.records import Breach, Call, Case, OutputSpec, Settings
from validate.numerics import unit_roundoff

__all__ = ["CLAUSES", "DAMAGED", "OUTPUT", "TIES", "Sizes", "check_rows", "filter_outputs"]

Array = NDArray[np.float64]
TIES = ("all", "exactly_k")
DAMAGED = ("any", "nan", "zeros")
OUTPUT = ("input", "float32")

CLAUSES: Mapping[str, str] = {
    "kept-set": "Every kept entry is at least as large as every dropped one, and as many are "
    "kept as the oracle keeps, outside the stated band.",
    "ties": "ties=all: entries equal to the smallest kept one are kept too. ties=exactly_k: no "
    "more are kept than needed; which of equals is free.",
    "dropped-zero": "A dropped entry is exactly 0.",
    "values": "A kept entry is p over the kept sum, within |err| <= o ((s + 4) u + u_out) + step/2: "
    "s of a float32 sum, 4 for the division or an approximate reciprocal, u_out and step of "
    "the output dtype. An entry below 2^-126, as it came or once divided, may be flushed to 0.",
    "ratios": "Kept entries of a row have one factor to what came in, within 2 u_out + 8 u.",
    "sum": "A row sums to 1 within the limits of its values, and to 0 where it came in as 0.",
    "damaged": "A row with NaN or an infinity moves no other row; its own content is free "
    "(damaged=any), NaN throughout (nan) or 0 (zeros).",
    "row-order": "Each row is judged in several orders of the rows and alone (every 13th of more than "
    "64): its batchmates and "
    "their parameters change nothing.",
    "repeats": "The same call keeps the same set.",
}
"""Clauses shared by the filters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How many entries one row keeps."""

    low: int
    """Fewest, ties not counted."""
    high: int
    """Most, ties not counted; more than ``low`` only inside the band."""
    ties: str
    words: str
    """The parameter in words, e.g. ``k 3``."""
    mass: float | None = None
    """Mass that must be kept, band already taken off; None for no such demand."""


Rule = Callable[[Array, int], Sizes]
"""From a row's values in falling order, and its number, to the sizes of its kept set."""


def filter_outputs(
    inputs: Mapping[str, object], settings: Settings, *, name: str = "out"
) -> Mapping[str, OutputSpec]:
    """One output of the shape of ``probs``, in its dtype or float32."""
    probs = np.asarray(inputs["probs"])
    dtype = probs.dtype.name if settings["output"] == "input" else "float32"
    return {name: OutputSpec(shape=probs.shape, dtype=dtype)}


def check_rows(
    case: Case, call: Call, settings: Settings, *, rows: tuple[str, ...], rule: Rule
) -> tuple[Breach, ...]:
    """Run a filter in several row orders, alone and again, and judge every row of each.

    Args:
        case: Sweep point with ``probs`` [rows, vocab] and parameters.
        call: Implementation behind guards.
        settings: Contract settings.
        rows: Inputs that have a row axis 0 besides ``probs``.
        rule: Sizes of each row's kept set.
    """
    probs = widened(case.inputs["probs"])
    count = len(probs)
    large = probs.size > 50_000  # noqa: PLR2004  a vocabulary of full size: few calls
    runs = list(orders(count, every=not large))
    if count > 1 and not large:
        # A crowd stands for many rows; being alone is told by a tenth of it.
        runs += [(row,) for row in range(0, count, 13 if count > 64 else 1)]  # noqa: PLR2004
    falling = [np.sort(row)[::-1] for row in probs]
    damaged = is_damaged(probs)
    for order in runs:
        out = call(_taken(case, order, rows))["out"]
        breaches = _judged(out, order, probs, falling, damaged, settings, rule)
        if breaches:
            return breaches
    return _repeated(case, call, damaged) if count else ()


def _taken(case: Case, order: tuple[int, ...], rows: tuple[str, ...]) -> dict[str, object]:
    by_row = {"probs", *(name for name in rows if isinstance(case.inputs[name], np.ndarray))}
    return {
        name: np.ascontiguousarray(value[list(order)]) if name in by_row else value
        for name, value in case.inputs.items()
    }


def _judged(
    out: np.ndarray,
    order: tuple[int, ...],
    probs: Array,
    falling: list[Array],
    damaged: NDArray[np.bool_],
    settings: Settings,
    rule: Rule,
) -> tuple[Breach, ...]:
    values = widened(out)
    plain = order == tuple(range(len(probs)))
    place = "" if plain else " (alone)" if len(order) == 1 else f" (row order {order})"
    found: dict[str, list[Breach]] = {}
    for at, row in enumerate(order):
        if damaged[row]:
            told = _damaged_row(values[at], row, settings["damaged"])
        else:
            told = _row(values[at], probs[row], falling[row], row, rule, out.dtype.name)
        for breach in told:
            found.setdefault(breach.clause, []).append(breach)
    return tuple(_merged(clause, many, place) for clause, many in found.items())


def _merged(clause: str, many: list[Breach], place: str) -> Breach:
    """One breach a clause: the first row's words, every row's number."""
    first = many[0]
    more = f"; {len(many)} rows in all" if len(many) > 1 else ""
    return Breach(
        clause=clause,
        what=f"{first.what}{place}{more}",
        at=first.at,
        wrong={"row": tuple(breach.at["row"] for breach in many)},
        ratio=first.ratio,
    )


def _damaged_row(values: Array, row: int, rule: str) -> tuple[Breach, ...]:
    if rule == "any":
        return ()
    right = np.isnan(values).all() if rule == "nan" else (values == 0).all()
    if right:
        return ()
    what = f"row {row} came in with NaN or an infinity; damaged={rule} asks for {rule}, it holds {values[:4]}"
    return (Breach(clause="damaged", what=what, at={"row": row}),)


def _row(
    values: Array, probs: Array, falling: Array, row: int, rule: Rule, dtype: str
) -> tuple[Breach, ...]:
    if not np.isfinite(values).all():
        at = int(np.argmax(~np.isfinite(values)))
        what = f"row {row} holds {values[at]} at {at}; every entry that came in is finite"
        return (Breach(clause="values", what=what, at={"row": row, "entry": at}),)
    sizes = rule(falling, row)
    kept = values != 0
    stray = kept & (probs == 0)
    if stray.any():
        at = int(np.argmax(stray))
        what = f"row {row}, {sizes.words}: entry {at} came in as 0 and is {values[at]:.4g}"
        return (Breach(clause="dropped-zero", what=what, at={"row": row, "entry": at}),)
    wrong = _kept_set(kept, probs, falling, row, sizes, dtype)
    if wrong:
        return wrong
    return _values(values, probs, kept, row, sizes, dtype)


def _visible(falling: Array, dtype: str) -> int:
    """How many of a row's largest stay above the smallest normal numbers once divided."""
    total = float(falling.sum())
    step = np.maximum(float(np.finfo(np.float32).tiny), smallest_step(dtype) * 2)
    least = step * np.maximum(total, 1.0)
    return int(np.count_nonzero(falling > least))


def _kept_set(
    kept: NDArray[np.bool_], probs: Array, falling: Array, row: int, sizes: Sizes, dtype: str
) -> tuple[Breach, ...]:
    seen = _visible(falling, dtype)
    if seen == 0:
        return ()
    mine, others = (mask & (probs >= falling[seen - 1]) for mask in (kept, ~kept))
    count = int(mine.sum())
    least = float(probs[mine].min()) if count else np.inf
    largest = float(probs[others].max()) if others.any() else -np.inf
    low, high = int(np.minimum(sizes.low, seen)), int(np.minimum(sizes.high, seen))
    if sizes.ties == "all":
        low, high = _with_ties(falling, low), _with_ties(falling, high)
    head = f"row {row}, {sizes.words}:"
    clause, what = "kept-set", ""
    if largest > least:
        what = f"an entry of {least:.6g} is kept and one of {largest:.6g} dropped; {count} kept"
    elif largest == least and sizes.ties == "all":
        clause, what = "ties", _split_tie(least, mine, probs)
    elif count > high and least == falling[high - 1]:
        tied = int((probs == least).sum())
        clause = "ties"
        what = f"ties=exactly_k keeps {high}, {count} are kept: {tied} entries tie at {least:.6g}"
    elif not low <= count <= high:
        wanted = f"{low}" if low == high else f"{low} to {high}"
        what = f"kept {count}, the oracle keeps {wanted} (down to {falling[high - 1]:.6g})"
    elif sizes.mass is not None and not float(probs[kept].sum()) >= sizes.mass:
        clause = "mass"
        what = f"kept mass {float(probs[kept].sum()):.8g}, at least {sizes.mass:.8g} is due"
    return (Breach(clause=clause, what=f"{head} {what}", at={"row": row}),) if what else ()


def _split_tie(least: float, mine: NDArray[np.bool_], probs: Array) -> str:
    tied = probs == least
    return (
        f"tie at {least:.6g}: {int((tied & mine).sum())} of {int(tied.sum())} equal entries kept, "
        f"{int(mine.sum())} kept in all; ties=all keeps {int((probs >= least).sum())}"
    )


def _with_ties(falling: Array, count: int) -> int:
    return int(np.count_nonzero(falling >= falling[count - 1])) if count else 0


def _values(
    values: Array, probs: Array, kept: NDArray[np.bool_], row: int, sizes: Sizes, dtype: str
) -> tuple[Breach, ...]:
    total, count = float(probs[kept].sum()), int(kept.sum())
    if count == 0:
        if not probs.any() or _visible(np.sort(probs)[::-1], dtype) == 0:
            return ()
        what = f"row {row}, {sizes.words}: nothing is kept"
        return (Breach(clause="kept-set", what=what, at={"row": row}),)
    u_out, step = unit_roundoff(dtype), smallest_step(dtype)
    # A flush of subnormal float32 numbers to 0 is within what a kernel may do.
    step = float(np.maximum(step, np.finfo(np.float32).tiny))
    rate = accumulated(count) + 4 * U32 + u_out
    expected = np.where(kept, probs, 0.0) / total
    err, limit = np.abs(values - expected), expected * rate + step / 2
    found = []
    if not (err <= limit).all():
        at = int(np.argmax(err / limit))
        what = (
            f"row {row}, {sizes.words}: entry {at} is {values[at]:.8g}, oracle {expected[at]:.8g}, error "
            f"{err[at]:.3g}, limit {limit[at]:.3g}"
        )
        place = {"row": row, "entry": at}
        found.append(Breach(clause="values", what=what, at=place, ratio=float(err[at] / limit[at])))
    off, slack = abs(float(values.sum()) - 1.0), rate + count * step / 2
    if not off <= slack:
        what = f"row {row}, {sizes.words}: sums to {float(values.sum()):.8g}, off by {off:.3g}, limit {slack:.3g}"
        found.append(Breach(clause="sum", what=what, at={"row": row}, ratio=off / slack))
    factor = values[kept] / expected[kept]
    spread = np.abs(factor / np.median(factor) - 1.0)
    allowed = 2 * u_out + 8 * U32 + step / expected[kept]
    if not found and not (spread <= allowed).all():
        worst = int(np.argmax(spread / allowed))
        at = int(np.flatnonzero(kept)[worst])
        what = f"row {row}, {sizes.words}: entry {at} has {factor[worst]:.8g} of the factor of the others, limit 1 +- {allowed[worst]:.3g}"
        place = {"row": row, "entry": at}
        found.append(
            Breach(
                clause="ratios", what=what, at=place, ratio=float(spread[worst] / allowed[worst])
            )
        )
    return tuple(found)


def _repeated(case: Case, call: Call, damaged: NDArray[np.bool_]) -> tuple[Breach, ...]:
    first = np.asarray(call(case.inputs)["out"] != 0)
    for _ in range(2):
        differ = (np.asarray(call(case.inputs)["out"] != 0) != first) & ~damaged[:, None]
        if differ.any():
            row = int(np.argmax(differ.any(axis=1)))
            what = f"row {row}: {int(differ[row].sum())} entries are kept by one call and dropped by an equal one"
            wrong = {"row": tuple(int(i) for i in np.flatnonzero(differ.any(axis=1)))}
            return (Breach(clause="repeats", what=what, at={"row": row}, wrong=wrong),)
    return ()
