"""Bad input on its whole way: numbers that are too few, all alike or no numbers, to an outcome."""

import math

import numpy as np
import pytest

from tests.unit.gates.made import SHARE, limit, measured, verdict
from validate.errors import InputError
from validate.schema.measurement import Levels
from validate.stats import (
    abs_median_limits,
    bootstrap_limits,
    cluster_mean_limits,
    mean_limits,
    poisson_rate_limits,
    proportion_limits,
    quantile_limits,
    tail_checked,
)

LEVELS = Levels(low=1 - SHARE, high=0.95)
SAME = [0.25] * 40


def outcome(interval, value, n, at=0.5):
    """Of a bound gate."""
    return verdict("bound", measured(value, n=n, interval=interval), limit(at)).outcome


@pytest.mark.parametrize(
    ("interval", "n"),
    [
        (quantile_limits([0.0], q=0.9, levels=LEVELS), 1),
        (abs_median_limits([0.0], levels=LEVELS), 1),
        (mean_limits([0.0], levels=LEVELS), 1),
        (tail_checked(mean_limits([0.0], levels=LEVELS), [0.0]), 1),
        (proportion_limits(0, 1, levels=LEVELS), 1),
        (poisson_rate_limits(0, exposure=1.0, levels=LEVELS), 1),
        (cluster_mean_limits([0.0, 0.1, 0.2], clusters=["a"] * 3, levels=LEVELS), 1),
    ],
    ids=["quantile", "median", "mean", "checked mean", "share", "rate", "one cluster"],
)
def test_one_prompt_or_cluster_is_inconclusive(interval, n):
    """However good its number: 0 against a limit of 0.5."""
    assert outcome(interval, 0.0, n) == "INCONCLUSIVE"


def test_equal_values_pass_by_order_statistics_alone():
    """Zero variance is certainty for no t limit: one prompt in twenty may be far off."""
    assert outcome(quantile_limits(SAME, q=0.9, levels=LEVELS), 0.25, 40) == "PASS"
    assert outcome(abs_median_limits(SAME, levels=LEVELS), 0.25, 40) == "PASS"
    assert outcome(mean_limits(SAME, levels=LEVELS), 0.25, 40) == "INCONCLUSIVE"
    checked = tail_checked(mean_limits(SAME, levels=LEVELS), SAME)
    assert outcome(checked, 0.25, 40) == "INCONCLUSIVE"


def test_a_and_a_passes_exactly():
    """All zero, at a limit of 0."""
    assert outcome(quantile_limits([0.0] * 29, q=0.9, levels=LEVELS), 0.0, 29, at=0.0) == "PASS"
    assert outcome(abs_median_limits([0.0] * 5, levels=LEVELS), 0.0, 5, at=0.0) == "PASS"


def test_ties_at_the_limit_pass_and_above_it_fail():
    """All tied: the limits are the tied value."""
    tied = quantile_limits(SAME, q=0.5, levels=LEVELS)

    assert outcome(tied, 0.25, 40, at=0.25) == "PASS"
    assert outcome(tied, 0.25, 40, at=math.nextafter(0.25, 0)) == "FAIL"


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, math.nan])
def test_levels_out_of_range_are_refused(level):
    """Before any number is made."""
    for make in (
        lambda at: quantile_limits(SAME, q=0.9, levels=at),
        lambda at: abs_median_limits(SAME, levels=at),
        lambda at: proportion_limits(1, 2, levels=at),
        lambda at: mean_limits(SAME, levels=at),
    ):
        with pytest.raises(InputError, match=r"levels\.low"):
            make(Levels(low=level))


def test_a_bootstrap_passes_nothing():
    """Whatever it says."""
    rng = np.random.default_rng(1)
    found = bootstrap_limits(
        rng.normal(size=64), levels=Levels(low=0.99, high=0.95), rng=rng, method="percentile"
    )
    judged = verdict("bound", measured(0.0, n=64, interval=found), limit(1.0), alpha_share=0.01)

    assert judged.outcome == "INCONCLUSIVE"
    assert "calibrated at no number of units" in str(judged.reason)
