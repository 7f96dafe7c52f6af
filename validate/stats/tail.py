"""Is the tail too heavy for a t limit at this n? Estimated from the skewness of the units."""

import math
from dataclasses import dataclass, replace

import numpy as np

from validate.schema import Interval
from validate.stats._check import Numbers, finite

__all__ = ["TAIL_LIMIT", "TailDiagnostic", "tail_checked", "tail_diagnostic"]

TAIL_LIMIT = 0.15
"""Skewness over root n above which the diagnostic fires. The leading error of a one-sided 95 % t
limit is 0.11 times it (Hall 1992), so about 1.6 points; normal units fire in 3 % at n = 32."""
MIN_UNITS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TailDiagnostic:
    """Skewness of the units against what a t limit bears."""

    n: int
    skewness: float | None
    """Of the units, without bias correction; None for fewer than three or without spread."""
    relative: float | None
    """Absolute skewness over root n; None as above."""
    fires: bool
    """No PASS on a t or bootstrapped mean. True where the skewness is undefined: too few or
    equal units show no tail, which is not the same as having none."""


def tail_diagnostic(values: Numbers) -> TailDiagnostic:
    """Whether a t limit of the mean of these units (prompts) can be believed.

    Assumptions: independent units. It sees the tail only by what was drawn; the joint rate of
    "limit missed and diagnostic silent" is measured in the calibration table.

    Args:
        values: One number per unit, as given to ``mean_limits``.

    Raises:
        InputError: A value is not finite.

    Source:
        Edgeworth expansion of Student's t, Hall, The Bootstrap and Edgeworth Expansion (1992) 2.6.

    Example:
        >>> tail_diagnostic([0.0] * 99 + [1.0]).fires
        True
    """
    array = finite(values, name="values")
    if array.size < MIN_UNITS or (array == array[0]).all():
        return TailDiagnostic(n=array.size, skewness=None, relative=None, fires=True)
    off = array - array.mean()
    off /= np.max(np.abs(off))
    skewness = float(np.mean(off**3) / np.mean(off**2) ** 1.5)
    relative = abs(skewness) / math.sqrt(array.size)
    return TailDiagnostic(
        n=array.size, skewness=skewness, relative=relative, fires=not relative <= TAIL_LIMIT
    )


def tail_checked(interval: Interval, values: Numbers) -> Interval:
    """Withhold what a heavy tail makes untrue of t or bootstrapped limits of a mean.

    Where the diagnostic fires the upper limit becomes None (no PASS), whichever side the
    tail is on. The lower one goes too where the tail points down or the units show none; under
    a tail that points up it stays, since it is then too low rather than too high.

    Assumptions: the interval is of the mean of these values, or of its absolute value where
    the values are given with the sign that makes their mean positive.

    Args:
        interval: Limits from ``mean_limits``, ``abs_mean_limits`` or ``bootstrap_limits``.
        values: One number per unit, from which they were computed.

    Returns:
        The interval, its method saying that the tail was looked at, or what was withheld and why.

    Raises:
        InputError: A value is not finite.

    Level:
        Row "t, tail-checked" of the calibration table: held from 32 prompts, heavy tails too.

    Power:
        None for heavy tails: take an order statistic, an exceedance rate or a betting limit.

    Source:
        ``tail_diagnostic``.

    Example:
        >>> from validate.schema import Levels
        >>> from validate.stats import mean_limits
        >>> units = [0.1] * 30 + [9.0]
        >>> tail_checked(mean_limits(units, levels=Levels(low=0.99)), units).method
        't (upper limit withheld: skewness 5.3 of 31 units)'
    """
    found = tail_diagnostic(values)
    if not found.fires:
        return replace(interval, method=f"{interval.method}, tail-checked")
    if found.skewness is None:
        method = f"{interval.method} (limits withheld: {found.n} units without a shape)"
        return replace(interval, low=None, high=None, method=method)
    down = found.skewness < 0
    what = "limits" if down else "upper limit"
    why = f"skewness {found.skewness:.1f} of {found.n} units"
    return replace(
        interval,
        low=None if down else interval.low,
        high=None,
        method=f"{interval.method} ({what} withheld: {why})",
    )
