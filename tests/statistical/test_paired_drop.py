"""Levels of the limits of a paired drop, by exact enumeration of all outcomes."""

import pytest
from scipy import stats

from tests.measured import known
from validate.schema import Levels
from validate.stats import drop_limits

LEAST = 1e-9
"""Outcomes less likely than this are left out."""


def errors(n: int, lost: float, gained: float, *, level: float) -> tuple[float, float]:
    """How often the lower and the upper limit miss the true drop."""
    drop, low, high = lost - gained, 0.0, 0.0
    for a in range(n + 1):
        first = stats.binom.pmf(a, n, lost)
        if first < LEAST:
            continue
        for b in range(n + 1 - a):
            chance = first * stats.binom.pmf(b, n - a, gained / (1.0 - lost))
            if chance < LEAST:
                continue
            found = drop_limits(a, b, n, levels=Levels(low=level, high=0.95))
            low += chance * (known(found.low) > drop + 1e-9)
            high += chance * (known(found.high) < drop - 1e-9)
    return low, high


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "lost", "gained"),
    [
        (100, 0.03, 0.01),
        (100, 0.06, 0.05),
        (200, 0.02, 0.01),
        (200, 0.01, 0.01),
        (400, 0.015, 0.005),
    ],
)
def test_limits_keep_their_level(n: int, lost: float, gained: float) -> None:
    """The lower limit is exact; the upper one, Tango's, errs in at most 6 of 100 draws."""
    low, high = errors(n, lost, gained, level=0.99)

    assert low <= 0.01
    assert high <= 0.06
