"""A 12-head model small enough for every test, its weights in float64, and runs of it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.unit.oracle.tiny import TINY, random_weights
from validate.models import PathOptions, State, Trace, decode_forced, prefill
from validate.schema import ModelConfig

SMALL: ModelConfig = TINY.model_copy(update={"name": "small", "heads": 12})
"""``TINY`` (KDA at 0, 2, 3; MLA at 1, 4; residual blocks of 2) with the heads of one K3 rank of eight."""

F64 = PathOptions(dtype=torch.float64)
F32 = PathOptions(dtype=torch.float32)
BF16 = PathOptions(dtype=torch.bfloat16)
ROWS: tuple[tuple[int, ...], ...] = (
    (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5),
    (8, 9, 7),
    (16, 0, 16, 16, 2, 11, 18),
)
"""Ragged on purpose; the first is longer than a chunk of 4, the second ends inside the first."""

CPU = "cpu"
Array = NDArray[Any]
Weights = dict[str, Tensor]


def small_weights(config: ModelConfig = SMALL, *, seed: int = 5) -> Weights:
    """The oracle's random weights (every term counts) as float64 tensors."""
    return {n: torch.from_numpy(w) for n, w in random_weights(config, seed).items()}


WEIGHTS = small_weights()


def rocm(**switches: Any) -> PathOptions:
    """The ROCm path in float64."""
    return PathOptions(**{"path": "rocm", "dtype": torch.float64, **switches})


def run_prefill(
    rows: Sequence[Sequence[int]],
    options: PathOptions = F64,
    *,
    chunk: int = 0,
    weights: Mapping[str, Tensor] | None = None,
    config: ModelConfig = SMALL,
    **more: Any,
) -> tuple[Tensor, State]:
    """``prefill`` of the small model."""
    return prefill(
        WEIGHTS if weights is None else weights,
        rows,
        config=config,
        options=options,
        device=CPU,
        chunk=chunk,
        **more,
    )


def run_decode(
    rows: Sequence[Sequence[int]],
    state: State,
    options: PathOptions = F64,
    *,
    weights: Mapping[str, Tensor] | None = None,
    config: ModelConfig = SMALL,
    **more: Any,
) -> tuple[Tensor, State]:
    """``decode_forced`` of the small model."""
    return decode_forced(
        WEIGHTS if weights is None else weights,
        rows,
        state,
        config=config,
        options=options,
        device=CPU,
        **more,
    )


def whole_trace() -> Trace:
    """A trace that keeps every tensor."""
    return Trace(wants=lambda _: True)


def real(x: Tensor, rows: Sequence[Sequence[int]]) -> Array:
    """The rows of real tokens, (all tokens, ...): what padding rows hold never counts."""
    return np.concatenate([x[b, : len(row)].numpy() for b, row in enumerate(rows)])


def state_arrays(state: State, row: int, tokens: int) -> dict[str, Array]:
    """Every state of one row by name; of the cache the rows of its own tokens."""
    found = {f"kv.{layer}": kv[row, :tokens] for layer, kv in state.kv.items()}
    for layer, kda in state.kda.items():
        found[f"kda.{layer}"], found[f"conv.{layer}"] = kda.recurrent[row], kda.conv[row]
    return {name: x.numpy() for name, x in found.items()}
