"""The gates of a suite as cases to simulate, and the effects each of them is asked about."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from validate.run.measure import Bench
from validate.run.power_effects import (
    Effect,
    added,
    factor,
    first_flips,
    flips,
    interpolated,
    quadrature,
)
from validate.run.power_models import MODELS, Array, differs, measurement_of
from validate.run.power_search import Case, critical
from validate.run.power_values import LOGITS, ScaledSide, head_shares, prompt_values
from validate.run.yardstick import floor_of
from validate.schema.measurement import Levels, Measurement
from validate.schema.pair import Pair, Side
from validate.schema.suite import GateSpec, Suite
from validate.schema.verdict import Limit

__all__ = [
    "SCALES",
    "SCALE_ERROR",
    "SCALE_NOTE",
    "Clean",
    "cases_of",
    "effects_of",
    "scale_crossing",
    "scaled_pairs",
]

SCALES = (0.02, 0.08, 0.32)
"""Logit scale errors that are measured exactly, as logits times 1 - error; between them is
interpolated."""
SCALE_ERROR = "logit scale error"
SCALE_NOTE = "ref's logits times 1 - error, measured at 2, 8 and 32 % and interpolated"
PERCENT = 100.0
LARGEST_NATS = 4.0
LARGEST_RELATIVE = 8.0
LARGEST_LOG = 8.0
REPLAY = "spec.spec-sampled.replay"


def _emitted(side: Side, prompt: str) -> int:
    return len(side.streams[prompt].token_ids)


def _rows(side: Side, prompt: str) -> int:
    return sum(len(side.tensor(prompt, name)) for name in LOGITS if name in side.names(prompt))


def _replayed(side: Side, prompt: str) -> int:
    return len(side.tensor(prompt, REPLAY)) if REPLAY in side.names(prompt) else 0


RARE: Mapping[str, tuple[str, Callable[[Side, str], int]]] = {
    "greedy.divergence_rate": ("flipped tokens", _emitted),
    "greedy.unexplained_rate": ("unexplained tokens", _emitted),
    "logits.flip_rate": ("flipped positions", _rows),
    "logits.kl_exceed_rate": ("positions beyond the stated KL", _rows),
    "speculative.replay": ("tokens that depend on batchmates", _replayed),
}
"""Shares of prompts: what hits a prompt, and how many chances a prompt gives it."""


SHIFTS: Mapping[str, tuple[str, str, float]] = {
    "logits.nll_delta": ("NLL shift", "nats", LARGEST_NATS),
    "speculative.acceptance_delta": ("acceptance shift", "rate", 1.0),
}
"""Signed differences: the shift of every prompt, its unit, and the largest that is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clean:
    """Everything measured before anything is simulated; no candidate is among it."""

    itself: Pair
    """Ref against ref, with the oracle where there is one."""
    pairs: Sequence[Pair]
    """Ref against each repeat."""
    repeated: Sequence[Mapping[str, Measurement]]
    """What the gates measure on ``pairs``."""
    truth: Mapping[str, Measurement] = field(default_factory=dict)
    """What yardstick gates measure between the oracle and ref; empty without an oracle."""


def _swapped(itself: Pair) -> Pair | None:
    if itself.oracle is None:
        return None
    return dataclasses.replace(itself, ref=itself.oracle, cand=itself.ref, _cache={})


def scaled_pairs(itself: Pair) -> tuple[Pair, ...]:
    """Ref against ref with its logits scaled, one pair for each of ``SCALES``."""
    return tuple(
        dataclasses.replace(itself, cand=ScaledSide(itself.ref, 1 - scale), _cache={})
        for scale in SCALES
    )


