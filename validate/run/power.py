"""``power``: what a suite can detect, from ref and its repeats alone, before any candidate is seen."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import validate
from validate.errors import InputError
from validate.gates import MIN_REPEATS
from validate.metrics import METRICS, Metric
from validate.pairing import pair
from validate.run.compare import levels_of
from validate.run.measure import Bench, PairMaker
from validate.run.power_cases import (
    SCALE_ERROR,
    SCALE_NOTE,
    Clean,
    cases_of,
    effects_of,
    scale_crossing,
    scaled_pairs,
)
from validate.run.power_clean import clean_run
from validate.run.power_effects import Effect
from validate.run.power_exact import MULTIPLES, POWERS, certain, crossing, rate
from validate.run.power_record import EffectPower, GatePower, PowerReport, Reach
from validate.run.power_search import Case, detectable, make_draws, stopped, units
from validate.run.sides import capture_digest
from validate.schema.pair import Side
from validate.schema.suite import GateSpec, Limits, Suite
from validate.schema.verdict import Limit
from validate.suite import alpha_shares, check_limits, choose_limit, choose_setting, limits_digest

__all__ = ["DRAWS", "SEED", "power"]

DRAWS = 200
"""Simulated runs for each figure: a power of 80 % has a standard error of 2.8 %, one of 95 % 1.5 %."""
SEED = 20260101
BEYOND = 1.5
"""The stated effect is the one whose true value is this many times the limit."""

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
    kept = _distinct(ref, repeats)
    dtype = ref.manifest.dtype
    check_limits(suite, limits, dtype=dtype)
    shares = alpha_shares(suite)
    chosen = {
        gate.name: choose_limit(gate, suite=suite, limits=limits, dtype=dtype).limit
        for gate in suite.gates
    }
    bench = Bench(
        gates=suite.gates,
        levels=levels_of(suite.gates, suite=suite, shares=shares),
        oracle=oracle,
        weights=weights,
        config=config,
        metrics=metrics,
        make_pair=make_pair,
    )
    spent = [gate for gate in suite.gates if shares[gate.name] > 0]
    steps = _Steps(progress, total=len(kept) * 2 + 4 + 2 * len(spent))
    clean = _measured(bench, ref, kept, limits=limits, dtype=dtype, tell=steps.next)
    cases, prompts, why = cases_of(
        spent,
        clean=clean,
        bench=bench,
        suite=suite,
        shares=shares,
        limits=chosen,
        tell=steps.next,
    )
    effects = effects_of(cases, prompts, clean=clean, bench=bench, tell=steps.next)
    found = {}
    for index, gate in enumerate(suite.gates):
        if gate.name in cases:
            steps.next(gate.name)
            made = _simulated(cases[gate.name], effects[gate.name], draws, (seed, index))
            found[gate.name] = _gate(cases[gate.name], made)
        else:
            found[gate.name] = _other(
                gate, chosen[gate.name], bench, clean, why.get(gate.name), shares[gate.name]
            )
    steps.next("clean runs")
    run = clean_run(suite.gates, cases, prompts, clean, chosen, shares, draws=10 * draws, seed=seed)
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
        gates_with_interval=len(spent),
        ref=ref.label,
        ref_digest=capture_digest(ref),
        repeats=tuple(repeat.label for repeat in kept),
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


def _distinct(ref: Side, repeats: Sequence[Side]) -> tuple[Side, ...]:
    kept: dict[str, Side] = {}
    for repeat in repeats:
        digest = capture_digest(repeat)
        if digest != capture_digest(ref):
            kept.setdefault(digest, repeat)
    if len(kept) < MIN_REPEATS:
        msg = (
            f"power: ref '{ref.label}' has {len(kept)} repeats, at least {MIN_REPEATS} needed: the "
            "noise that power is computed against is what ref measures against them\n"
            "  do next: name a stored capture with repeats (validate list targets), or record "
            "repeats of this one (validate golden record)"
        )
        raise InputError(msg)
    return tuple(kept.values())


def _measured(
    bench: Bench,
    ref: Side,
    repeats: Sequence[Side],
    *,
    limits: Limits,
    dtype: str,
    tell: Callable[[str], None],
) -> Clean:
    settings = {
        name: choose_setting(name, limits=limits, dtype=dtype).limit.value
        for name in ("near_tie", "route_gap")
    }
    itself = bench.pair(ref, ref, **settings)
    pairs, repeated = [], []
    for repeat in repeats:
        tell(f"ref against {repeat.label}")
        pairs.append(bench.pair(ref, repeat, **settings))
        repeated.append(bench.measure(pairs[-1], what="power"))
    against = [gate for gate in bench.gates if gate.name == "yardstick.ref_error"]
    truth = bench.against_oracle(itself, gates=against) if against else None
    return Clean(itself=itself, pairs=pairs, repeated=repeated, truth=truth or {})


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


def _other(
    gate: GateSpec,
    limit: Limit,
    bench: Bench,
    clean: Clean,
    why: str | None,
    share: float,
) -> GatePower:
    """A gate that is not simulated: deterministic, of the yardstick, or without a model."""
    like = [found[gate.name] for found in clean.repeated if gate.name in found]
    like = [one for one in like if one.value is not None]
    effects: tuple[EffectPower, ...] = ()
    if why is None and gate.area == "yardstick":
        why = "it judges ref, its repeats and the path proofs; no effect of cand is looked for"
    elif why is None and not like:
        why = "it measures nothing on any clean pair"
    elif why is None:
        effects = (rate(like[0]) if gate.kind == "exact" else crossing(gate, limit, like),)
        if gate.measures in SCALED:
            effects += (_scaled(gate, limit, bench, clean),)
    return GatePower(
        gate=gate.name,
        kind=gate.kind,
        alpha_share=share,
        limit=limit.value,
        noise_floor=None,
        n=like[0].n if like else 0,
        n_of=like[0].n_of if like else "",
        effects=effects,
        why_undefined=why,
    )


def _scaled(gate: GateSpec, limit: Limit, bench: Bench, clean: Clean) -> EffectPower:
    """The logit scale error whose worst position crosses the limit."""
    found = [
        bench.measure(scaled, what="scaled", gates=[gate])[gate.name]
        for scaled in scaled_pairs(clean.itself)
    ]
    values = [0.0 if one.value is None else one.value for one in found]
    size = scale_crossing(values, limit.value)
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
        note=effect.note,
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
