"""Coverage and level of every interval method, by simulation with a fixed seed."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import numpy as np

from validate.schema import Interval, Levels
from validate.stats._laws import LAWS, Draw, Law, Q
from validate.stats.bootstrap import bootstrap_limits
from validate.stats.bounded import bernstein_limits, betting_limits
from validate.stats.cluster import cluster_mean_limits
from validate.stats.exceedance import exceedance_limits
from validate.stats.mean import mean_limits
from validate.stats.quantile import quantile_limits
from validate.stats.ratio import ratio_limits
from validate.stats.tail import tail_checked

__all__ = ["Cell", "calibrate", "decide_n_min"]

SIZES = (8, 32, 128)
LEVELS = Levels(low=0.975, high=0.95)
"""The upper limit is the one a PASS rests on. The lower one, at a gate's share of alpha, would be
too rare to count: 2.5 % stands in for it."""
SPREAD = 3.09
"""Standard errors above the stated rate at which a cell is marked: 0.1 % of right cells are."""
DRAWS = 2000
MOST_RESAMPLED = 128_000
"""Units resampled in a cell of a bootstrap: 2,000 data sets up to 64 clusters, 1,000 of 128."""

Method = Callable[[Draw, np.random.Generator], Interval]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One method on one law at one number of clusters."""

    method: str
    data: str
    n: int
    """Clusters (prompts)."""
    draws: int
    coverage: float
    """Share in which the upper limit was not below the truth; stated 95 %. None misses nothing."""
    false_pass: float
    """Share in which it was: 1 - coverage; stated 5 %."""
    false_fail: float
    """Share in which the lower limit lay above the truth; stated 2.5 %."""
    undefined: float
    """Share in which a limit was None."""
    fails: bool
    """A miss rate is beyond the stated one by more than binomial error."""


def _checked_t(draw: Draw, _: np.random.Generator) -> Interval:
    """T limits that the tail diagnostic may withhold: what a gate may read."""
    return tail_checked(mean_limits(draw.units, levels=LEVELS), draw.units)


def _order(draw: Draw, _: np.random.Generator) -> Interval:
    return quantile_limits(draw.units, q=Q, levels=LEVELS)


METHODS: Mapping[str, Method] = {
    "t": lambda draw, _: mean_limits(draw.units, levels=LEVELS),
    "t, tail-checked": _checked_t,
    "clustered t": lambda draw, _: cluster_mean_limits(
        draw.tokens, clusters=draw.clusters.tolist(), levels=LEVELS
    ),
    "t over tokens": lambda draw, _: mean_limits(draw.tokens, levels=LEVELS),
    "studentised bootstrap": lambda draw, rng: bootstrap_limits(draw.units, levels=LEVELS, rng=rng),
    "percentile bootstrap": lambda draw, rng: bootstrap_limits(
        draw.units, levels=LEVELS, rng=rng, method="percentile"
    ),
    "empirical Bernstein": lambda draw, _: bernstein_limits(draw.units, levels=LEVELS),
    "betting": lambda draw, _: betting_limits(draw.units, levels=LEVELS),
    "t on the log": lambda draw, _: ratio_limits(
        draw.units, np.ones_like(draw.units), levels=LEVELS
    ),
    "order statistic": _order,
}


def _truth(method: str, law: Law) -> float | None:
    """What the method estimates under this law; None where it does not apply."""
    if method in ("clustered t", "t over tokens"):
        return law.mean if law.clustered else None
    if method in ("empirical Bernstein", "betting"):
        return law.mean if law.kind == "unit" else None
    if method == "t on the log":
        return 1.0 if law.kind == "positive" else None
    return law.quantile if method == "order statistic" else law.mean


def calibrate(
    *,
    seed: int,
    draws: int = DRAWS,
    only: tuple[str, str, int] | None = None,
) -> list[Cell]:
    """Simulate every method on every law that it applies to.

    Args:
        seed: Each cell draws from a generator of its own, so a cell alone gives the same numbers.
        draws: Data sets a cell; a bootstrap of many clusters takes fewer.
        only: Method, law and clusters of the one cell that is wanted.

    Returns:
        The cells, in the order of the table.
    """
    cells: list[Cell] = []
    place = 0
    for method in [*METHODS, "Clopper-Pearson"]:
        for data, law in LAWS.items():
            for n in SIZES:
                place += 1
                truth = 1.0 - Q if method == "Clopper-Pearson" else _truth(method, law)
                if truth is None or (only is not None and only != (method, data, n)):
                    continue
                cap = MOST_RESAMPLED // n if "bootstrap" in method else draws
                count = draws if draws < cap else cap
                rng = np.random.default_rng([seed, place])
                cells.append(_cell(method, data, n, truth, count, rng))
    return cells


def _cell(
    method: str, data: str, n: int, truth: float, draws: int, rng: np.random.Generator
) -> Cell:
    law = LAWS[data]
    low = high = undefined = 0
    for _ in range(draws):
        drawn = law.draw(rng, n)
        if method == "Clopper-Pearson":
            found = exceedance_limits(drawn.units, threshold=law.quantile, levels=LEVELS)
        else:
            found = METHODS[method](drawn, rng)
        low += found.low is not None and not found.low <= truth
        high += found.high is not None and not found.high >= truth
        undefined += found.low is None or found.high is None
    held = high / draws <= most(1.0 - LEVELS.high, draws)
    return Cell(
        method=method,
        data=data,
        n=n,
        draws=draws,
        coverage=(draws - high) / draws,
        false_pass=high / draws,
        false_fail=low / draws,
        undefined=undefined / draws,
        fails=not (held and low / draws <= most(1.0 - LEVELS.low, draws)),
    )


def most(rate: float, draws: int) -> float:
    """Largest share of ``draws`` that a true rate explains."""
    return rate + SPREAD * math.sqrt(rate * (1.0 - rate) / draws)


def decide_n_min(cells: list[Cell]) -> dict[str, dict[str, int | None]]:
    """Per method, for light and for heavy tails, the clusters from which no cell fails.

    Returns:
        ``{method: {"light": n, "heavy": n}}``: the smallest calibrated n from which every cell
        of that class holds its level; None where even the largest does not, or none was measured.
    """
    table: dict[str, dict[str, int | None]] = {}
    for method in dict.fromkeys(cell.method for cell in cells):
        mine = [cell for cell in cells if cell.method == method]
        light = [cell for cell in mine if _light(cell)]
        heavy = [cell for cell in mine if not _light(cell)]
        table[method] = {"light": _first_sound(light or heavy), "heavy": _first_sound(heavy)}
    return table


def _light(cell: Cell) -> bool:
    """What the method sees: logarithms of lognormal numbers are normal."""
    return LAWS[cell.data].light or cell.method == "t on the log"


def _first_sound(cells: list[Cell]) -> int | None:
    best: int | None = None
    for n in sorted({cell.n for cell in cells}, reverse=True):
        if any(cell.fails for cell in cells if cell.n == n):
            break
        best = n
    return best


def as_rows(cells: list[Cell]) -> list[dict[str, object]]:
    """Cells as plain mappings for JSON."""
    return [asdict(cell) for cell in cells]
