"""One filtered probability row against the float64 oracle: what it keeps, and how it divides."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from validate.numerics import unit_roundoff
from validate.oracle import top_k_kept, top_k_renorm_prob, top_p_kept
from validate.oracle.renorm import Ties

__all__ = ["Judged", "RowCase", "judge_row", "rounding", "tie_band"]

Array = NDArray[np.float64]
U = unit_roundoff("float32")
"""Sums and divisions of every engine are float32, whatever the dtype of the rows."""
LEAST = float(np.finfo(np.float32).tiny)
"""Smaller entries are flushed to zero by some engines and kept by others; either is right."""
NEAR = 4 * U
"""Entries this close, relatively, may be one number after a float32 division."""


class RowCase(NamedTuple):
    """One row as a side captured it."""

    given: Float64[Array, " vocab"]
    out: Float64[Array, " vocab"]
    k: int
    p: float
    ties: Ties
    """What the side declares of itself."""
    u_out: float
    """Unit roundoff of the dtype that ``out`` was stored in."""


class Judged(NamedTuple):
    """What is wrong with one row, in numbers."""

    bad: int
    """Entries of either row that are NaN, infinite or negative; the rest is then not measured."""
    wrong: str | None = None
    """How the kept set differs from the oracle's outside the tie band; None where it does not."""
    kept: int = 0
    low: int = 0
    high: int = 0
    """The oracle's count lies between; they differ where the mass meets p within the tie band."""
    tied: bool = False
    """Whether the k-th largest entry ties with the next, so that the tie rule decides."""
    entries: int = 0
    """Entries of the input that are above 0: where ``low`` is less, something may go."""
    sum_error: float = 0.0
    value_error: float = 0.0
    shortfall: float = 0.0
    """Probability mass by which what is kept falls short of p."""


def tie_band(entries: int, *, u_out: float = 0.0) -> float:
    """How far apart two right float32 computations may see a cumulated mass of about 1.

    ``(6 sqrt(n) + 4) u``: rounding errors of n additions grow like the square root of n (Higham
    and Mary, SIAM J. Sci. Comput. 41, 2019, theorem 2.4, with lambda = 6 it fails with a chance
    below 4e-8), and four roundings for the two divisions and p itself. An output narrower than
    float32 rounds once more.
    """
    return (6 * math.sqrt(entries) + 4) * U + (u_out if u_out > U else 0.0)


def rounding(entries: int, *, u_out: float = 0.0) -> float:
    """Worst case of what a right float32 division by a sum of n entries is off by, relatively.

    ``(n + 4) u``: n - 1 additions, at most two divisions, and the sum's own rounding (Higham,
    Accuracy and Stability of Numerical Algorithms, 2nd edition, section 4.2).
    """
    return (entries + 4) * U + (u_out if u_out > U else 0.0)


def judge_row(row: RowCase) -> Judged:
    """Hold one row against the oracle under the row's own parameters and declared tie rule."""
    bad = sum(
        int(np.count_nonzero(~np.isfinite(side) | (side < 0))) for side in (row.given, row.out)
    )
    if bad:
        return Judged(bad=bad)
    total = math.fsum(row.out)
    rows = row.given[None]
    within = top_k_kept(rows, row.k, ties=row.ties)[0] & (row.given >= LEAST)
    mass = math.fsum(row.given[within])
    if not mass > 0:
        wrong = None if total == 0 else f"a row of zeros gives {total:.4g}"
        return Judged(bad=0, wrong=wrong, sum_error=total)
    low, high = _bounds(row, within)
    kept = (row.out > 0) & (row.given >= LEAST)
    held = math.fsum(row.given[kept])
    k = min(max(row.k, 1), len(row.given))
    return Judged(
        bad=0,
        wrong=_wrong(row, kept, low=low, high=high),
        kept=int(kept.sum()),
        low=low,
        high=high,
        entries=int(np.count_nonzero(row.given >= LEAST)),
        tied=int(top_k_kept(rows, k, ties="all").sum()) > k,
        sum_error=abs(total - 1.0),
        value_error=_value_error(row, kept, held),
        shortfall=float(np.maximum(0.0, np.clip(row.p, 0.0, 1.0) - held / mass)),
    )


def _bounds(row: RowCase, within: NDArray[np.bool_]) -> tuple[int, int]:
    """Fewest and most entries that a right computation may keep."""
    share = top_k_renorm_prob(row.given[None], row.k, ties=row.ties)
    band = tie_band(int(within.sum()), u_out=row.u_out)
    p = float(np.clip(row.p, 0.0, 1.0))
    if p == 1:  # keeps all, whatever the mass adds up to
        return int(within.sum()), int(within.sum())
    fewest = top_p_kept(share, p - band, ties=row.ties)[0] & within
    most = top_p_kept(share, p + band, ties=row.ties)[0] & within
    if row.ties == "all":
        last = row.given[most].min()
        most |= within & (row.given >= last * (1 - NEAR - row.u_out))
    return int(fewest.sum()), int(most.sum())


def _wrong(row: RowCase, kept: NDArray[np.bool_], *, low: int, high: int) -> str | None:
    """What is wrong with the kept set, in words."""
    made = np.flatnonzero((row.out > 0) & (row.given == 0))
    if made.size:
        return f"id {made[0]} has probability 0 before and {row.out[made[0]]:.4g} after"
    count = int(kept.sum())
    asked = f"k={row.k}, p={row.p:.6g}, ties {row.ties}"
    if not low <= count <= high:
        oracle = f"{low}" if low == high else f"{low} to {high}"
        return f"keeps {count} entries, the oracle {oracle} ({asked})"
    least = row.given[kept].min()
    left = np.where(kept, -1.0, row.given)
    most = float(left.max())
    if most > least or (row.ties == "all" and most == least):
        a, b = int(np.flatnonzero(kept & (row.given == least))[0]), int(np.argmax(left))
        return f"keeps id {a} ({least:.4g}) and not id {b} ({most:.4g}) ({asked})"
    return None


def _value_error(row: RowCase, kept: NDArray[np.bool_], held: float) -> float:
    """Largest relative error of a kept entry, given what the row itself keeps."""
    if not kept.any():
        return math.inf
    expected = row.given[kept] / held
    return float(np.max(np.abs(row.out[kept] / expected - 1.0)))
