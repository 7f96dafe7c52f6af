"""Survival of agreement, cand beside ref's repeats, and who parts first on each prompt."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from validate.metrics._divergence import StreamPair, first_divergence
from validate.schema import Pair, Side, Worst
from validate.stats import kaplan_meier

__all__ = ["Firsts", "earliest", "powers_of_two", "survival_beside", "who_parts_first"]


class Firsts(NamedTuple):
    """Prompts by which of the two streams left ref's first."""

    cand: tuple[StreamPair, ...]
    floor: tuple[StreamPair, ...]
    events: int
    """Prompts on which the repeat parted at all."""


def powers_of_two(most: int) -> list[int]:
    """2, 4, 8, ... up to ``most``.

    Example:
        >>> powers_of_two(8)
        [2, 4, 8]
    """
    return [2**power for power in range(1, most.bit_length())]


def earliest(pairs: Sequence[StreamPair]) -> Worst | None:
    """The first divergence of all; the first prompt among equals."""
    steps = [(one.diverged, one) for one in pairs if one.diverged is not None]
    if not steps:
        return None
    step, one = min(steps, key=lambda place: place[0])
    return Worst(
        prompt=one.prompt,
        position=one.start + step,
        place=f"stream step {step}",
        value=float(step),
        detail=f"ref emitted {one.ref[step]}, cand {one.cand[step]}",
    )


def survival_beside(pair: Pair, pairs: Sequence[StreamPair]) -> dict[str, float]:
    """Kaplan-Meier share in agreement after 2, 4, 8, ... tokens, for cand and ref's repeats."""
    shown = _curve("cand", [(one.compared, one.diverged is not None) for one in pairs])
    floor: list[tuple[int, bool]] = []
    for side in _usable(pair):
        for one in pairs:
            step, common = _against(side, one)
            floor.append((common if step is None else step + 1, step is not None))
    return shown | (_curve("floor", floor) if floor else {})


def who_parts_first(pair: Pair, pairs: Sequence[StreamPair]) -> Firsts | None:
    """Set each prompt's cand beside one repeat of ref, chosen by the prompt's id.

    One repeat a prompt keeps prompts independent, and the id keeps their order out of it. A stream that ended cannot be seen to
    part later, so a prompt tells only within the shorter of the two comparisons.

    Returns:
        The prompts that tell the two apart; None without repeats that hold every stream.
    """
    sides = _usable(pair)
    if not sides:
        return None
    cand: list[StreamPair] = []
    floor: list[StreamPair] = []
    events = 0
    for one in pairs:
        step, common = _against(sides[_draw(one.prompt) % len(sides)], one)
        events += step is not None
        ends = min(common, len(one.ref), len(one.cand))
        ours = one.diverged if one.diverged is not None and one.diverged < ends else ends
        theirs = step if step is not None and step < ends else ends
        if ours < theirs:
            cand.append(one)
        elif theirs < ours:
            floor.append(one)
    return Firsts(tuple(cand), tuple(floor), events)


def _draw(prompt: str) -> int:
    """A number that a prompt's id alone decides, on every machine."""
    return int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:8], "big")


def _usable(pair: Pair) -> list[Side]:
    """Repeats that hold a greedy stream for every prompt."""
    return [side for side in pair.repeats if all(one in side.streams for one in pair.prompts)]


def _against(side: Side, one: StreamPair) -> tuple[int | None, int]:
    """First step at which a repeat leaves ref, and the steps that both hold."""
    theirs = side.streams[one.prompt].token_ids
    return first_divergence(one.ref, theirs), min(len(one.ref), len(theirs))


def _curve(label: str, seen: Sequence[tuple[int, bool]]) -> dict[str, float]:
    """Shares still in agreement after N tokens, N a power of two up to the longest comparison."""
    curve = kaplan_meier([time for time, _ in seen], [gone for _, gone in seen])
    longest = 0
    for time, _ in seen:
        longest = time if time > longest else longest
    shown: dict[str, float] = {}
    for steps in powers_of_two(longest):
        left = [s for time, s in zip(curve.times, curve.survival, strict=True) if time <= steps]
        shown[f"{label}.survival.{steps}"] = left[-1] if left else 1.0
    return shown
