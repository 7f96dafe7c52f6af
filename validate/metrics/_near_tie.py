"""What a near-tie is, how many of them a limit predicts, and how wide no clean flip is."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CAP", "hard_cap", "near_ties_predicted"]

CAP = 8.0
"""The hard cap in near-tie limits. The gap of a flip is no wider than the change of the two logits'
difference, and no clean pair changes any by so much (docs/metrics/logits.top1_flips.md)."""


def hard_cap(near_tie: float) -> float:
    """The gap, in nats, beyond which a single flip is a fault."""
    return CAP * near_tie


def near_ties_predicted(margins: NDArray[Any], *, near_tie: float) -> float:
    """Flips to be expected if differences of two logits moved evenly within the near-tie limit.

    A row whose first two choices lie ``m`` apart flips when the difference moves by more
    than ``m`` the one way: with probability ``(1 - m / near_tie) / 2``.

    Args:
        margins: Logprob of the first choice over the second, nats; shape (rows).
        near_tie: The limit, nats.

    Returns:
        Flips, summed over rows; 0 where the limit is 0.
    """
    if not near_tie > 0:
        return 0.0
    return float(np.sum(np.maximum(0.0, 1.0 - margins / near_tie)) / 2.0)
