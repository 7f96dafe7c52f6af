"""Three prompts of four: the quantile over prompts at which bulk errors and ratios are gated."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.errors import InputError
from validate.schema import Interval, Levels
from validate.stats import quantile, quantile_limits, quantile_n_min

__all__ = ["Q", "Quartile", "third_quartile"]

Q = 0.75
"""A mean over a dozen prompts cannot be bounded where one of them may be far off, whatever the
method (golden/reports/calibration.md). The third quartile can, exactly and for every
law: from 11 prompts its upper limit is one of them."""


class Quartile(NamedTuple):
    """The third quartile over prompts with its order-statistic limits."""

    value: float
    interval: Interval
    n_needed: int | None
    """Prompts that an upper limit needs; None where there are enough."""


def third_quartile(values: Sequence[float] | NDArray[np.float64], *, levels: Levels) -> Quartile:
    """The third quartile of one number a prompt, and its distribution-free limits.

    Args:
        values: One number a prompt, at least one.
        levels: Levels of the two limits.

    Raises:
        InputError: There is no value, or one is not finite.

    Source:
        ``validate.stats.quantile_limits``.
    """
    value = quantile(values, q=Q)
    if value is None:
        msg = "third_quartile: no values, so no quartile"
        raise InputError(msg)
    needed = quantile_n_min(Q, levels.high)
    return Quartile(
        value=value,
        interval=quantile_limits(values, q=Q, levels=levels),
        n_needed=needed if len(values) < needed else None,
    )
