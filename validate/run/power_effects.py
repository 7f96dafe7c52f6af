"""Effects by their mechanism: what an error of a given size does to prompt-level values."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from validate.run.power_models import Array

__all__ = ["Effect", "added", "factor", "first_flips", "flips", "interpolated", "quadrature"]

PER = 1000.0
Chosen = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One kind of error."""

    name: str
    unit: str
    apply: Callable[[float, Array, Chosen, Array], Array]
    """Of size, clean values of the chosen prompts, their indices and one uniform number each."""
    largest: float
    """Sizes above this are not tried."""
    note: str = ""


def added(name: str, unit: str, profile: Array, *, largest: float, note: str) -> Effect:
    """The size times a prompt's weight is added; weights have the mean 1."""

    def apply(size: float, clean: Array, chosen: Chosen, luck: Array) -> Array:
        del luck
        return clean + size * profile[chosen]

    return Effect(name=name, unit=unit, apply=apply, largest=largest, note=note)


def quadrature(name: str, unit: str, profile: Array, *, largest: float, note: str) -> Effect:
    """An error independent of the noise: squares add."""

    def apply(size: float, clean: Array, chosen: Chosen, luck: Array) -> Array:
        del luck
        made: Array = np.hypot(clean, size * profile[chosen])
        return made

    return Effect(name=name, unit=unit, apply=apply, largest=largest, note=note)


def factor(name: str, unit: str, *, largest: float, note: str) -> Effect:
    """Every prompt's ratio is multiplied by ``exp(size)``."""

    def apply(size: float, clean: Array, chosen: Chosen, luck: Array) -> Array:
        del chosen, luck
        return clean * float(np.exp(size))

    return Effect(name=name, unit=unit, apply=apply, largest=largest, note=note)


def flips(name: str, unit: str, tokens: Array, *, note: str) -> Effect:
    """Each of a prompt's tokens is hit with probability size / 1,000; one hit marks the prompt."""

    def apply(size: float, clean: Array, chosen: Chosen, luck: Array) -> Array:
        hit = -np.expm1(tokens[chosen] * np.log1p(-min(size / PER, 1 - 1e-12)))
        made: Array = np.where((clean > 0) | (luck < hit), 1.0, 0.0)
        return made

    return Effect(name=name, unit=unit, apply=apply, largest=PER / 2, note=note)


def first_flips(name: str, unit: str, *, note: str) -> Effect:
    """Each token flips with probability size / 1,000; a stream is compared up to its first flip.

    A prompt's value is its compared tokens, negative where the last of them is a flip.
    """

    def apply(size: float, clean: Array, chosen: Chosen, luck: Array) -> Array:
        del chosen
        if size == 0:
            return clean
        stay = float(np.log1p(-min(size / PER, 1 - 1e-12)))
        first = np.floor(np.log1p(-luck) / stay) + 1.0
        made: Array = np.where(first <= np.abs(clean), -first, clean)
        return made

    return Effect(name=name, unit=unit, apply=apply, largest=PER / 2, note=note)


def interpolated(
    name: str, unit: str, sizes: Array, measured: Array, *, order: int, note: str
) -> Effect:
    """Measured at a few sizes; between them ``value / size**order`` is interpolated.

    Args:
        name: The effect.
        unit: Its unit.
        sizes: (sizes,) rising, above 0.
        measured: (sizes, prompts) what each size alone does to each prompt's value.
        order: Power of the size that the value grows with at first: 2 for KL, 1 for a signed mean.
        note: What is assumed.
    """
    rates = measured / sizes[:, None] ** order

    def apply(size: float, clean: Array, chosen: Chosen, luck: Array) -> Array:
        del luck
        right = min(max(int(np.searchsorted(sizes, size)), 1), sizes.size - 1)
        left = right - 1
        along = (size - sizes[left]) / (sizes[right] - sizes[left])
        rate = rates[left] + (rates[right] - rates[left]) * max(along, 0.0)
        made: Array = clean + rate[chosen] * size**order
        return made

    return Effect(name=name, unit=unit, apply=apply, largest=float(sizes[-1]), note=note)
