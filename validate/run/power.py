"""``power``: what a suite can detect, from ref and its repeats alone, before any candidate is seen."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import validate
from validate.metrics import METRICS, Metric
from validate.pairing import pair
from validate.run.measure import PairMaker
from validate.run.power_cases import (
    SCALE_ERROR,
    SCALE_NOTE,
    SCALES,
    scale_crossing,
    scaled_pairs,
)
from validate.run.power_clean import clean_run
from validate.run.power_effects import Effect
from validate.run.power_exact import MULTIPLES, POWERS, certain, crossing, rate
from validate.run.power_prepare import Prepared, prepare
from validate.run.power_record import EffectPower, GatePower, PowerReport, Reach
from validate.run.power_search import Case, detectable, make_draws, power_at, stopped, units
from validate.run.sides import capture_digest
from validate.schema.pair import Side
from validate.schema.suite import GateSpec, Limits, Suite
from validate.suite import limits_digest

__all__ = ["DRAWS", "SEED", "power"]

DRAWS = 200
"""Simulated runs for each figure: a power of 80 % has a standard error of 2.8 %, one of 95 % 1.5 %."""
SEED = 20260101
CHECK = 10**6
"""In place of the multiple of units in the seed of draws that check a figure."""
BEYOND = 1.5
"""The stated effect is the one whose true value is this many times the limit."""

CLEAN_RUNS = 10
"""Times ``draws``: simulated runs of the whole suite."""
EXTRA_STEPS = len(SCALES) + 1
SCALED = ("logits.kl_max",)
"""Metrics without an interval that a logit scale error moves."""

Progress = Callable[[int, int, str], None]


def _silent(_done: int, _total: int, _what: str) -> None:
    """Progress that nobody watches."""


def power(
    *,
    ref: Side,
    suite: Suite,
    limits: Limits,
    repeats: Sequence[Side],
    oracle: Side | None = None,
    weights: Mapping[str, NDArray[Any]] | None = None,
    config: Mapping[str, Any] | None = None,
    draws: int = DRAWS,
    seed: int = SEED,
    command: str = "",
    metrics: Mapping[str, Metric] = METRICS,
    make_pair: PairMaker = pair,
    progress: Progress = _silent,
) -> PowerReport:
    """What each gate of a suite detects with 80 % and 95 % power.

    Args:
        ref: The reference capture.
        suite: Whose gates are asked.
        limits: Their limits.
        repeats: Repeats of ref: the noise.
        oracle: The float64 run, for ratios and for how errors spread over prompts.
        weights: Float64 weights by name, for introduced errors.
        config: Model configuration that goes with ``weights``.
        draws: Simulated runs for each figure.
        seed: Of every random number; the same seed gives the same report.
        command: The command line, for the report.
        metrics: Metrics by name.
        make_pair: ``pairing.pair``.
        progress: Told (done, total, what).

    Raises:
        InputError: Fewer than three repeats that differ from ref and from each other.
        SuiteError: A limit is missing.
        IncomparableError: A repeat does not match ref.
    """
    steps = _Steps(progress, total=2 * len(repeats) + len(suite.gates) + EXTRA_STEPS)
    made = prepare(
        ref=ref,
        suite=suite,
        limits=limits,
        repeats=repeats,
        oracle=oracle,
        weights=weights,
        config=config,
        metrics=metrics,
        make_pair=make_pair,
        tell=steps.next,
    )
    found = {}
    for index, gate in enumerate(suite.gates):
        steps.next(gate.name)
        case = made.cases.get(gate.name)
        if case is None:
            found[gate.name] = _other(gate, made)
        else:
            figures = _simulated(case, made.effects[gate.name], draws, (seed, index))
            found[gate.name] = _gate(case, figures)
    steps.next("clean runs")
    run = clean_run(made, gates=suite.gates, draws=CLEAN_RUNS * draws, seed=seed)
    steps.done()
    return PowerReport(
        tool_version=validate.__version__,
        command=command,
        suite=suite.name,
        suite_digest=suite.digest,
        limits_digest=limits_digest(limits),
        alpha=suite.alpha,
        beta=suite.beta,
        number_of_gates=len(suite.gates),
        gates_with_interval=sum(share > 0 for share in made.shares.values()),
        ref=ref.label,
        ref_digest=capture_digest(ref),
        repeats=tuple(pair.cand.label for pair in made.clean.pairs),
        seed=seed,
        draws=draws,
        clean=run,
        gates=tuple(found[gate.name] for gate in suite.gates),
    )


class _Steps:
    """Counts what is done."""

    def __init__(self, progress: Progress, *, total: int) -> None:
        self._progress, self._total, self._now = progress, total, 0

    def next(self, what: str) -> None:
        self._progress(min(self._now, self._total - 1), self._total, f"power: {what}")
        self._now += 1

    def done(self) -> None:
        self._progress(self._total, self._total, "power: done")


def _gate(case: Case, effects: Sequence[EffectPower]) -> GatePower:
    return GatePower(
        gate=case.gate.name,
        kind=case.gate.kind,
        alpha_share=case.share,
        limit=case.limit.value,
        noise_floor=None if case.floor is None else case.floor.value,
        n=case.clean.shape[1],
        n_of=case.like[0].n_of,
        effects=tuple(effects),
    )


def _other(gate: GateSpec, made: Prepared) -> GatePower:
    """A gate that is not simulated: deterministic, of the yardstick, or without a model."""
    why, limit = made.why.get(gate.name), made.limits[gate.name]
    like = [found[gate.name] for found in made.clean.repeated if gate.name in found]
    like = [one for one in like if one.value is not None]
    effects: tuple[EffectPower, ...] = ()
    if why is None and gate.area == "yardstick":
        why = "it judges ref, its repeats and the path proofs; no effect of cand is looked for"
    elif why is None and not like:
        why = "it measures nothing on any clean pair"
    elif why is None:
        effects = (rate(like[0]) if gate.kind == "exact" else crossing(gate, limit, like),)
        if gate.measures in SCALED:
            effects += (_scaled(gate, made),)
    return GatePower(
        gate=gate.name,
        kind=gate.kind,
        alpha_share=made.shares[gate.name],
        limit=limit.value,
        noise_floor=None,
        n=like[0].n if like else 0,
        n_of=like[0].n_of if like else "",
        effects=effects,
        why_undefined=why,
    )


def _scaled(gate: GateSpec, made: Prepared) -> EffectPower:
    """The logit scale error whose worst position crosses the limit."""
    found = [
        made.bench.measure(scaled, what="scaled", gates=[gate])[gate.name]
        for scaled in scaled_pairs(made.clean.itself)
    ]
    values = [0.0 if one.value is None else one.value for one in found]
    size = scale_crossing(values, made.limits[gate.name].value)
    return certain(SCALE_ERROR, "%", size, n=found[0].n, note=SCALE_NOTE)


def _simulated(
    case: Case, effects: Sequence[Effect], draws: int, seed: tuple[int, ...]
) -> list[EffectPower]:
    return [_effect(case, effect, draws, (*seed, place)) for place, effect in enumerate(effects)]


def _effect(case: Case, effect: Effect, draws: int, seed: tuple[int, ...]) -> EffectPower:
    stated = _stated(case, effect)
    guess = effect.largest / 2 if stated is None else stated
    reaches = []
    for times in MULTIPLES:
        n = times * case.clean.shape[1]
        made = make_draws(case, n=n, draws=draws, seed=[*seed, times])
        low, high = detectable(case, effect, made, powers=POWERS, guess=guess)
        open_to = detectable(
            case, effect, made, powers=POWERS[1:], test=stopped, guess=low or guess
        )
        reaches.append(
            Reach(multiple=times, n=n, detected_80=low, detected_95=high, stopped_95=open_to[0])
        )
        guess = low or guess
    needed: list[int | None] = [None, None]
    if stated is not None:
        needed = [
            units(case, effect, stated, power=power, draws=draws, seed=seed) for power in POWERS
        ]
    return EffectPower(
        effect=effect.name,
        unit=effect.unit,
        method="simulated",
        reaches=tuple(reaches),
        stated=stated,
        needed_80=needed[0],
        needed_95=needed[1],
        checked=_checked(case, effect, reaches[0], draws, seed),
        note=effect.note,
    )


def _checked(
    case: Case, effect: Effect, reach: Reach, draws: int, seed: tuple[int, ...]
) -> tuple[float | None, ...]:
    """Power at three sizes by draws that no figure rests on."""
    fresh = make_draws(case, n=reach.n, draws=draws, seed=[*seed, CHECK])
    return tuple(
        None if size is None else power_at(case, effect, size, fresh)
        for size in (0.0, reach.detected_80, reach.detected_95)
    )


def _stated(case: Case, effect: Effect) -> float | None:
    """The effect at which the whole prompt set measures ``BEYOND`` times the limit."""
    limit = case.limit.value
    if case.gate.kind == "noise_ratio":
        floor = None if case.floor is None else case.floor.value
        if floor is None:
            return None
        limit *= floor
    every = np.arange(case.clean.shape[1])
    clean = np.median(case.clean, axis=0)

    def value(size: float) -> float:
        lucks = (every + 0.5) / every.size
        found = case.model.value(effect.apply(size, clean, every, lucks))
        return 0.0 if found is None else found

    low, high = 0.0, effect.largest
    if not value(high) >= BEYOND * limit:
        return None
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if value(middle) >= BEYOND * limit else (middle, high)
    return float(f"{high:.4g}")
