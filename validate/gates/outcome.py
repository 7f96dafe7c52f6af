"""What a gate finds, how findings add up, and how numbers are worded."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from validate.schema.measurement import Measurement
from validate.schema.verdict import GRAVITY, NoiseFloor, Outcome

__all__ = [
    "PASSED",
    "Finding",
    "counted",
    "defined",
    "excess",
    "gravest",
    "number",
    "percent",
    "unpooled",
    "worst_of",
]

MIN_POOLED = 8
"""Prompts below which a unit pooled over prompts is not held against a limit made with more of
them. Pooling 8 of 12 like prompts measures at most sqrt(12 / 8) = 1.22 times what all 12 would;
limits leave a factor of 2.5. The least number of units calibrated is the same."""


class Finding(NamedTuple):
    """What one rule found."""

    outcome: Outcome
    reason: str | None
    """Why it is not PASS; None on PASS."""
    judged: float | None = None
    """The number that was held against the limit."""


PASSED = Finding(Outcome.PASS, None)


def number(value: float, unit: str = "") -> str:
    """``value`` to four significant digits, with its unit.

    Example:
        >>> number(0.0142345, "nats")
        '0.01423 nats'
    """
    return f"{value:.4g} {unit}".rstrip()


def percent(level: float) -> str:
    """A confidence level in words.

    Example:
        >>> percent(0.99975)
        '99.975 %'
    """
    return f"{100 * level:.6g} %"


def counted(measurement: Measurement) -> str:
    """How many of what, e.g. ``n = 48 prompts``."""
    return f"n = {measurement.n} {measurement.n_of}"


def defined(measurement: Measurement) -> float:
    """The value of a measurement that ``judge`` found to be defined.

    Raises:
        ValueError: It is not; a rule was called past ``judge``.
    """
    if measurement.value is None:
        msg = f"{measurement.metric}: an undefined value reached a rule that needs a number"
        raise ValueError(msg)
    return measurement.value


def unpooled(measurement: Measurement, limit: float) -> Finding | None:
    """INCONCLUSIVE for a unit pooled over too few prompts; None where it may be judged.

    It may be where its value exceeds the limit so far that ``MIN_POOLED`` prompts would too, if
    those that are missing held as much of the unit and no error at all.
    """
    pooled = measurement.pooled
    if pooled is None or pooled >= MIN_POOLED:
        return None
    value = defined(measurement) if measurement.worst_value is None else measurement.worst_value
    if value * pooled / MIN_POOLED > limit:
        return None
    reason = (
        f"{number(value)} is pooled over {pooled} prompts, too few for a limit made with more "
        f"(n = {pooled} prompts, {MIN_POOLED} needed)"
    )
    return Finding(Outcome.INCONCLUSIVE, reason, measurement.value)


def excess(noise: NoiseFloor | None, limit: float) -> float | None:
    """The largest of ref's repeats where it is beyond ``limit``; None where none of them is.

    Each repeat counts as it was measured: an upper confidence limit over few repeats
    may lie far above all of them. NaN where any repeat measures NaN.
    """
    values = () if noise is None else noise.values
    beyond = [value for value in values if not value <= limit]
    if any(math.isnan(value) for value in beyond):
        return math.nan
    return max(beyond, default=None)


def gravest(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome of a whole from those of its parts, by ``GRAVITY``.

    Args:
        outcomes: Those of every gate that was asked for; at least one.

    Raises:
        ValueError: There is no outcome: nothing was judged, which is no PASS.
    """
    seen = set(outcomes)
    if not seen:
        msg = "no outcome to add up: no gate was judged"
        raise ValueError(msg)
    return next(outcome for outcome in GRAVITY if outcome in seen)


def worst_of(first: Finding, second: Finding) -> Finding:
    """Both findings as one: FAIL beats INCONCLUSIVE beats PASS; every reason is kept."""
    reasons = [found.reason for found in (first, second) if found.reason is not None]
    outcome = gravest((first.outcome, second.outcome))
    return Finding(outcome, "; ".join(reasons) or None, first.judged)
