"""How long greedy streams agree with ref's, cand beside ref's repeats."""

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from validate.metrics._divergence import StreamPair, first_divergence, stream_pairs
from validate.schema.pair import Pair, Side
from validate.schema.series import MOST_COLUMNS, Series, SeriesAxis, SeriesLine
from validate.stats import kaplan_meier

__all__ = ["survival_series"]


class _Seen(NamedTuple):
    """One stream set against ref's."""

    tokens: int
    """Tokens up to the parting, or that both hold."""
    parted: bool


def survival_series(pair: Pair) -> list[Series]:
    """Kaplan-Meier share of streams still in agreement; streams that end are censored there."""
    pairs = stream_pairs(pair).pairs
    if not pairs:
        return []
    seen = {"cand": [_Seen(one.compared, one.diverged is not None) for one in pairs]}
    usable = [side for side in pair.repeats if all(one.prompt in side.streams for one in pairs)]
    floor = [_against(side, one) for side in usable for one in pairs]
    if floor:
        seen["floor"] = floor
    longest = int(np.max([one.tokens for many in seen.values() for one in many]))
    at = np.unique(np.linspace(0, longest, MOST_COLUMNS).round()).astype(int).tolist()
    lines = tuple(
        SeriesLine(
            name="cand" if role == "cand" else f"{len(usable)} repeats of ref",
            role="cand" if role == "cand" else "floor",
            values=_curve(many, at),
        )
        for role, many in seen.items()
    )
    return [
        Series(
            name="greedy.survival",
            title="Greedy streams still equal to ref's",
            reading=(
                "Kaplan-Meier; a stream that ends in agreement counts up to its end. Right paths "
                "part at near-ties, at about the pace of the repeats; a wrong one falls faster."
            ),
            kind="steps",
            x=SeriesAxis(
                label="tokens emitted",
                unit="tokens",
                places=tuple(f"{step}" for step in at),
                at=tuple(float(step) for step in at),
            ),
            y=SeriesAxis(label="share of streams in agreement"),
            lines=lines,
            n=len(pairs),
            n_of="prompts",
        )
    ]


def _against(side: Side, one: StreamPair) -> _Seen:
    theirs = side.streams[one.prompt].token_ids
    step = first_divergence(one.ref, theirs)
    common = min(len(one.ref), len(theirs))
    return _Seen(common if step is None else step + 1, step is not None)


def _curve(seen: list[_Seen], at: list[int]) -> tuple[float, ...]:
    curve = kaplan_meier([one.tokens for one in seen], [one.parted for one in seen])
    shares = (1.0, *curve.survival)
    return tuple(shares[bisect_right(curve.times, step)] for step in at)
