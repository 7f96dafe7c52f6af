"""Captures with full logits turned into captures that store them as top-k."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

SECTIONS = ("logits", "decode.logits")


def topk_parts(
    logits: NDArray[Any], k: int, *, section: str = "logits", row_min: bool = True
) -> dict[str, NDArray[Any]]:
    """The k likeliest ids of each row with all that a top-k capture stores beside them."""
    wide = logits.astype(np.float64)
    ids = np.argsort(-wide, axis=1, kind="stable")[:, :k]
    lse = special.logsumexp(wide, axis=1)
    rest = wide.copy()
    np.put_along_axis(rest, ids, -np.inf, axis=1)
    made = {
        f"{section}.topk.ids": ids.astype(np.int32),
        f"{section}.topk.logits": np.take_along_axis(wide, ids, axis=1),
        f"{section}.lse": lse,
        f"{section}.tail_mass": np.exp(rest - lse[:, None]).sum(axis=1),
    }
    return made | ({f"{section}.row_min": wide.min(axis=1)} if row_min else {})


def as_topk(
    tensors: Mapping[str, Mapping[str, NDArray[Any]]], k: int, *, row_min: bool = True
) -> dict[str, dict[str, NDArray[Any]]]:
    """Every prompt's logits sections as top-k; whatever else a prompt holds stays."""
    made: dict[str, dict[str, NDArray[Any]]] = {}
    for prompt, named in tensors.items():
        held = {name: array for name, array in named.items() if name not in SECTIONS}
        for section in SECTIONS:
            if section in named:
                held |= topk_parts(named[section], k, section=section, row_min=row_min)
        made[prompt] = held
    return made
