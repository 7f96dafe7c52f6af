"""How often a whole suite alarms on clean measurements: simulated, through the real intervals and gates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from validate.errors import InputError
from validate.gates import MIN_REPEATS, judge
from validate.metrics import METRICS, Metric
from validate.pairing import pair
from validate.run.compare import levels_of
from validate.run.measure import Bench, PairMaker, Progress, silent
from validate.run.power_models import MODELS, Array, Model, differs, measurement_of
from validate.run.power_values import prompt_values
from validate.run.yardstick import floor_of
from validate.schema.measurement import Measurement
from validate.schema.pair import Side
from validate.schema.suite import SETTINGS, GateSpec, Limits, Suite
from validate.schema.verdict import Limit, NoiseFloor, Outcome
from validate.suite import alpha_shares, choose_limit, choose_setting

__all__ = ["ALARMS", "Alarms", "CleanSets", "Where", "clean_sets", "simulate"]

ALARMS = (Outcome.FAIL, Outcome.INCOMPARABLE)
"""A right candidate is called wrong, or ref is blamed though it is right."""

NO_SPREAD = 1e-9
"""Relative; values closer than this differ by rounding alone."""
MIN_SIZES = 3
PER = 1000.0
POPULATION = 20_000
"""Values of a lognormal population at the limit."""
POPULATION_SEED = 20260101

Where = Literal["clean", "limit"]
"""``clean``: values as ref's repeats measure them. ``limit``: the same spread, moved so that the
true value of every gate with a weight lies exactly at its limit, all at once: the hardest case
in which no FAIL is deserved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """What one gate's clean measurements are drawn from, with one repeat in cand's place."""

    gate: GateSpec
    like: Measurement
    """The whole golden's measurement."""
    limit: Limit
    noise: NoiseFloor | None
    share: float
    values: Mapping[Where, Array] | None
    """Prompt-level values; None for deterministic gates and metrics without a model of their
    prompts, whose measurement of a repeat is taken as it is."""
    prompts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanSets:
    """The population that simulated measurement sets are drawn from."""

    suite: Suite
    repeats: tuple[tuple[_Source, ...], ...]
    """Sources by repeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarms:
    """What a simulation counted."""

    runs: int
    alarms: int
    """Runs in which any gate alarms."""
    by_gate: Mapping[str, int]
    open: int
    """Runs without an alarm in which some gate is INCONCLUSIVE."""


def clean_sets(
    *,
    ref: Side,
    repeats: Sequence[Side],
    suite: Suite,
    limits: Limits,
    oracle: Side | None = None,
    weights: Mapping[str, NDArray[Any]] | None = None,
    config: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Metric] = METRICS,
    make_pair: PairMaker = pair,
    progress: Progress = silent,
) -> CleanSets:
    """Measure ref against each repeat, as a whole and prompt by prompt.

    Args:
        ref: The reference.
        repeats: Its repeats; one stands in cand's place, the others make the floor.
        suite: Whose gates are simulated.
        limits: The limits in force.
        oracle: For ratios of errors and ref's own error.
        weights: Float64 weights by name, for introduced errors.
        config: Model configuration that goes with ``weights``.
        metrics: Metrics by name.
        make_pair: ``pairing.pair``.
        progress: Told what is being measured.

    Raises:
        InputError: Too few repeats, or a model of a metric does not give what the metric gives.
    """
    if len(repeats) <= MIN_REPEATS:
        msg = f"false alarms: {len(repeats)} repeats of ref, at least {MIN_REPEATS + 1} needed"
        raise InputError(msg)
    shares = alpha_shares(suite)
    bench = Bench(
        gates=suite.gates,
        levels=levels_of(suite.gates, suite=suite, shares=shares),
        oracle=oracle,
        weights=weights,
        config=config,
        metrics=metrics,
        make_pair=make_pair,
        progress=progress,
    )
    dtype = ref.manifest.dtype
    settings = {
        name: choose_setting(name, limits=limits, dtype=dtype).limit.value for name in SETTINGS
    }
    pairs = [bench.pair(ref, repeat, **settings) for repeat in repeats]
    whole = [bench.measure(one, what=f"ref against {one.cand.label}") for one in pairs]
    gated = [
        gate for gate in bench.measured_gates if shares[gate.name] > 0 and gate.measures in MODELS
    ]
    alone = []
    for one in pairs:
        progress(f"ref against {one.cand.label}, prompt by prompt")
        alone.append(prompt_values(bench, one, gated))
    made = []
    for place in range(len(pairs)):
        sources = []
        for gate in bench.measured_gates:
            limit = choose_limit(gate, suite=suite, limits=limits, dtype=dtype).limit
            others = [found[gate.name] for i, found in enumerate(whole) if i != place]
            source = _Source(
                gate=gate,
                like=whole[place][gate.name],
                limit=limit,
                noise=floor_of(gate, others, dtype=dtype, limit=limit),
                share=shares[gate.name],
                values=None,
                prompts=(),
            )
            sources.append(_with_values(source, alone[place].get(gate.name), suite=suite))
        made.append(tuple(sources))
    return CleanSets(suite=suite, repeats=tuple(made))


def simulate(sets: CleanSets, *, where: Where, runs: int, rng: np.random.Generator) -> Alarms:
    """Count the alarms of ``runs`` clean measurement sets of the whole suite.

    In each, one repeat stands in cand's place and prompts are drawn anew, with replacement;
    clean gates that look at the same prompts share the draw. Every interval is computed and every gate
    is judged as in a real run.

    Args:
        sets: What to draw from.
        where: At which true values.
        runs: How many sets.
        rng: Randomness.
    """
    alarms = opened = 0
    by_gate: dict[str, int] = {}
    fixed: dict[tuple[int, str], Outcome] = {}
    for _ in range(runs):
        place = int(rng.integers(len(sets.repeats)))
        drawn: dict[tuple[str, ...], NDArray[np.intp]] = {}
        outcomes = {}
        for source in sets.repeats[place]:
            key = (place, source.gate.name)
            if source.values is None:
                if key not in fixed:
                    fixed[key] = _outcome(source, source.like, sets.suite)
                outcomes[source.gate.name] = fixed[key]
                continue
            values = _draw(source, source.values[where], where=where, drawn=drawn, rng=rng)
            outcomes[source.gate.name] = _outcome(
                source, _measured(source, values, sets.suite), sets.suite
            )
        loud = [name for name, outcome in outcomes.items() if outcome in ALARMS]
        alarms += bool(loud)
        opened += not loud and Outcome.INCONCLUSIVE in outcomes.values()
        for name in loud:
            by_gate[name] = by_gate.get(name, 0) + 1
    return Alarms(runs=runs, alarms=alarms, by_gate=by_gate, open=opened)


def _draw(
    source: _Source,
    values: Array,
    *,
    where: Where,
    drawn: dict[tuple[str, ...], NDArray[np.intp]],
    rng: np.random.Generator,
) -> Array:
    """One value a prompt; ``drawn`` remembers which prompts this run drew."""
    size = len(source.prompts)
    if where == "limit" and source.like.unit == "share":
        return (rng.random(size) < source.limit.value).astype(np.float64)
    if where == "limit" and _is_exposure(source):
        longest = float(np.max(np.abs(source.values["clean"]))) if source.values else 0.0
        tokens = np.ceil(rng.exponential(PER / source.limit.value, size=size))
        return np.where(tokens < longest, -tokens, longest)
    if where == "limit":
        return values[rng.integers(values.size, size=size)]
    if source.prompts not in drawn:
        drawn[source.prompts] = rng.integers(size, size=size)
    return values[drawn[source.prompts]]


def _model(source: _Source) -> Model:
    return MODELS[source.gate.measures]


def _is_exposure(source: _Source) -> bool:
    """Whether a prompt's number is the tokens to its first flip, negative where there is one."""
    return source.gate.measures == "greedy.flips_per_1000"


