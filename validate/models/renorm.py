"""Top-k and top-p of probability rows, each followed by the division, in the two forms engines run.

``all`` searches a threshold and keeps every entry at or above it, ties included, as the CUDA
kernels of flashinfer do. ``exactly_k`` picks with ``torch.topk`` and a sort and scatters back,
as the PyTorch code that stands in for them on ROCm: no more entries than asked for are kept.
Both hold p against the mass that they are handed, so the order top-k, division, top-p matters.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

__all__ = ["RENORM_FAULTS", "RULES", "TieRule", "renorm", "top_k_renorm_prob", "top_p_renorm_prob"]

TieRule = Literal["all", "exactly_k"]
RULES: tuple[TieRule, ...] = ("all", "exactly_k")
RENORM_FAULTS = ("SA-04", "SA-05")
"""Faults with a switch here; described in ``validate.faults``."""

_LEAST = 1e-8
"""Least divisor of the kernels of flashinfer."""
_SCRATCH = 50
"""Scratch entries a row that aiter falls back to when the scalar k is 0."""


def renorm(
    probs: Tensor, top_k: Tensor, top_p: Tensor, *, rule: TieRule, fault: str | None = None
) -> Tensor:
    """Top-k, division by the kept sum, top-p, division again.

    Args:
        probs: float32 [rows, vocab], each row summing to 1; not written.
        top_k: int32 [rows]; below 1 counts as 1, from vocab on the whole row is kept.
        top_p: float32 [rows]; at or below 0 only the largest is kept, from 1 on all.
        rule: What becomes of entries that tie with the last one kept.
        fault: ``SA-04`` or ``SA-05`` (both in ``exactly_k``), else None.

    Returns:
        float32 [rows, vocab]; a row of zeros stays one.
    """
    within = top_k_renorm_prob(probs, top_k, rule=rule, fault=fault)
    if fault == "SA-05":  # p meets the mass before the division
        within = torch.where(within > 0, probs, 0.0)
    return top_p_renorm_prob(within, top_p, rule=rule)


def top_k_renorm_prob(
    probs: Tensor, top_k: Tensor, *, rule: TieRule, fault: str | None = None
) -> Tensor:
    """Keep the k largest of each row and divide them by their sum; arguments as in ``renorm``."""
    k = top_k.to(torch.int64).clamp(1, probs.shape[1]).unsqueeze(1)
    if rule == "all":
        kept = _at_least(probs, lambda mask: mask.sum(1, keepdim=True) >= k)
        return _divide(torch.where(kept, probs, 0.0))
    widest = int(k.max()) if len(k) else 0
    _, ids = torch.topk(probs, widest, dim=1)
    if fault == "SA-04":
        ids = _through_scratch(ids, k)
    counted = torch.arange(widest, device=probs.device) < k
    return _divide(_scatter(probs, ids, counted))


def top_p_renorm_prob(probs: Tensor, top_p: Tensor, *, rule: TieRule) -> Tensor:
    """Keep the fewest largest whose mass reaches p and divide them; arguments as in ``renorm``."""
    p = top_p.to(probs.dtype).unsqueeze(1)
    if rule == "all":

        def enough(mask: Tensor) -> Tensor:
            mass = torch.where(mask, probs, 0.0).sum(1, keepdim=True)
            some = mask.any(1, keepdim=True) & (mass >= p)
            return torch.where(p < 1, some, mask.all(1, keepdim=True))

        return _divide(torch.where(_at_least(probs, enough), probs, 0.0))
    values, ids = probs.sort(dim=1, descending=True, stable=True)
    before = torch.zeros_like(values)
    before[:, 1:] = values.cumsum(1)[:, :-1]
    counted = (before < p) | (p >= 1)
    counted[:, :1] = True
    return _divide(_scatter(probs, ids, counted))


def _at_least(probs: Tensor, enough: Callable[[Tensor], Tensor]) -> Tensor:
    """Entries at or above the largest threshold that keeps enough; all where none does.

    Positive float32 numbers are ordered as their bits are, so the threshold is found bit by
    bit, without a sort.
    """
    bits = probs.contiguous().view(torch.int32)
    found = torch.zeros_like(bits[:, :1])
    for bit in range(30, -1, -1):
        trial = found | (1 << bit)
        found = torch.where(enough(bits >= trial), trial, found)
    return bits >= found


def _scatter(probs: Tensor, ids: Tensor, counted: Tensor) -> Tensor:
    """The counted entries at their places, zeros elsewhere."""
    values = torch.where(counted, probs.gather(1, ids), 0.0)
    return torch.zeros_like(probs).scatter_reduce(1, ids, values, "amax")


def _divide(kept: Tensor) -> Tensor:
    return kept / kept.sum(1, keepdim=True).clamp_min(_LEAST)


def _through_scratch(ids: Tensor, k: Tensor) -> Tensor:
    """Every row's choice through one scratch of 50 entries a row, whatever its own k.

    A row with more writes over the rows after it; it takes longest and finishes last.
    """
    widest = ids.shape[1]
    scratch = ids.new_zeros(len(ids) * _SCRATCH + widest)
    for row in torch.argsort(k.squeeze(1), stable=True).tolist():
        count = int(k[row])
        scratch[row * _SCRATCH : row * _SCRATCH + count] = ids[row, :count]
    return torch.stack([scratch[row * _SCRATCH :][:widest] for row in range(len(ids))])
