"""A measurement from prompt-level values: the metrics' own intervals without the captures."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validate.schema.measurement import Interval, Levels, Measurement
from validate.stats import (
    abs_median,
    abs_median_limits,
    poisson_rate_limits,
    proportion_limits,
    quantile,
    quantile_limits,
)

__all__ = ["MODELS", "Array", "Model", "differs", "measurement_of"]

Array = NDArray[np.float64]
PER = 1000.0
SAME = 1e-9
"""Relative difference up to which two numbers are the same number."""


def _value(alone: Measurement) -> float | None:
    return alone.value


def _signed(alone: Measurement) -> float | None:
    return None if alone.value is None else alone.breakdown.get("signed")


def _exposure(alone: Measurement) -> float | None:
    """Tokens compared; negative where the last of them is a flip."""
    tokens = alone.breakdown.get("tokens")
    if alone.value is None or tokens is None:
        return None
    return -tokens if alone.value > 0 else tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """How one metric makes its number and its limits of one value a prompt."""

    value: Callable[[Array], float | None]
    limits: Callable[..., Interval]
    """Of values and ``levels``."""
    of_prompt: Callable[[Measurement], float | None] = _value
    """A prompt's number from the measurement of that prompt alone."""
    signed: bool = False
    """True where a prompt's number may be negative: a difference, not a size."""


def _mean(values: Array) -> float:
    return float(np.mean(values))


def _share(values: Array, *, levels: Levels) -> Interval:
    return proportion_limits(int(np.count_nonzero(values)), values.size, levels=levels)


def _per_1000(exposures: Array) -> float | None:
    tokens = float(np.sum(np.abs(exposures)))
    return PER * int(np.count_nonzero(exposures < 0)) / tokens if tokens else None


def _poisson(exposures: Array, *, levels: Levels) -> Interval:
    flips, tokens = int(np.count_nonzero(exposures < 0)), float(np.sum(np.abs(exposures)))
    return poisson_rate_limits(flips, exposure=tokens / PER, levels=levels)


def _quantile(q: float) -> Model:
    return Model(value=partial(quantile, q=q), limits=partial(quantile_limits, q=q))


_SHARE = Model(value=_mean, limits=_share)
_QUARTILE = _quantile(0.75)

MODELS: Mapping[str, Model] = {
    "attention.rel_l2": _QUARTILE,
    "attention.hidden_rel_l2": _QUARTILE,
    "attention.introduced_ratio": _QUARTILE,
    "attention.propagated_ratio": _QUARTILE,
    "logits.kl_p50": _quantile(0.5),
    "logits.kl_p90": _quantile(0.9),
    "logits.nll_delta": Model(
        value=abs_median, limits=abs_median_limits, of_prompt=_signed, signed=True
    ),
    "logits.err_ratio": _QUARTILE,
    "logits.kl_exceed_rate": _SHARE,
    "logits.flip_rate": _SHARE,
    "greedy.unexplained_rate": _SHARE,
    "greedy.divergence_rate": _SHARE,
    "speculative.acceptance_delta": Model(
        value=abs_median, limits=abs_median_limits, of_prompt=_signed, signed=True
    ),
    "speculative.replay": _SHARE,
    "greedy.flips_per_1000": Model(value=_per_1000, limits=_poisson, of_prompt=_exposure),
}
"""By metric. ``differs`` holds each of them against the metric itself in every run."""


def measurement_of(
    model: Model, values: Array, *, like: Measurement, levels: Levels, worst: float | None = None
) -> Measurement:
    """The measurement that ``like``'s metric would make of these prompts.

    Args:
        model: The metric's model.
        values: One a prompt, in the metric's unit.
        like: A measurement of the same metric, for its name and unit.
        levels: Confidence levels of the interval.
        worst: ``worst_value`` of the measurement.

    Raises:
        InputError: A value is not what the interval can take.
    """
    value = model.value(values)
    return Measurement(
        metric=like.metric,
        value=value,
        unit=like.unit,
        n=int(values.size),
        n_of=like.n_of,
        why_undefined="no prompts" if value is None else None,
        interval=model.limits(values, levels=levels),
        worst_value=worst,
        pooled=None if like.pooled is None else int(values.size),
    )


def differs(made: Measurement, found: Measurement) -> str | None:
    """What a model's measurement has other than the metric's own; None where nothing."""
    pairs: dict[str, tuple[Any, Any]] = {
        "n": (float(made.n), float(found.n)),
        "value": (made.value, found.value),
    }
    for end in ("low", "high"):
        pairs[end] = (getattr(made.interval, end, None), getattr(found.interval, end, None))
    for name, (ours, theirs) in pairs.items():
        if (ours is None) != (theirs is None) or not (ours is None or _same(ours, theirs)):
            return f"{name} {ours} where the metric gives {theirs}"
    return None


def _same(first: float, second: float) -> bool:
    return math.isclose(first, second, rel_tol=SAME, abs_tol=1e-15)
