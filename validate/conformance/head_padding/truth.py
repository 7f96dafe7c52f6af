"""Attention in float64, obvious and slow: all scores, one softmax, one product, a head at a time.

Shares no function with the kernels that it judges. Checked against ``validate.oracle`` on
small shapes by the unit tests, and against NumPy on a slice of every run.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

__all__ = ["Truth", "numpy_truth", "rows_truth"]

BLOCK = 1 << 15
"""Keys widened to float64 at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Attention of some query rows, float64."""

    out: Tensor
    """[rows, heads, value]."""
    lse: Tensor
    """[rows, heads], natural log."""


def rows_truth(q: Tensor, k: Tensor, v: Tensor, *, visible: Tensor, scale: float) -> Truth:
    """Attention of the given rows, each over its first ``visible`` keys.

    Args:
        q: [rows, heads, qk]; any float format.
        k: [keys, heads, qk], or [keys, 1, qk] shared by all heads.
        v: [keys, heads or 1, value].
        visible: [rows], at least 1.
        scale: Softmax scale.
    """
    outs, lses = [], []
    for head in range(q.shape[1]):
        at = min(head, k.shape[1] - 1)
        out, lse = _head(q[:, head], k[:, at], v[:, at], visible, scale)
        outs.append(out)
        lses.append(lse)
    return Truth(out=torch.stack(outs, dim=1), lse=torch.stack(lses, dim=1))


def _head(q: Tensor, k: Tensor, v: Tensor, visible: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    wide = q.double()
    scores = torch.cat([wide @ block.double().T for block in k.split(BLOCK)], dim=1) * scale
    hidden = torch.arange(len(k), device=q.device) >= visible.unsqueeze(1)
    scores[hidden] = -torch.inf
    top = scores.max(dim=1, keepdim=True).values
    weights = torch.exp(scores - top)
    total = weights.sum(dim=1, keepdim=True)
    out = torch.zeros(len(q), v.shape[1], dtype=torch.float64, device=q.device)
    for start, block in zip(range(0, len(v), BLOCK), v.split(BLOCK), strict=True):
        out += weights[:, start : start + len(block)] @ block.double()
    return out / total, (top + torch.log(total)).squeeze(1)


def numpy_truth(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, *, visible: np.ndarray, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """The same in NumPy, one row and head at a time; float64 inputs of the same shapes."""
    rows, heads = q.shape[:2]
    out = np.zeros((rows, heads, v.shape[2]))
    lse = np.zeros((rows, heads))
    for row in range(rows):
        for head in range(heads):
            at = min(head, k.shape[1] - 1)
            scores = scale * (k[: visible[row], at] @ q[row, head])
            lse[row, head] = np.logaddexp.reduce(scores)
            out[row, head] = np.exp(scores - lse[row, head]) @ v[: visible[row], at]
    return out, lse