def cases_of(
    gates: Sequence[GateSpec],
    *,
    clean: Clean,
    bench: Bench,
    suite: Suite,
    shares: Mapping[str, float],
    limits: Mapping[str, Limit],
    tell: Callable[[str], None],
) -> tuple[dict[str, Case], dict[str, tuple[str, ...]], dict[str, str]]:
    """Cases by gate, the prompts of each, and why a gate has none.

    Args:
        gates: Those with a share of alpha.
        clean: What clean pairs measure.
        bench: Metrics and levels.
        suite: For the risk of a false PASS.
        shares: Share of alpha by gate.
        limits: Limit by gate.
        tell: Told what is being done.
    """
    modelled = [gate for gate in gates if gate.measures in MODELS]
    plain = [gate for gate in modelled if gate.area != "yardstick"]
    values: dict[str, list[dict[str, float]]] = {gate.name: [] for gate in modelled}
    for pair in clean.pairs:
        tell(f"prompts of {pair.cand.label}")
        for name, found in prompt_values(bench, pair, plain).items():
            values[name].append(found)
    truth = _swapped(clean.itself)
    if truth is not None:
        yardstick = [gate for gate in modelled if gate.area == "yardstick"]
        for name, found in prompt_values(bench, truth, yardstick).items():
            values[name].append(found)
    cases: dict[str, Case] = {}
    prompts: dict[str, tuple[str, ...]] = {}
    why = {gate.name: _unsimulated(gate, clean) for gate in gates if gate.measures not in MODELS}
    for gate in modelled:
        like = _like(gate, clean)
        kept = _common(values[gate.name])
        if not like or not kept:
            why[gate.name] = next(
                (one.why_undefined for one in like if one.why_undefined is not None),
                "there is no clean pair to take its noise from",
            )
            continue
        case = Case(
            gate=gate,
            model=MODELS[gate.measures],
            limit=limits[gate.name],
            floor=None
            if gate.area == "yardstick"
            else floor_of(
                gate, like, dtype=clean.itself.ref.manifest.dtype, limit=limits[gate.name]
            ),
            share=shares[gate.name],
            beta=suite.beta,
            levels=bench.levels[gate.name],
            clean=np.array([[one[prompt] for prompt in kept] for one in values[gate.name]]),
            like=tuple(like),
        )
        problem = _unlike(case, bench.levels[gate.name])
        if problem is None:
            cases[gate.name], prompts[gate.name] = case, kept
        else:
            why[gate.name] = problem
    return cases, prompts, why


def _unsimulated(gate: GateSpec, clean: Clean) -> str:
    """Why a gate is not simulated, and what its own measurement says it would see."""
    told = [one[gate.name].detection for one in clean.repeated if gate.name in one]
    seen = [one.effect for one in told if one is not None]
    if gate.kind != "lossless":
        return f"power has no model of {gate.measures}"
    if not seen:
        return f"{gate.measures} tells its power itself, and has none here"
    return (
        f"{gate.measures} tells its power itself: {float(np.max(seen)):.3g} of its effect is seen "
        f"with 95 % in every repeat, the suite states {gate.effect:g} (docs/power.md, Samplers)"
    )


def _like(gate: GateSpec, clean: Clean) -> list[Measurement]:
    if gate.area == "yardstick":
        return [clean.truth[gate.name]] if gate.name in clean.truth else []
    return [found[gate.name] for found in clean.repeated]


def _common(values: Sequence[Mapping[str, float]]) -> tuple[str, ...]:
    """Prompts with a value in every clean pair."""
    if not values:
        return ()
    return tuple(prompt for prompt in values[0] if all(prompt in one for one in values))


def _unlike(case: Case, levels: Levels) -> str | None:
    """Whether the model fails to give the metric's own limits on the very same prompts."""
    for values, found in zip(case.clean, case.like, strict=True):
        if found.value is None:
            return found.why_undefined
        made = measurement_of(case.model, values, like=found, levels=levels)
        problem = differs(made, found)
        if problem is not None:
            return (
                f"power's model of {found.metric} does not give the metric's own numbers: {problem}"
            )
    return None


def effects_of(
    cases: Mapping[str, Case],
    prompts: Mapping[str, tuple[str, ...]],
    *,
    clean: Clean,
    bench: Bench,
    tell: Callable[[str], None],
) -> dict[str, tuple[Effect, ...]]:
    """The effects each case is asked about, their profiles measured on ref and the oracle alone."""
    gates = [case.gate for case in cases.values() if case.gate.kind != "three_way"]
    truth = _swapped(clean.itself)
    spread = {} if truth is None else prompt_values(bench, truth, gates)
    logits = [gate for gate in gates if gate.area in {"logits", "yardstick"}]
    scaled = []
    for scale, pair in zip(SCALES, scaled_pairs(clean.itself), strict=True):
        tell(f"logits times {1 - scale:g}")
        scaled.append(prompt_values(bench, pair, logits) if logits else {})
    made = {}
    for name, case in cases.items():
        kept = prompts[name]
        profile = _profile(spread.get(name, {}), kept)
        by_scale = [one.get(name, {}) for one in scaled]
        made[name] = tuple(_effects(case, kept, profile, by_scale, clean.itself))
    return made


