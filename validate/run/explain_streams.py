"""What a gate on drawn streams fails by: kind of stream, draft index, depth, stratum; states by layer."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.metrics._reason import Reason
from validate.metrics._spec_tests import Named, sound_side
from validate.metrics._words import ranges
from validate.metrics.speculative_acceptance_z import _tests as coin_tests
from validate.metrics.speculative_uniform import _informative, _tests as law_tests
from validate.schema.explained import FoundPlace, Rung
from validate.schema.model_config import ModelConfig
from validate.schema.pair import Pair, Side
from validate.schema.report import GateReport
from validate.schema.streams import DRAWN_KINDS

__all__ = ["AUDIT", "audit_places", "stream_rungs"]

AUDIT = "speculative.audit"
TENSOR = "spec.spec-sampled.audit"
MOST_PARTS = 6
_MODULES = {"kv": "KV", "kda": "KDA", "conv": "conv"}
_STRATA: Mapping[str, str] = {
    "row": "draft index",
    "draft": "draft index",
    "depth": "depth",
    "parameters": "parameters",
    "entropy": "entropy",
}
"""First word of a stratum's name: what it is a stratum of."""
_OUTCOMES = ("accepted", "resampled", "bonus", "impossible decisions")
_WHOLE = re.compile(r"parameters \{[^}]*\}")
_NUMBER = re.compile(r"(?:row|draft) (\d+)")


class _Part(NamedTuple):
    """One part of the tokens, and whether its tests reject."""

    kind: str
    level: str
    name: str
    rejects: bool


def stream_rungs(gate: GateReport, pair: Pair) -> Iterator[Rung]:
    """Down from the gate: kind, draft index, depth and strata, and the finding in words.

    Where the gate is a test of the law of every token or of the coins of verification, its strata
    are tested each, at the share of alpha that the metric gives them.

    Args:
        gate: A gate of the area ``speculative``, which was measured.
        pair: What it measured.
    """
    found = gate.measurement
    if found is None:
        return
    place = "" if found.worst is None else found.worst.place or ""
    parts = _parts(gate, pair)
    if parts:
        yield from _tested(parts)
    else:
        yield from _named(place)
    if found.pattern is not None:
        yield Rung(level="finding", text=found.pattern)
    if place:
        detail = None if found.worst is None else found.worst.detail
        told = "" if detail is None else f"; {detail}"
        yield Rung(level="strongest", text=f"{place}{told}")


def _named(place: str) -> Iterator[Rung]:
    """What the name of the worst place says."""
    kind = next((k for k in sorted(DRAWN_KINDS, key=len, reverse=True) if k in place), None)
    if kind is not None:
        yield Rung(level="stream", text=kind)


def _parts(gate: GateReport, pair: Pair) -> list[_Part]:
    """The tests that a gate is made of, each by its own; empty where it is not made of any."""
    make = _TESTS.get(gate.name)
    side = None if make is None else sound_side(pair)
    if make is None or side is None or isinstance(side, Reason):
        return []
    made = []
    for drawn in side.sampled():
        for test in make(side, drawn):
            rest = test.name.removeprefix(drawn.kind).lstrip(", ")
            held = _WHOLE.match(rest)
            first = rest.split(",")[0] if held is None else held.group(0)
            level = _STRATA.get(first.partition(" ")[0], "outcome" if first in _OUTCOMES else "all")
            p_value = test.test.p_value
            beyond = p_value is not None and p_value < gate.alpha_share * test.weight
            made.append(_Part(drawn.kind, level, first if level != "all" else rest, beyond))
    return made


def _laws(side: Any, drawn: Any) -> Sequence[Named]:
    return law_tests(side, _informative(drawn), 1.0)


def _coins(side: Any, drawn: Any) -> Sequence[Named]:
    if drawn.steps is None:
        return ()
    warm = drawn.steps.where(drawn.steps.temperature > 0)
    return coin_tests(side, drawn.kind, warm, 1.0)


_TESTS: Mapping[str, Callable[[Any, Any], Sequence[Named]]] = {
    "speculative.uniform": _laws,
    "speculative.acceptance_z": _coins,
}


