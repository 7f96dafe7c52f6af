"""Gates without an interval: the smallest effect that crosses the limit, and rates of rare events."""

import math
from collections.abc import Sequence

from validate.run.power_record import EffectPower, Reach
from validate.schema.measurement import Measurement
from validate.schema.suite import GateSpec
from validate.schema.verdict import Limit

__all__ = ["MULTIPLES", "POWERS", "certain", "crossing", "rate", "rate_of"]

MULTIPLES = (1, 2, 4)
POWERS = (0.80, 0.95)
PER = 1000.0
STATED_RATE = 1.0

_EFFECTS = {
    "attention.head_rel_l2": ("one-head relative error", "rel-L2"),
    "attention.row_rel_l2": ("one-row relative error", "rel-L2"),
    "attention.scale": ("one-head scale error", "|alpha - 1|"),
    "attention.lse_abs": ("one LSE off by", "nats"),
    "attention.lse_slope": ("scale error of all LSEs of a mode", "|slope - 1|"),
    "attention.routing_weight": ("one routing weight off by", "weight"),
    "logits.kl_max": ("KL at one position", "nats"),
}


def crossing(gate: GateSpec, limit: Limit, clean: Sequence[Measurement]) -> EffectPower:
    """The effect that a deterministic bound always catches, at any number of units.

    An effect of the limit's size alone measures the limit. Noise may point the other way, so it
    is sure to be caught from the limit plus the most that clean pairs measure.
    """
    most = max((one.value for one in clean if one.value is not None), default=0.0)
    name, unit = _EFFECTS.get(gate.measures, (f"{gate.measures} at one place", clean[0].unit))
    return certain(
        name,
        unit,
        limit.value + most,
        n=clean[0].n,
        note=f"at one of {clean[0].n} {clean[0].n_of}; the limit {limit.value:.4g} plus the "
        f"{most:.4g} of clean pairs, which may point the other way; caught with certainty",
    )


def certain(name: str, unit: str, size: float | None, *, n: int, note: str) -> EffectPower:
    """An effect that is caught from one size on, whatever the number of units."""
    reaches = tuple(
        Reach(multiple=times, n=times * n, detected_80=size, detected_95=size, stopped_95=size)
        for times in MULTIPLES
    )
    return EffectPower(effect=name, unit=unit, method="exact", reaches=reaches, note=note)


def rate_of(n: int, power: float) -> float:
    """Events per 1,000 units of which at least one is seen among ``n`` with this power.

    Example:
        >>> f"{rate_of(1000, 0.95):.3f}"
        '2.991'
    """
    return -PER * math.expm1(math.log1p(-power) / n)


def rate(measured: Measurement) -> EffectPower:
    """The rate of events that a gate catches which allows none: one event is enough."""
    reaches = []
    for times in MULTIPLES:
        n = times * measured.n
        low, high = (rate_of(n, power) for power in POWERS)
        reaches.append(
            Reach(multiple=times, n=n, detected_80=low, detected_95=high, stopped_95=high)
        )
    need = [math.ceil(math.log1p(-power) / math.log1p(-STATED_RATE / PER)) for power in POWERS]
    return EffectPower(
        effect=f"hits ({measured.unit})",
        unit=f"per 1,000 {measured.n_of}",
        method="exact",
        reaches=tuple(reaches),
        stated=STATED_RATE,
        needed_80=need[0],
        needed_95=need[1],
        note="one is enough, with certainty; rates are for independent events",
    )
