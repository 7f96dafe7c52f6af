"""The laws that interval methods are calibrated on, with their true means and quantiles."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

Q = 0.9
"""The quantile that order statistics are calibrated for."""
MOST_TOKENS = 16
"""Clusters of the clustered law hold 1 to 16 units."""
NONZERO = 0.2
"""Share of units of the zero-inflated law that are not 0."""
BETA = 4.0
"""Nonzero units follow Beta(1, 4), of mean 1/5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One simulated data set."""

    units: NDArray[np.float64]
    """One number per prompt (for the clustered law the prompt's mean)."""
    tokens: NDArray[np.float64]
    """All numbers; the same as ``units`` where a prompt has one."""
    clusters: NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """A distribution over prompts."""

    draw: Callable[[np.random.Generator, int], Draw]
    mean: float
    quantile: float
    """Of ``units``, at ``Q``."""
    light: bool
    """Light tails: t limits should be nominal from 32 prompts."""
    kind: str = "real"
    """``real``, ``positive`` or ``unit`` (in [0, 1])."""
    clustered: bool = False


def _simple(values: NDArray[np.float64]) -> Draw:
    return Draw(units=values, tokens=values, clusters=np.arange(values.size))


def _normal(rng: np.random.Generator, n: int) -> Draw:
    return _simple(rng.normal(size=n))


def _lognormal(sigma: float) -> Callable[[np.random.Generator, int], Draw]:
    return lambda rng, n: _simple(np.exp(sigma * rng.normal(size=n)))


def _zero_inflated(rng: np.random.Generator, n: int) -> Draw:
    return _simple(np.where(rng.random(n) < NONZERO, rng.beta(1.0, BETA, size=n), 0.0))


def _clustered(rng: np.random.Generator, n: int) -> Draw:
    sizes = rng.integers(1, MOST_TOKENS + 1, size=n)
    clusters = np.repeat(np.arange(n), sizes)
    tokens = rng.normal(size=n)[clusters] + rng.normal(size=clusters.size)
    units = np.bincount(clusters, weights=tokens) / sizes
    return Draw(units=units, tokens=tokens, clusters=clusters)


def _clustered_quantile() -> float:
    """Root of the mean over sizes m of Phi(x / sqrt(1 + 1/m)) = Q."""
    spread = np.sqrt(1.0 + 1.0 / np.arange(1.0, MOST_TOKENS + 1.0))
    low, high = 0.0, 4.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = float(special.ndtr(middle / spread).mean()) < Q
        low, high = (middle, high) if below else (low, middle)
    return low


_Z = float(special.ndtri(Q))

LAWS: Mapping[str, Law] = {
    "normal": Law(draw=_normal, mean=0.0, quantile=_Z, light=True),
    "clustered": Law(
        draw=_clustered, mean=0.0, quantile=_clustered_quantile(), light=True, clustered=True
    ),
    "lognormal sigma 1": Law(
        draw=_lognormal(1.0),
        mean=np.exp(0.5).item(),
        quantile=np.exp(_Z).item(),
        light=False,
        kind="positive",
    ),
    "lognormal sigma 2": Law(
        draw=_lognormal(2.0),
        mean=np.exp(2.0).item(),
        quantile=np.exp(2.0 * _Z).item(),
        light=False,
        kind="positive",
    ),
    "zero-inflated": Law(
        draw=_zero_inflated,
        mean=NONZERO / (1.0 + BETA),
        quantile=1.0 - ((1.0 - Q) / NONZERO) ** (1.0 / BETA),
        light=False,
        kind="unit",
    ),
}
