"""What a gate on drawn streams says of itself: kind of stream, draft, depth, stratum; states by layer."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validate.schema.explained import FoundPlace, Rung
from validate.schema.model_config import ModelConfig
from validate.schema.pair import Side
from validate.schema.report import GateReport
from validate.schema.streams import DRAWN_KINDS

__all__ = ["AUDIT", "audit_places", "stream_rungs"]

AUDIT = "speculative.audit"
TENSOR = "spec.spec-sampled.audit"
_MODULES = {"kv": "KV", "kda": "KDA", "conv": "conv"}
_DRAFT = re.compile(r"\bdraft (\d+)\b")
_STRATA = ("row", "depth", "parameters", "entropy")
_OUTCOMES = ("accepted", "resampled", "bonus", "impossible decisions")


def stream_rungs(gate: GateReport) -> Iterator[Rung]:
    """From the gate's worst test down: kind, draft, outcome, stratum, and the numbers beside it.

    Args:
        gate: A gate of the area ``speculative``, which was measured.
    """
    found = gate.measurement
    worst = None if found is None else found.worst
    if found is None:
        return
    place = (worst.place if worst is not None else None) or ""
    kind = next((k for k in sorted(DRAWN_KINDS, key=len, reverse=True) if k in place), None)
    if kind is not None:
        yield Rung(level="stream", text=kind)
    rest = [part.strip() for part in place.split(",")]
    draft = _DRAFT.search(place)
    if draft is not None:
        yield Rung(level="draft index", text=f"{draft.group(1)} (from 1)")
    for outcome in _OUTCOMES:
        if outcome in rest:
            yield Rung(level="outcome", text=outcome)
    for part in rest:
        name = part.partition(" ")[0]
        if name in _STRATA:
            yield Rung(level="stratum", text=part)
    if place:
        detail = "" if worst is None or worst.detail is None else f"; {worst.detail}"
        yield Rung(level="test", text=f"{place}{detail}")
    if found.pattern is not None:
        yield Rung(level="finding", text=found.pattern)
    yield from _beside(kind, found.breakdown)


def _beside(kind: str | None, breakdown: Mapping[str, float | None]) -> Iterator[Rung]:
    """Companions of the same kind that tell of cand, a few."""
    told = [
        f"{name} {value:.4g}"
        for name, value in breakdown.items()
        if value is not None and kind is not None and kind in name and not name.startswith("ref.")
    ]
    if told:
        yield Rung(level="beside", text=", ".join(told[:8]))


def audit_places(
    cand: Side, prompts: Sequence[str], *, config: ModelConfig | None, limit: float
) -> tuple[FoundPlace, ...]:
    """The states that leave their replay by more than the limit, by layer.

    Args:
        cand: With audits.
        prompts: Those that count.
        config: Says which layers keep which state; None: nothing can be named.
        limit: The gate's.
    """
    if config is None:
        return ()
    mla = sorted(config.mla_layers)
    kda = [layer for layer in range(config.layers) if layer not in config.mla_layers]
    columns = [("kv", layer) for layer in mla]
    columns += [(kind, layer) for kind in ("kda", "conv") for layer in kda]
    worst: list[tuple[float, str, int]] = [(0.0, "", 0)] * len(columns)
    for prompt in prompts:
        if TENSOR not in cand.names(prompt):
            continue
        audit: NDArray[Any] = np.asarray(cand.tensor(prompt, TENSOR), np.float64)
        if audit.ndim != 2 or audit.shape[1] != len(columns):  # noqa: PLR2004  steps by states
            return ()
        for at in range(len(columns)):
            step = int(np.argmax(np.where(np.isnan(audit[:, at]), np.inf, audit[:, at])))
            size = float(audit[step, at])
            if not size <= worst[at][0]:
                worst[at] = size, prompt, step
    made = [
        _audited(kind, layer, size, prompt, limit=limit)
        for (kind, layer), (size, prompt, _) in zip(columns, worst, strict=True)
        if not size <= limit
    ]
    return tuple(sorted(made, key=lambda place: (place.layer or 0, place.module)))


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
        pattern="state after a commit, against a replay of the committed tokens",
    )