def _with_values(source: _Source, values: Mapping[str, float] | None, *, suite: Suite) -> _Source:
    """The source with its prompt-level values, checked against the metric's own answer."""
    if values is None:
        return source
    clean = np.array(list(values.values()))
    made = _Source(
        gate=source.gate,
        like=source.like,
        limit=source.limit,
        noise=source.noise,
        share=source.share,
        values={"clean": clean, "limit": _at_limit(clean, source)},
        prompts=tuple(values),
    )
    wrong = differs(_measured(made, clean, suite), source.like)
    if wrong is not None:
        msg = f"false alarms: {source.gate.name}: the model of its prompts measures {wrong}"
        raise InputError(msg)
    return made


def _at_limit(values: Array, source: _Source) -> Array:
    """The measured prompts themselves, moved so that their true value lies at the limit.

    Nothing is smoothed: a dozen distinct values and whatever skew they have are the population.
    Signed differences are shifted, sizes scaled. Prompts that measure exactly 0 cannot be
    scaled and are left out; where the others show no spread, prompts follow a
    lognormal distribution of sigma 1.
    """
    target = source.limit.value
    if source.gate.kind == "noise_ratio" and source.noise is not None:
        target *= source.noise.value or 0.0
    model = _model(source)
    if model.signed:
        moved = values - float(np.median(values)) + target
    else:
        sizes = values[values > 0]
        if sizes.size < MIN_SIZES or not np.ptp(sizes) > NO_SPREAD * sizes.max():
            sizes = np.random.default_rng(POPULATION_SEED).lognormal(size=POPULATION)
        moved = sizes * (target / (model.value(sizes) or 1.0))
    near = np.abs(moved - target) <= NO_SPREAD * target
    return np.where(near, target, moved)


def _measured(source: _Source, values: Array, suite: Suite) -> Measurement:
    levels = levels_of([source.gate], suite=suite, shares={source.gate.name: source.share})
    return measurement_of(
        _model(source),
        values,
        like=source.like,
        levels=levels[source.gate.name],
        worst=source.like.worst_value,
    )


def _outcome(source: _Source, measurement: Measurement, suite: Suite) -> Outcome:
    return judge(
        source.gate,
        measurement=measurement,
        limit=source.limit,
        noise=source.noise,
        alpha_share=source.share,
        rerun="",
        beta=suite.beta,
    ).outcome
