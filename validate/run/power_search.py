"""The smallest effect a gate detects: simulated draws, the real interval, the real rule."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from validate.gates import judge
from validate.run.power_effects import Effect
from validate.run.power_models import Array, Model, measurement_of
from validate.schema.measurement import Levels, Measurement
from validate.schema.suite import GateSpec
from validate.schema.verdict import Limit, NoiseFloor, Outcome

__all__ = [
    "FOUND",
    "Case",
    "Draw",
    "critical",
    "detectable",
    "found",
    "make_draws",
    "power_at",
    "stopped",
    "units",
]

FOUND = (Outcome.FAIL, Outcome.INCOMPARABLE)
"""A gate that fails; a yardstick gate that fails is INCOMPARABLE."""
CLOSE = 1.01
"""Bisection stops when the ends are this near, as a ratio."""
MOST_TIMES = 32
"""More than this many times the units at hand are not tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One gate with all that its verdict depends on."""

    gate: GateSpec
    model: Model
    limit: Limit
    floor: NoiseFloor | None
    share: float
    beta: float
    levels: Levels
    clean: Array
    """(repeats, prompts) what each prompt measures in each clean pair."""
    like: tuple[Measurement, ...]
    """The metric's own measurement of each clean pair."""

    def outcome(
        self, values: Array, *, repeat: int, worst_factor: float = 1.0, floor: NoiseFloor | None
    ) -> Outcome:
        """The gate's outcome on these prompt-level values."""
        like = self.like[repeat]
        worst = None if like.worst_value is None else like.worst_value * worst_factor
        found = measurement_of(self.model, values, like=like, levels=self.levels, worst=worst)
        return judge(
            self.gate,
            measurement=found,
            limit=self.limit,
            noise=floor,
            alpha_share=self.share,
            rerun="",
            beta=self.beta,
        ).outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One simulated run: a repeat, prompts drawn with replacement, a uniform number each."""

    repeat: int
    chosen: NDArray[np.int64]
    luck: Array


Test = Callable[[Case, Effect, float, Draw], bool]


def make_draws(case: Case, *, n: int, draws: int, seed: Sequence[int]) -> list[Draw]:
    """Simulated clean runs of ``n`` prompts."""
    rng = np.random.default_rng(seed)
    repeats, prompts = case.clean.shape
    return [
        Draw(
            repeat=int(rng.integers(repeats)),
            chosen=rng.integers(prompts, size=n),
            luck=rng.random(n),
        )
        for _ in range(draws)
    ]


def _outcome(case: Case, effect: Effect, size: float, draw: Draw) -> Outcome:
    clean = case.clean[draw.repeat, draw.chosen]
    values = effect.apply(size, clean, draw.chosen, draw.luck)
    grown = math.exp(size) if case.gate.kind == "three_way" else 1.0
    return case.outcome(values, repeat=draw.repeat, worst_factor=grown, floor=case.floor)


def _caught(test: Test, case: Case, effect: Effect, draw: Draw, size: float) -> bool:
    return test(case, effect, size, draw)


def found(case: Case, effect: Effect, size: float, draw: Draw) -> bool:
    """Whether an effect of this size makes the gate fail."""
    return _outcome(case, effect, size, draw) in FOUND


def stopped(case: Case, effect: Effect, size: float, draw: Draw) -> bool:
    """Whether an effect of this size is not passed."""
    return _outcome(case, effect, size, draw) is not Outcome.PASS


def power_at(case: Case, effect: Effect, size: float, draws: Sequence[Draw]) -> float:
    """Share of draws in which an effect of this size makes the gate fail."""
    return sum(found(case, effect, size, draw) for draw in draws) / len(draws)


def critical(test: Callable[[float], bool], *, guess: float, largest: float) -> float:
    """Smallest size that ``test`` is true of, by bisection; infinite where none up to ``largest``.

    ``test`` is taken to be true from some size on.
    """
    if test(0.0):
        return 0.0
    high = min(guess * 1.05, largest)
    low = high / 1.1
    while not test(high):
        if high >= largest:
            return math.inf
        low, high = high, min(2 * high, largest)
    while low > largest * 1e-9 and test(low):
        low, high = low / 2, low
    while high > low * CLOSE:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if test(middle) else (middle, high)
    return high


def detectable(
    case: Case,
    effect: Effect,
    draws: Sequence[Draw],
    *,
    powers: Sequence[float],
    test: Test = found,
    guess: float,
) -> list[float | None]:
    """Smallest sizes that are caught with each of ``powers``; None: none that was tried.

    Every draw has the size from which on it is caught; a power's answer is the order
    statistic of these sizes, for the share of draws caught at a size is the power there.
    """
    sizes = []
    for draw in draws:
        caught = partial(_caught, test, case, effect, draw)
        size = critical(caught, guess=guess, largest=effect.largest)
        sizes.append(size)
        guess = size if 0 < size < math.inf else guess
    ordered = sorted(sizes)
    ranks = [max(math.ceil(power * len(ordered)), 1) - 1 for power in powers]
    return [ordered[rank] if ordered[rank] < math.inf else None for rank in ranks]


def units(
    case: Case, effect: Effect, size: float, *, power: float, draws: int, seed: Sequence[int]
) -> int | None:
    """Units that catch an effect of this size with this power; None: more than were tried.

    Bisection to 10 %, on draws of their own for each n.
    """

    def enough(n: int) -> bool:
        made = make_draws(case, n=n, draws=draws, seed=[*seed, n])
        return power_at(case, effect, size, made) >= power

    most = MOST_TIMES * case.clean.shape[1]
    low, high = 1, 4
    while not enough(high):
        if high >= most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > max(1, high // 10):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
