"""Small captures of attention tensors: shapes by hand, values given or drawn from a seed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validate.schema import Levels

LEVELS = Levels(low=0.99, high=0.95)

Tensors = dict[str, NDArray[Any]]


def prefill(outputs: Mapping[str, Any], *, positions: Sequence[int] | None = None) -> Tensors:
    """Tensors of a prefill pass: ``{"kda.0.out": [[[1.0]]]}`` and their positions."""
    made = {f"prefill.{name}": np.asarray(value, np.float32) for name, value in outputs.items()}
    rows = len(next(iter(made.values())))
    at = list(range(rows)) if positions is None else list(positions)
    return {**made, "prefill.positions": np.array(at, np.int32)}


def decode(outputs: Mapping[str, Any], *, start: int) -> Tensors:
    """Tensors of a decode pass whose first row is position ``start``."""
    made = {f"decode.{name}": np.asarray(value, np.float32) for name, value in outputs.items()}
    rows = len(next(iter(made.values())))
    return {**made, "decode.positions": np.arange(start, start + rows, dtype=np.int32)}


def router(scores: Any, ids: Any, weights: Any | None = None, *, layer: int = 1) -> Tensors:
    """Router tensors of one layer; equal weights unless given."""
    chosen = np.asarray(ids, np.int32)
    given = np.full(chosen.shape, 1 / chosen.shape[1]) if weights is None else weights
    return {
        f"prefill.router.{layer}.scores": np.asarray(scores, np.float32),
        f"prefill.router.{layer}.ids": chosen,
        f"prefill.router.{layer}.weights": np.asarray(given, np.float32),
    }


def drawn(
    *,
    seed: int,
    tokens: int = 8,
    layers: Sequence[str] = ("kda.0", "mla.1"),
    heads: int = 4,
    value: int = 8,
    hidden: int = 16,
) -> Tensors:
    """A whole prompt's attention tensors, float32, drawn from a normal distribution."""
    rng = np.random.default_rng(seed)
    first = tokens // 2
    made: Tensors = {}
    for mode, rows, start in (("prefill", tokens, 0), ("decode", tokens - first, first)):
        made[f"{mode}.positions"] = np.arange(start, start + rows, dtype=np.int32)
        for name in layers:
            layer = name.partition(".")[2]
            made[f"{mode}.attn.{layer}.in"] = rng.normal(size=(rows, hidden)).astype(np.float32)
            made[f"{mode}.{name}.out"] = rng.normal(size=(rows, heads, value)).astype(np.float32)
            if name.startswith("mla"):
                made[f"{mode}.{name}.lse"] = rng.normal(size=(rows, heads)).astype(np.float32)
            made[f"{mode}.hidden.{layer}"] = rng.normal(size=(rows, hidden)).astype(np.float32)
    return made


def changed(tensors: Mapping[str, NDArray[Any]], **changes: Any) -> Tensors:
    """A copy in which ``changes`` (names with ``__`` for dots) replace or transform tensors."""
    made = {name: array.copy() for name, array in tensors.items()}
    for key, change in changes.items():
        name = key.replace("__", ".")
        made[name] = change(made[name].copy()) if callable(change) else change
    return made
