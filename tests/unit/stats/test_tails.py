"""Ranks of a bootstrap's limits."""

import numpy as np
import pytest

from validate.schema import Levels
from validate.stats.bootstrap import _tails

RANKS = np.arange(1.0, 100.0)
"""Of 99 resamples, each the number of its rank."""


@pytest.mark.parametrize(
    ("low", "high", "limits"),
    [
        (0.95, 0.95, (5.0, 95.0)),
        (0.99, 0.95, (1.0, 95.0)),
        (0.95, 0.99, (5.0, 99.0)),
        (0.9, 0.7, (10.0, 70.0)),
        (0.945, 0.945, (5.0, 95.0)),
        (0.999, 0.999, (1.0, 99.0)),
    ],
)
def test_limits_are_the_ranks_of_b_plus_1(low, high, limits):
    """(99 + 1)(1 - level) from either end, rounded down, at least the first: 100 x 0.055 is 5."""
    assert _tails(RANKS, Levels(low=low, high=high)) == limits
