"""State after every commit against a replay of the committed tokens, one at a time."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor as TorchTensor

from validate.capture.format import Tensor
from validate.models.generate import decode_forced
from validate.models.model import State, take_rows
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
            self._own = take_rows(state, torch.tensor(self._rows, device=state.lengths.device))

    def step(self, made: SpecStep, state: State) -> None:
        """Feed what the step committed to the own states and compare them with ``state``."""
        if self._own is None:
            return
        at = {row: place for place, row in enumerate(made.rows.tolist())}
        kept = [
            [int(made.anchor[at[row]]), *made.drafts[at[row], : int(made.count[at[row]])].tolist()]
            if row in at and bool(made.live[at[row]])
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
        for own, (row, tokens) in enumerate(zip(self._rows, kept, strict=True)):
            if tokens:
                self._found[own].append(_apart((self._own, own), (state, at[row]), len(tokens)))

    def of(self, at: int) -> Tensor:
        """float32 (steps, states) of the ``at``-th audited row."""
        return Tensor(np.asarray(self._found[at], np.float32), ("steps", "states"))


def _apart(mine: tuple[State, int], theirs: tuple[State, int], tokens: int) -> list[float]:
    """Relative L2 of every state of one row; of the latent caches the rows of this commit."""
    (own, row), (other, there) = mine, theirs
    end = int(own.lengths[row])
    new = slice(end - tokens, end)
    found = []
    for layer in sorted(own.kv):
        found.append(_rel_l2(own.kv[layer][row, new], other.kv[layer][there, new]))
    for name in ("recurrent", "conv"):
        for layer in sorted(own.kda):
            a, b = getattr(own.kda[layer], name)[row], getattr(other.kda[layer], name)[there]
            found.append(_rel_l2(a, b))
    return found


def _rel_l2(own: TorchTensor, theirs: TorchTensor) -> float:
    """|theirs - own| / |own|; NaN where rows are missing."""
    if own.shape != theirs.shape:
        return float("nan")
    a, b = own.double(), theirs.double()
    size, apart = float(a.norm()), float((a - b).norm())
    return apart / size if size > 0 else (0.0 if apart == 0 else float("inf"))
