"""Where drawn tokens fell in their law, and how often drafts were accepted."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.metrics._spec_read import spec_side
from validate.metrics._spec_streams import (
    FALLING_P,
    FALLING_RATIO,
    OWN,
    P_LAW,
    Drawn,
    SpecSide,
    Steps,
)
from validate.metrics.speculative_uniform import INFORMATIVE
from validate.schema.pair import Pair
from validate.schema.series import Series, SeriesAxis, SeriesLine
from validate.stats import binomial_quantile

__all__ = ["acceptance_series", "uniform_series"]

BINS = 20
OUTER = 0.005
"""Each end of the band that a uniform bin stays within 99 times of 100."""
DEPTHS = 8
"""Most buckets of context depth."""
FEWEST = 1
"""Judged drafts without which a place has no rate."""


def uniform_series(pair: Pair) -> list[Series]:
    """Histograms of U, a series a kind; tokens that could hardly have been others are left out."""
    side = spec_side(pair, pair.cand)
    if side.refusal is not None:
        return []
    made = [_histogram(side, drawn) for drawn in side.sampled()]
    return [one for one in made if one is not None]


def _histogram(side: SpecSide, drawn: Drawn) -> Series | None:
    tokens = drawn.tokens.where((drawn.tokens.entropy >= INFORMATIVE) & (drawn.tokens.p > 0))
    ways = {"by p, falling": (P_LAW, FALLING_P)}
    if drawn.steps is not None:
        ways["by the law of its outcome, q / p falling"] = (OWN, FALLING_RATIO)
    edges = np.linspace(0.0, 1.0, BINS + 1)
    lines, n = [], 0
    for name, (law, order) in ways.items():
        found = tokens.uniforms(side.key, law=law, order=order)
        found = found[np.isfinite(found)]
        if not found.size:
            continue
        counts = np.histogram(found, edges)[0]
        lines.append(SeriesLine(name=name, role="cand", values=_shares(counts, found.size)))
        n = n or int(found.size)
    if not lines:
        return None
    low, high = (float(binomial_quantile(q, n=n, p=1.0 / BINS)) for q in (OUTER, 1.0 - OUTER))
    expected = SeriesLine(
        name="uniform, with the band of 99 of 100 bins",
        role="expected",
        values=(1.0,) * BINS,
        low=(low * BINS / n,) * BINS,
        high=(high * BINS / n,) * BINS,
    )
    return Series(
        name=f"speculative.uniform_{drawn.kind}",
        title=f"Where tokens fell in their law: {drawn.kind}",
        reading=(
            "Flat is a sampler that follows its law. High on the left: likely tokens are drawn too "
            "often (a temperature too low, a filter too tight); high on the right: too rarely."
        ),
        kind="bars",
        x=SeriesAxis(
            label="U, place in the cumulated law",
            places=tuple(f"{a:.2f} to {b:.2f}" for a, b in itertools.pairwise(edges)),
        ),
        y=SeriesAxis(label="tokens, over what a uniform law gives"),
        lines=(*lines, expected),
        n=n,
        n_of="tokens",
    )


def _shares(counts: NDArray[np.int64], n: int) -> tuple[float, ...]:
    return tuple((counts * (BINS / n)).tolist())


class _Part(NamedTuple):
    """Some drafts: their name, and which of a side's they are."""

    name: str
    pick: Callable[[Steps], NDArray[np.bool_]]


def acceptance_series(pair: Pair) -> list[Series]:
    """Acceptance by draft index and by context depth, observed and expected, both sides."""
    sides = {"cand": spec_side(pair, pair.cand), "ref": spec_side(pair, pair.ref)}
    made = []
    for kind, drawn in sides["cand"].kinds.items():
        if drawn.steps is None or not len(drawn.steps):
            continue
        ref = sides["ref"].kinds.get(kind)
        steps = {"cand": drawn.steps}
        if ref is not None and ref.steps is not None and len(ref.steps):
            steps["ref"] = ref.steps
        made += [
            _rates(kind, "index", "index in the block", _by_index(drawn.steps), steps),
            _rates(kind, "depth", "depth in the context, tokens", _by_depth(drawn.steps), steps),
        ]
    return made


def _by_index(steps: Steps) -> list[_Part]:
    def at(row: int) -> Callable[[Steps], NDArray[np.bool_]]:
        return lambda one: np.broadcast_to(np.arange(one.judged.shape[1]) == row, one.judged.shape)

    return [_Part(f"{row + 1}", at(row)) for row in range(steps.judged.shape[1])]


def _by_depth(steps: Steps) -> list[_Part]:
    edges = np.quantile(steps.place, np.linspace(0.0, 1.0, DEPTHS, endpoint=False), method="lower")
    starts = np.unique(edges.astype(np.int64)).tolist()
    last = int(np.max(steps.place))

    def within(low: int, high: int) -> Callable[[Steps], NDArray[np.bool_]]:
        return lambda one: np.broadcast_to(
            ((one.place >= low) & (one.place <= high))[:, None], one.judged.shape
        )

    ends = [*(start - 1 for start in starts[1:]), last]
    return [
        _Part(f"{low} to {high}", within(low, high)) for low, high in zip(starts, ends, strict=True)
    ]


def _rates(kind: str, way: str, label: str, parts: list[_Part], steps: dict[str, Steps]) -> Series:
    lines = [
        SeriesLine(
            name=f"{role}, observed",
            role="cand" if role == "cand" else "ref",
            values=tuple(_rate(one, part, one.accepts > 0) for part in parts),
        )
        for role, one in steps.items()
    ]
    cand = steps["cand"]
    lines.append(
        SeriesLine(
            name="cand, expected by its verifier's rule",
            role="expected",
            values=tuple(_rate(cand, part, np.clip(cand.expected, 0.0, 1.0)) for part in parts),
        )
    )
    return Series(
        name=f"speculative.acceptance_{way}_{kind}",
        title=f"Acceptance by {'draft index' if way == 'index' else 'context depth'}: {kind}",
        reading=(
            "Observed on top of expected: the coins are fair. Cand below ref on the same prompts: "
            "the drafter is worse; above expected: something accepts what it must not."
        ),
        kind="lines",
        x=SeriesAxis(label=label, places=tuple(part.name for part in parts)),
        y=SeriesAxis(label="share of judged drafts accepted"),
        lines=tuple(lines),
        n=int(np.count_nonzero(cand.judged)),
        n_of="judged drafts",
    )


def _rate(steps: Steps, part: _Part, values: NDArray[Any]) -> float | None:
    held = values[steps.judged & part.pick(steps)]
    rate = float(np.mean(held)) if held.size >= FEWEST else None
    return rate if rate is not None and np.isfinite(rate) else None
