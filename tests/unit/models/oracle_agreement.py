"""How far the torch model is from the float64 oracle: one number, over everything both can tell."""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.unit.models.small import ROWS, SMALL, Array
from tests.unit.oracle.tiny import worst_error
from validate import oracle
from validate.models import PathOptions, Trace, model as real_model
from validate.schema import ModelConfig

__all__ = ["disagreement", "disagreement_of_paths"]


def _tensors(trace: Trace, mode: str, row: int, tokens: int) -> dict[str, Array]:
    """What a trace holds of one row in one mode, passes joined."""
    return {
        name: torch.cat(passes, dim=1)[row, :tokens].double().numpy()
        for name, passes in trace.tensors.items()
        if name.startswith(f"{mode}.")
    }


def _oracle_tensors(mode: str, pieces: Sequence[oracle.Forward]) -> dict[str, Array]:
    """The same names from the oracle, pieces joined."""
    found: dict[str, list[Any]] = {}
    for piece in pieces:
        for i, layer in enumerate(piece.layers):
            kind = "kda" if layer.lse is None else "mla"
            found.setdefault(f"{mode}.attn.{i}.in", []).append(layer.attn_in)
            found.setdefault(f"{mode}.{kind}.{i}.out", []).append(layer.out)
            found.setdefault(f"{mode}.hidden.{i}", []).append(layer.hidden)
            if layer.lse is not None:
                found.setdefault(f"{mode}.mla.{i}.lse", []).append(layer.lse)
            if layer.routing is not None:
                at = f"{mode}.router.{i}"
                found.setdefault(f"{at}.scores", []).append(layer.routing.scores)
                found.setdefault(f"{at}.ids", []).append(layer.routing.ids)
                found.setdefault(f"{at}.weights", []).append(layer.routing.weights)
    return {name: np.concatenate(parts).astype(np.float64) for name, parts in found.items()}


def _states(state: Any, row: int, tokens: int) -> dict[str, Array]:
    found = {f"kv.{i}": cache[row, :tokens] for i, cache in state.kv.items()}
    for i, kda in state.kda.items():
        found[f"kda.{i}"], found[f"conv.{i}"] = kda.recurrent[row], kda.conv[row]
    return {name: x.numpy() for name, x in found.items()}


def _oracle_states(state: Sequence[oracle.LayerState]) -> dict[str, Array]:
    found = {}
    for i, layer in enumerate(state):
        for name in ("kda", "conv", "kv"):
            value = getattr(layer, name)
            if value is not None:
                found[f"{name}.{i}"] = value
    return found


def disagreement(
    weights: Mapping[str, Tensor],
    *,
    options: PathOptions,
    config: ModelConfig = SMALL,
    rows: Sequence[Sequence[int]] = ROWS,
    chunk: int = 4,
    model: ModuleType = real_model,
) -> float:
    """Greatest error over the largest value, over all tensors, states and logits of all rows.

    Rows run together: the first half of each as prefill in chunks, the rest
    token by token through the decode form. The oracle runs each alone.

    Args:
        weights: Float64.
        options: The path under test, in float64.
        config: The architecture.
        rows: Token ids, each at least two; ragged.
        chunk: Tokens a prefill pass.
        model: ``validate.models.model`` or a mutated copy of it.
    """
    halves = [len(row) // 2 for row in rows]
    trace = Trace(wants=lambda _: True)
    run = _Loop(model, weights, config, options, trace)
    state = model.empty_state(config, options, batch=len(rows), device="cpu")
    first, state = run(state, [r[:h] for r, h in zip(rows, halves, strict=True)], chunk, False)
    rest, state = run(state, [r[h:] for r, h in zip(rows, halves, strict=True)], 1, True)
    arrays = {name: w.numpy() for name, w in weights.items()}
    errors = []
    for b, (row, half) in enumerate(zip(rows, halves, strict=True)):
        steps = [half, *[1] * (len(row) - half)]
        pieces = oracle.forward_in_pieces(row, arrays, config, lengths=steps)
        logits = np.concatenate([oracle.logits_of(p.final, arrays) for p in pieces])
        ours = _tensors(trace, "prefill", b, half) | _tensors(trace, "decode", b, len(row) - half)
        ours |= _states(state, b, len(row))
        ours["logits"] = torch.cat([first[b, :half], rest[b, : len(row) - half]]).numpy()
        theirs = _oracle_tensors("prefill", pieces[:1]) | _oracle_tensors("decode", pieces[1:])
        theirs |= _oracle_states(pieces[-1].state) | {"logits": logits}
        errors.append(worst_error(ours, theirs))
    return float(np.max(errors))


class _Loop:
    """Forward passes over ragged rows, by a given copy of the model."""

    def __init__(
        self,
        model: ModuleType,
        weights: Mapping[str, Tensor],
        config: ModelConfig,
        options: PathOptions,
        trace: Trace,
    ) -> None:
        self.forward, self.weights = model.forward, weights
        self.fixed: dict[str, Any] = {"config": config, "options": options, "trace": trace}

    def __call__(
        self, state: Any, rows: Sequence[Sequence[int]], chunk: int, decode: bool
    ) -> tuple[Tensor, Any]:
        lengths = torch.tensor([len(r) for r in rows])
        longest = int(lengths.max())
        tokens = torch.tensor([[*r, *[0] * (longest - len(r))] for r in rows])
        made = []
        for start in range(0, longest, chunk):
            part = tokens[:, start : start + chunk]
            logits, state = self.forward(
                self.weights,
                part,
                state=state,
                lengths=(lengths - start).clamp(0, part.shape[1]),
                decode=decode,
                **self.fixed,
            )
            made.append(logits)
        return torch.cat(made, dim=1), state


SHORT_ROWS: tuple[tuple[int, ...], ...] = ((3, 1, 4, 1, 5, 9, 2), (8, 9, 7), (16, 0, 16, 11))
"""Prefill of 3, 1 and 2 tokens in chunks of 2, then four decode steps, two of them of all rows."""


def disagreement_of_paths(weights: Mapping[str, Tensor], model: ModuleType = real_model) -> float:
    """The worse of the reference path and the ROCm path, both with split keys.

    Heads are tiled in prefill and repeated in decode, for zeros forgive more.
    """
    forms: tuple[dict[str, Any], ...] = (
        {"path": "reference", "kda_chunk": 1},
        {"path": "rocm", "prefill_pad": "tile", "decode_pad": "repeat"},
    )
    errors = [
        disagreement(
            weights,
            options=PathOptions(dtype=torch.float64, splits=3, **form),
            rows=SHORT_ROWS,
            chunk=2,
            model=model,
        )
        for form in forms
    ]
    return float(np.max(errors))
