"""State after every commit against a replay of the committed tokens, one at a time."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor as TorchTensor

from validate.capture.format import Tensor
from validate.models.generate import decode_forced
from validate.models.kda import KdaState
from validate.models.model import State
from validate.models.plain import Target
from validate.models.speculate import SpecStep

__all__ = ["Audit", "audit_names"]


def audit_names(state: State) -> tuple[str, ...]:
    """Columns of ``spec.spec-sampled.audit``: latent caches, recurrent states, conv histories."""
    return (
        *(f"kv.{layer}" for layer in sorted(state.kv)),
        *(f"kda.{layer}" for layer in sorted(state.kda)),
        *(f"conv.{layer}" for layer in sorted(state.kda)),
    )


class Audit:
    """Carries a state of its own for some rows of a batch and measures the batch's against it."""

    def __init__(self, target: Target, rows: Sequence[int], *, device: str) -> None:
        self._target, self._rows, self._device = target, list(rows), device
        self._found: list[list[list[float]]] = [[] for _ in rows]
        self._own: State | None = None

    def begin(self, state: State) -> None:
        """Copy the state after the prompts."""
        if self._rows:
            self._own = _taken(state, self._rows)

    def step(self, made: SpecStep, state: State) -> None:
        """Feed what the step committed to the own states and compare them with ``state``."""
        if self._own is None:
            return
        kept = [
            [int(made.anchor[row]), *made.drafts[row, : int(made.count[row])].tolist()]
            if bool(made.live[row])
            else []
            for row in self._rows
        ]
        if not any(kept):
            return
        _, self._own = decode_forced(
            self._target.weights,
            kept,
            self._own,
            config=self._target.config,
            options=self._target.options,
            device=self._device,
        )
        theirs = _taken(state, self._rows)
        for at, tokens in enumerate(kept):
            if tokens:
                self._found[at].append(_apart(self._own, theirs, at, len(tokens)))

    def of(self, at: int) -> Tensor:
        """float32 (steps, states) of the ``at``-th audited row."""
        return Tensor(np.asarray(self._found[at], np.float32), ("steps", "states"))


def _taken(state: State, rows: Sequence[int]) -> State:
    index = torch.tensor(rows, device=state.lengths.device)
    return State(
        lengths=state.lengths[index],
        kv={layer: held[index] for layer, held in state.kv.items()},
        kda={
            layer: KdaState(held.recurrent[index], held.conv[index])
            for layer, held in state.kda.items()
        },
    )


def _apart(own: State, theirs: State, at: int, tokens: int) -> list[float]:
    """Relative L2 of every state of one row; of the latent caches the rows of this commit."""
    end = int(own.lengths[at])
    new = slice(end - tokens, end)
    found = []
    for layer in sorted(own.kv):
        held = theirs.kv[layer][at]
        found.append(_rel_l2(own.kv[layer][at, new], held[new]))
    for name in ("recurrent", "conv"):
        for layer in sorted(own.kda):
            a, b = getattr(own.kda[layer], name)[at], getattr(theirs.kda[layer], name)[at]
            found.append(_rel_l2(a, b))
    return found


def _rel_l2(own: TorchTensor, theirs: TorchTensor) -> float:
    """|theirs - own| / |own|; NaN where rows are missing."""
    if own.shape != theirs.shape:
        return float("nan")
    a, b = own.double(), theirs.double()
    size, apart = float(a.norm()), float((a - b).norm())
    return apart / size if size > 0 else (0.0 if apart == 0 else float("inf"))
