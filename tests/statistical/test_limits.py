"""Error rates of the interval estimators, by simulation with a fixed seed.

Each test states the true error rate and a band that a right estimator leaves
with probability at most 1e-3 (normal limits of the binomial, 3.3 sigma); with the seed
fixed, a failure means that the code changed.
"""

import numpy as np
import pytest

from validate.schema import Levels
from validate.stats import (
    abs_mean_limits,
    floor_limits,
    mean_limits,
    proportion_limits,
    quantile_limits,
    ratio_limits,
)

pytestmark = pytest.mark.statistical

DRAWS = 1500
LEVELS = Levels(low=0.99, high=0.95)
SPREAD = 3.3


def error_rates(make, limits, true):
    """Share of draws whose lower, upper limit excludes ``true``; None excludes nothing."""
    too_high = too_low = 0
    for _ in range(DRAWS):
        found = limits(make())
        too_high += found.low is not None and not found.low <= true
        too_low += found.high is not None and not true <= found.high
    return too_high / DRAWS, too_low / DRAWS


def at_most(rate):
    return rate + SPREAD * np.sqrt(rate * (1 - rate) / DRAWS)


def at_least(rate):
    return rate - SPREAD * np.sqrt(rate * (1 - rate) / DRAWS)


def test_quantile_of_a_heavy_tail():
    """Pareto 1.1, p90, n = 48: the upper rate is P(B(48, 0.9) >= 47) = 0.0404; lower < 0.01."""
    rng = np.random.default_rng(101)

    low, high = error_rates(
        lambda: rng.pareto(1.1, size=48),
        lambda x: quantile_limits(x, q=0.9, levels=LEVELS),
        true=10 ** (1 / 1.1) - 1,
    )

    assert at_least(0.0404) <= high <= at_most(0.0404)
    assert low <= at_most(0.01)


def test_proportion():
    """Conservative at every share; at n = 40 and p = 0.1 the upper rate is P(B = 0) = 0.0148."""
    rng = np.random.default_rng(102)

    low, high = error_rates(
        lambda: int(rng.binomial(40, 0.1)),
        lambda k: proportion_limits(k, 40, levels=LEVELS),
        true=0.1,
    )

    assert at_least(0.0148) <= high <= at_most(0.05)
    assert low <= at_most(0.01)


def test_mean_of_normal_differences():
    """Exact: 1 % below, 5 % above."""
    rng = np.random.default_rng(103)

    low, high = error_rates(
        lambda: rng.normal(loc=0.3, size=12), lambda x: mean_limits(x, levels=LEVELS), true=0.3
    )

    assert at_least(0.05) <= high <= at_most(0.05)
    assert at_least(0.01) <= low <= at_most(0.01)


@pytest.mark.parametrize("true", [0.0, 0.02, 2.0])
def test_absolute_mean(true):
    """At most 1 % below and 5 % above, at zero, near it and far from it."""
    rng = np.random.default_rng(104)

    low, high = error_rates(
        lambda: rng.normal(loc=-true, size=12),
        lambda x: abs_mean_limits(x, levels=LEVELS),
        true=true,
    )

    assert low <= at_most(0.01)
    assert high <= at_most(0.05)


def test_absolute_mean_has_power():
    """A mean of a quarter sigma at n = 48 is shown to be below one sigma in > 99 % of draws."""
    rng = np.random.default_rng(105)

    shown = sum(
        (abs_mean_limits(rng.normal(0.25, size=48), levels=LEVELS).high or np.inf) <= 1.0
        for _ in range(DRAWS)
    )

    assert shown / DRAWS >= 0.99


def test_ratio_of_lognormal_errors():
    """Exact: 1 % below, 5 % above, where both sides share the spread of the prompts."""
    rng = np.random.default_rng(106)

    def pairs():
        prompt = rng.normal(scale=2.0, size=20)
        noise = rng.normal(scale=0.3, size=(2, 20))
        return np.exp(prompt + noise[0] + np.log(1.3)), np.exp(prompt + noise[1])

    low, high = error_rates(pairs, lambda p: ratio_limits(*p, levels=LEVELS), true=1.3)

    assert at_least(0.05) <= high <= at_most(0.05)
    assert at_least(0.01) <= low <= at_most(0.01)


@pytest.mark.parametrize("n", [3, 4, 8])
def test_floor_of_lognormal_repeats(n):
    """Exact for the median: 5 % of floors are too low."""
    rng = np.random.default_rng(108)

    _, high = error_rates(
        lambda: np.exp(rng.normal(scale=0.5, size=n)),
        lambda x: floor_limits(x, levels=LEVELS),
        true=1.0,
    )

    assert at_least(0.05) <= high <= at_most(0.05)


@pytest.mark.parametrize("n", [3, 4, 8])
@pytest.mark.parametrize("shape", [2.0, 20.0])
def test_floor_of_gamma_repeats(shape, n):
    """A sum of squared errors over few or many rows: 2 to 7 % of floors miss the median."""
    rng = np.random.default_rng(109)
    median = float(np.median(rng.gamma(shape, size=400_000)))

    _, high = error_rates(
        lambda: rng.gamma(shape, size=n), lambda x: floor_limits(x, levels=LEVELS), true=median
    )

    assert at_least(0.02) <= high <= at_most(0.07)
