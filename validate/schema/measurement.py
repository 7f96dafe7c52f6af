"""What a metric returns: one frozen record that repeats its inputs and knows no limit."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Detection", "Interval", "Levels", "Measurement", "UndefinedKind", "Worst"]

UndefinedKind = Literal["no_data", "unlike"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """The two one-sided confidence levels a gate asks a metric for."""

    low: float
    """Level of the lower limit, 1 - alpha_i (against a false FAIL)."""
    high: float = 0.95
    """Level of the upper limit, 1 - beta (against a false PASS)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A pair of one-sided confidence limits, each with its level."""

    low: float | None
    """Lower limit at ``low_level``; None where the data cannot give one."""
    low_level: float
    high: float | None
    """Upper limit at ``high_level``; None where the data cannot give one."""
    high_level: float
    method: str
    """How it was computed, e.g. ``order statistic``, ``paired t on the log``; a gate PASSes on
    calibrated methods alone."""
    q: float | None = None
    """Which quantile the limits are of; None: of none."""
    above: tuple[float, ...] = ()
    """Units above the measured quantile, ascending: how many lie beyond a limit tells a gate how
    many units would do. Empty where ``q`` is None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """What a test of significance would have seen, told from its sample size alone."""

    effect: float
    """Smallest effect that is rejected at ``alpha`` with probability ``power``, in the unit of the
    gate's effect; infinite where no effect would be seen. Falls as 1 / sqrt(n)."""
    alpha: float
    """Level of the whole measurement, all its tests together."""
    power: float
    method: str
    """How it was computed, in a few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """Where the measured quantity is largest."""

    prompt: str | None = None
    position: int | None = None
    place: str | None = None
    """Artifact and index, e.g. ``decode.mla.3.out head 11``."""
    value: float | None = None
    detail: str | None = None
    """One line for a reader: the two top tokens, the two values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One number with its unit, sample size and, where prompts are many, an interval."""

    metric: str
    """Name ``area.metric``."""
    value: float | None
    """The measured number; None exactly when ``why_undefined`` is set."""
    unit: str
    n: int
    """How many independent units (prompts for intervals; else what ``n_of`` says)."""
    n_of: str
    why_undefined: str | None = None
    undefined_kind: UndefinedKind = "no_data"
    """What an undefined value is for a gate: too little data is INCONCLUSIVE, ``unlike``
    things (the two sides cannot be set against each other) are INCOMPARABLE."""
    interval: Interval | None = None
    """None for deterministic measurements (a count, a maximum over all that was compared)."""
    worst: Worst | None = None
    worst_value: float | None = None
    """The same quantity at its worst row or prompt, for gates that bound that too."""
    pattern: str | None = None
    """Structure found in the error: ``heads 3,7,11``, ``batch rows >= 1``, ``from position 8``."""
    breakdown: Mapping[str, float] = field(default_factory=dict)
    """Named companions shown beside the value (p50, p99, max, per layer), never gated."""
    n_needed: int | None = None
    """Units that would be enough for the interval asked for; None when enough or unknown."""
    upper: float | None = None
    """Where captures allow no exact value (top-k logits) ``value`` is its lower bound and this the
    upper one, infinite where there is none. None: the value is exact."""
    why_open: str | None = None
    """Why an upper bound is missing, and what to capture for one."""
    detection: Detection | None = None
    """Set when ``value`` is a p-value, for ``lossless`` gates; None: it is none."""
    pooled: int | None = None
    """Prompts pooled into each unit of a value without an interval; None: a unit lies in one
    prompt, so that fewer prompts can only measure less."""

    def __post_init__(self) -> None:
        """Refuse a number without data and data without a number."""
        if (self.value is None) == (self.why_undefined is None):
            msg = (
                f"Measurement {self.metric}: exactly one of value and why_undefined must be set, "
                f"got value={self.value} and why_undefined={self.why_undefined!r}"
            )
            raise ValueError(msg)