def _profile(values: Mapping[str, float], kept: Sequence[str]) -> Array:
    """Weights with the mean 1: how the oracle's distance from ref spreads over prompts."""
    if not all(prompt in values for prompt in kept):
        return np.ones(len(kept))
    sizes = np.abs([values[prompt] for prompt in kept])
    mean = float(sizes.mean())
    return sizes / mean if mean > 0 else np.ones(len(kept))


def _effects(
    case: Case,
    kept: tuple[str, ...],
    profile: Array,
    scaled: Sequence[Mapping[str, float]],
    itself: Pair,
) -> list[Effect]:
    metric = case.gate.measures
    spread = "spread over prompts as the oracle's distance from ref is"
    if case.gate.kind == "three_way":
        note = "every prompt's ratio, and the worst row's, grows by the same factor"
        return [factor("log-ratio of errors", "ln(ratio)", largest=LARGEST_LOG, note=note)]
    if metric in RARE:
        name, counted = RARE[metric]
        tokens = np.array([float(counted(itself.ref, prompt)) for prompt in kept])
        note = (
            "each is hit with the same probability, whatever ref's repeats hit; one marks a prompt"
        )
        return [flips(name, "per 1,000", tokens, note=note)]
    if metric == "greedy.flips_per_1000":
        note = (
            "each token flips with the same probability; the first of cand's and ref's own counts"
        )
        return [first_flips("flipped tokens", "per 1,000", note=note)]
    if metric.startswith("attention."):
        made = [
            quadrature("relative error", "rel-L2", profile, largest=LARGEST_RELATIVE, note=spread)
        ]
        place, shares = head_shares(itself.ref, kept)
        if metric == "attention.rel_l2" and place:
            note = f"one head alone, the one with the median energy: {place}"
            made.append(
                quadrature(
                    "one-head relative error",
                    "rel-L2",
                    np.sqrt(shares),
                    largest=LARGEST_RELATIVE,
                    note=note,
                )
            )
        return made
    return _logit_effects(case, kept, profile, scaled, spread)


def _logit_effects(
    case: Case,
    kept: tuple[str, ...],
    profile: Array,
    scaled: Sequence[Mapping[str, float]],
    spread: str,
) -> list[Effect]:
    signed = case.model.signed
    if signed:
        name, unit, largest = SHIFTS[case.gate.measures]
        shift = added(
            name,
            unit,
            np.ones(len(kept)),
            largest=largest,
            note="the same for every prompt, in either direction",
        )
    else:
        shift = added("mean-KL shift", "nats", profile, largest=LARGEST_NATS, note=spread)
    if not all(prompt in one for one in scaled for prompt in kept):
        return [shift]
    measured = np.array([[one[prompt] for prompt in kept] for one in scaled])
    if not _rises(measured):
        return [shift]
    scale = interpolated(
        SCALE_ERROR,
        "%",
        PERCENT * np.array(SCALES),
        measured,
        order=1 if signed else 2,
        note=SCALE_NOTE,
    )
    return [shift, scale]


def _rises(measured: Array) -> bool:
    """Whether the mean moves one way only: a bisection over the size would else mislead."""
    means = np.concatenate([[0.0], measured.mean(axis=1)])
    return bool((np.diff(means) > 0).all() or (np.diff(means) < 0).all())


def scale_crossing(values: Sequence[float], limit: float) -> float | None:
    """Percent of logit scale error at which a maximum over rows crosses its limit.

    Args:
        values: What it measures at ``SCALES``.
        limit: In the same unit.

    Returns:
        Interpolated as KL over the square of the error; None above the largest of ``SCALES``.
    """
    effect = interpolated(
        SCALE_ERROR,
        "%",
        PERCENT * np.array(SCALES),
        np.array(values)[:, None],
        order=2,
        note=SCALE_NOTE,
    )
    none = np.zeros(1)
    first = np.zeros(1, dtype=np.int64)
    size = critical(
        lambda size: bool(effect.apply(size, none, first, none)[0] > limit),
        guess=1.0,
        largest=effect.largest,
    )
    return size if np.isfinite(size) else None
