"""KL by position, and its quantiles, beside the same between ref and its repeats."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.metrics._logit_rows import SectionRows
from validate.schema.series import Series, SeriesAxis, SeriesLine

__all__ = ["Drift", "drift_of", "kl_series"]

BUCKETS = 24
"""Most buckets of positions; each holds about as many rows as any other."""
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "largest": 1.0}
BAND = (0.5, 0.9, 0.99)
NATS = "nats"


class Drift(NamedTuple):
    """KL of every teacher-forced row of a pair."""

    positions: NDArray[np.int32]
    kl: NDArray[np.float64]
    """Nats; a lower bound where logits are stored as top-k."""


def drift_of(forced: Sequence[SectionRows]) -> Drift:
    """All rows of all prompts, one after the other."""
    return Drift(
        np.concatenate([part.positions for part in forced]),
        np.concatenate([part.kl for part in forced]),
    )


def kl_series(cand: Drift, floor: Sequence[Drift]) -> list[Series]:
    """KL(ref || cand) by position and by quantile, with all repeats of ref as one floor.

    Args:
        cand: Ref against cand; at least one row.
        floor: Ref against each repeat; empty: there is none.
    """
    drifts = {"cand": cand} | ({"floor": _joined(floor)} if floor else {})
    return [_by_position(drifts), _by_quantile(drifts)]


def _joined(drifts: Sequence[Drift]) -> Drift:
    return Drift(
        np.concatenate([one.positions for one in drifts]),
        np.concatenate([one.kl for one in drifts]),
    )


def _by_position(drifts: dict[str, Drift]) -> Series:
    starts = _starts(drifts["cand"].positions)
    last = int(drifts["cand"].positions.max())
    ends = [*(starts[1:] - 1).tolist(), last]
    lines = []
    for role, drift in drifts.items():
        low, middle, high = _bands(drift, starts)
        who = "cand" if role == "cand" else "repeats of ref"
        lines.append(
            SeriesLine(
                name=f"{who}: p90, band p50 to p99",
                role="cand" if role == "cand" else "floor",
                values=middle,
                low=low,
                high=high,
            )
        )
    return Series(
        name="logits.kl_by_position",
        title="KL(ref || cand) by position",
        reading=(
            "Flat and beside the repeats is what a right path shows. A line that climbs with "
            "position drifts; a jump at one place points at a chunk or cache boundary."
        ),
        kind="lines",
        x=SeriesAxis(
            label="position",
            unit="tokens",
            places=tuple(_range(int(a), b) for a, b in zip(starts, ends, strict=True)),
        ),
        y=SeriesAxis(label="KL", unit=NATS, scale="log"),
        lines=tuple(lines),
        n=int(drifts["cand"].kl.size),
        n_of="positions",
    )


def _starts(positions: NDArray[np.int32]) -> NDArray[np.int64]:
    """First position of each bucket, so that buckets hold about equally many rows."""
    firsts = np.arange(BUCKETS) * positions.size // BUCKETS
    return np.unique(np.partition(positions, firsts)[firsts].astype(np.int64))


def _bands(drift: Drift, starts: NDArray[np.int64]) -> list[tuple[float | None, ...]]:
    """Three quantiles by bucket; None where a bucket holds no row."""
    bucket = np.searchsorted(starts.astype(np.int32), drift.positions, side="right")
    order = np.argsort(bucket.astype(np.uint8), kind="stable")
    kl = drift.kl[order]
    cuts = np.searchsorted(bucket[order], np.arange(1, len(starts) + 2))
    rows: list[NDArray[np.float64] | None] = [
        np.quantile(kl[a:b], BAND) if b > a else None for a, b in itertools.pairwise(cuts)
    ]
    return [
        tuple(None if row is None else float(row[place]) for row in rows)
        for place in range(len(BAND))
    ]


def _range(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


def _by_quantile(drifts: dict[str, Drift]) -> Series:
    lines = [
        SeriesLine(
            name="cand" if role == "cand" else "repeats of ref",
            role="cand" if role == "cand" else "floor",
            values=tuple(np.quantile(drift.kl, list(QUANTILES.values())).tolist()),
        )
        for role, drift in drifts.items()
    ]
    return Series(
        name="logits.kl_quantiles",
        title="Quantiles of KL(ref || cand) over all positions",
        reading=(
            "The bulk is on the left, the tail on the right. Cand above the repeats on the left "
            "alone is rounding of another kind; on the right alone, a few places are wrong."
        ),
        kind="lines",
        x=SeriesAxis(label="quantile over positions", places=tuple(QUANTILES)),
        y=SeriesAxis(label="KL", unit=NATS, scale="log"),
        lines=tuple(lines),
        n=int(drifts["cand"].kl.size),
        n_of="positions",
    )