def _tested(parts: Sequence[_Part]) -> Iterator[Rung]:
    """Which kinds reject, and of the first that does which parts do and which do not."""
    kinds = {kind: [part for part in parts if part.kind == kind] for kind in _kinds(parts)}
    told = {kind: sum(part.rejects for part in held) for kind, held in kinds.items()}
    worst = max(told, key=lambda kind: told[kind] / len(kinds[kind]))
    others = [
        f"{kind}: {told[kind]} of {len(kinds[kind])} reject" for kind in kinds if kind != worst
    ]
    aside = f" ({'; '.join(others)})" if others else ""
    yield Rung(
        level="stream",
        text=f"{worst}, {told[worst]} of its {len(kinds[worst])} tests reject{aside}",
    )
    for level in ("draft index", "outcome", "depth", "parameters", "entropy"):
        held = [part for part in kinds[worst] if part.level == level]
        names = {part.name: False for part in held}
        for part in held:
            names[part.name] |= part.rejects
        if any(names.values()):
            yield Rung(level=level, text=_which(names))


def _kinds(parts: Sequence[_Part]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.kind for part in parts))


def _which(names: Mapping[str, bool]) -> str:
    """The parts that reject, as numbers where they are numbered."""
    wrong = [name for name, rejects in names.items() if rejects]
    numbers = [found.group(1) for name in wrong if (found := _NUMBER.fullmatch(name))]
    if len(numbers) == len(wrong):
        noun = wrong[0].partition(" ")[0]
        told = f"{noun} {ranges(sorted(int(number) for number in numbers))}"
    else:
        rest = len(wrong) - MOST_PARTS
        told = "; ".join(wrong[:MOST_PARTS]) + (f" and {rest} more" if rest > 0 else "")
    return f"{told} ({len(wrong)} of {len(names)})"


def audit_places(
    cand: Side, prompts: Sequence[str], *, config: ModelConfig | None, limit: float
) -> tuple[FoundPlace, ...]:
    """The states that leave their replay by more than the limit at the first step that does.

    What leaves it at later steps may do so because the passes between read a wrong state.

    Args:
        cand: With audits.
        prompts: Those that count.
        config: Says which layers keep which state; None: nothing can be named.
        limit: The gate's.
    """
    if config is None:
        return ()
    kda = [layer for layer in range(config.layers) if layer not in config.mla_layers]
    columns = [("kv", layer) for layer in sorted(config.mla_layers)]
    columns += [(kind, layer) for kind in ("kda", "conv") for layer in kda]
    worst: dict[tuple[str, int], tuple[float, str]] = {}
    for prompt in prompts:
        if TENSOR not in cand.names(prompt):
            continue
        audit: NDArray[Any] = np.asarray(cand.tensor(prompt, TENSOR), np.float64)
        if audit.ndim != 2 or audit.shape[1] != len(columns):  # noqa: PLR2004  steps by states
            return ()
        wrong = ~(audit <= limit)
        steps = np.flatnonzero(wrong.any(axis=1))
        for at in np.flatnonzero(wrong[steps[0]]) if steps.size else ():
            size = float(audit[steps[0], at])
            if not size <= worst.get(columns[at], (-1.0, ""))[0]:
                worst[columns[at]] = size, prompt
    made = [
        _audited(kind, layer, size, prompt, limit=limit)
        for (kind, layer), (size, prompt) in worst.items()
    ]
    modules = tuple(_MODULES.values())
    return tuple(sorted(made, key=lambda place: (place.layer or 0, modules.index(place.module))))


def _audited(kind: str, layer: int, size: float, prompt: str, *, limit: float) -> FoundPlace:
    return FoundPlace(
        mode="decode",
        layer=layer,
        module=_MODULES[kind],
        tensor=f"{TENSOR} {kind}.{layer}",
        prompt=prompt,
        ref=None,
        cand=size if np.isfinite(size) else None,
        expected=limit,
        pattern="the first step whose state after the commit leaves a replay of the committed tokens",
    )
