"""From logits to the law that a request asked for, and draws from it, for batches of mixed requests.

Order: temperature, softmax, top-k, top-p, min-p; each filter divides what it
keeps. Two builds: ``dense`` filters whole rows by threshold and keeps ties,
``sparse`` takes ``torch.topk`` of the widest request first and keeps exactly k.
Every request's numbers come from a hash of its own seed, the token's position
and what the number is for, so no batchmate and no step order can move them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from validate.models.renorm import top_k_renorm_prob, top_p_renorm_prob
from validate.numerics.keyed import keyed_uniform
from validate.schema import SamplingParams

__all__ = [
    "ACCEPT",
    "DRAFT",
    "FINAL",
    "REDRAW",
    "Build",
    "Requests",
    "draw",
    "requested_law",
    "target_law",
    "token_logprobs",
    "uniforms",
]

Build = Literal["dense", "sparse"]
LEFT_OVER = 0.3
"""Share of set bits in the mask that ``VX-40`` reads."""
DRAFT, ACCEPT, FINAL, REDRAW = 0, 1, 2, 3
"""What a number is for: drawing a draft, judging it, drawing the token that ends a step, and
drawing it once more (a planted fault alone)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Parameters of a batch as tensors, (batch,) each."""

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    seeds: np.ndarray
    """int64; -1 for a greedy request."""
    fault: str | None = None
    """Id of a planted fault."""
    shared: np.random.Generator | None = None
    """The one generator that ``SA-13`` draws the whole batch from."""
    left_over: np.random.Generator | None = None
    """What ``VX-40`` reads as the mask of greedy requests: another batch's bits."""

    @classmethod
    def of(
        cls,
        params: Sequence[SamplingParams],
        *,
        device: str | torch.device,
        fault: str | None = None,
    ) -> "Requests":
        """The batch of ``params``, in order."""
        seeds = np.array([-1 if p.seed is None else p.seed for p in params], np.int64)
        lacking = fault == "SA-13" and bool(np.any(seeds < 0))
        if fault == "VX-20":  # the batch's first seed serves every request
            seeds = np.where(seeds < 0, seeds, next((s for s in seeds if s >= 0), -1))
        return cls(
            temperature=torch.tensor([p.temperature for p in params], device=device),
            top_k=torch.tensor([p.top_k for p in params], device=device),
            top_p=torch.tensor([p.top_p for p in params], device=device),
            min_p=torch.tensor([p.min_p for p in params], device=device),
            seeds=seeds,
            fault=fault,
            shared=np.random.default_rng(0) if lacking else None,
            left_over=np.random.default_rng(int(seeds.max()) + 1) if fault == "VX-40" else None,
        )

    def take(self, rows: Tensor) -> "Requests":
        """Some of the requests, in the order of ``rows``."""
        return Requests(
            temperature=self.temperature[rows],
            top_k=self.top_k[rows],
            top_p=self.top_p[rows],
            min_p=self.min_p[rows],
            seeds=self.seeds[rows.cpu().numpy()],
            fault=self.fault,
            shared=self.shared,
            left_over=self.left_over,
        )

    @property
    def greedy(self) -> Tensor:
        """(batch,) bool."""
        return self.temperature == 0


def _per_row(values: Tensor, rows: int) -> Tensor:
    return values.repeat_interleave(rows)


def _one_hot(logits: Tensor) -> Tensor:
    """All mass on the largest logit, the lowest id among equals."""
    top = logits.amax(-1, keepdim=True)
    first = (logits == top).int().argmax(-1, keepdim=True)
    return torch.zeros_like(logits).scatter_(-1, first, 1.0)


def _min_p(probs: Tensor, least: Tensor) -> Tensor:
    """Threshold and values from one row; ``least`` (rows,)."""
    limit = least.unsqueeze(1) * probs.amax(-1, keepdim=True)
    kept = torch.where(probs >= limit, probs, 0.0)
    return kept / kept.sum(-1, keepdim=True)


def _filtered(
    probs: Tensor, k: Tensor, filters: tuple[Tensor, Tensor], build: Build, fault: str | None
) -> Tensor:
    """Top-k, top-p and min-p of (rows, vocab) probabilities."""
    top_p, min_p = filters
    dense = (build == "dense") != (fault == "VX-14")  # VX-14: the other build's rule of ties
    narrow, cut, floor = (x.unsqueeze(1) for x in (k < probs.shape[1], top_p < 1, min_p > 0))
    # A row that asks for no filter keeps its bits, whatever its neighbours ask for.
    if bool(narrow.any()):
        kept = _top_k(probs, k, dense=dense)
        if fault == "SA-05":  # p meets the mass before the division
            kept = torch.where(cut, torch.where(kept > 0, probs, 0.0), kept)
        probs = torch.where(narrow, kept, probs)
    if bool(cut.any()):
        probs = torch.where(cut, _top_p(probs, top_p, dense=dense), probs)
    return torch.where(floor, _min_p(probs, min_p), probs) if bool(floor.any()) else probs


def _top_k(probs: Tensor, k: Tensor, *, dense: bool) -> Tensor:
    """The k largest of each row, divided; ties with the k-th stay, or the lowest ids of them."""
    if dense:
        return top_k_renorm_prob(probs, k.to(torch.int32), rule="all")
    _, order = probs.sort(dim=-1, descending=True, stable=True)
    counted = torch.arange(probs.shape[1], device=probs.device) < k.unsqueeze(1)
    kept = torch.zeros_like(probs).scatter(1, order, torch.where(counted, 1.0, 0.0)) * probs
    return kept / kept.sum(-1, keepdim=True)


def _top_p(probs: Tensor, top_p: Tensor, *, dense: bool) -> Tensor:
    """The fewest largest of each row whose mass reaches p, divided; ties as in top-k."""
    return top_p_renorm_prob(probs, top_p, rule="all" if dense else "exactly_k")


def requested_law(logits: Tensor, requests: Requests, *, build: Build) -> Tensor:
    """The law of each row under its request's parameters.

    Args:
        logits: (batch, rows, vocab), any float dtype.
        requests: parameters of the batch.
        build: ``dense`` keeps ties at the k-th value, ``sparse`` exactly k.

    Returns:
        float32 (batch, rows, vocab); a greedy request's row has all mass on the argmax.
    """
    batch, rows, vocab = logits.shape
    wide = logits.float().flatten(0, 1)
    fault = requests.fault
    t = _per_row(requests.temperature, rows).unsqueeze(1)
    scale = torch.where(t == 0, 1.0, t)
    if fault == "VX-10":
        scale = torch.ones_like(scale)
    elif fault == "VX-11":
        scale = scale * scale
    probs = torch.softmax(wide / scale, dim=-1)
    off = (requests.top_k == 0) | (fault == "VX-12")
    k = _per_row(torch.where(off, vocab, requests.top_k), rows)
    top_p = torch.ones_like(requests.top_p) if fault == "VX-13" else requests.top_p
    filters = (_per_row(top_p, rows), _per_row(requests.min_p, rows))
    law = torch.where(t == 0, _one_hot(wide), _filtered(probs, k, filters, build, fault))
    return law.view(batch, rows, vocab)


def target_law(logits: Tensor, requests: Requests, *, build: Build) -> Tensor:
    """The law that the target's tokens are drawn from or verified against.

    Args and returns as for ``requested_law``, which it is, unless a fault is planted.
    """
    law = requested_law(logits, requests, build=build)
    if requests.left_over is None:
        return law
    mask = torch.from_numpy(requests.left_over.random(law.shape[:2]) < LEFT_OVER).to(law.device)
    return torch.where(mask.unsqueeze(-1), _one_hot(logits.float()), law)


def uniforms(requests: Requests, positions: Tensor, purpose: int) -> Tensor:
    """Numbers in (0, 1), float64, for each request at ``positions`` (batch, n)."""
    places = positions.cpu().numpy()
    if requests.shared is not None:
        return torch.from_numpy(requests.shared.random(places.shape)).to(positions.device)
    if requests.fault == "VX-19":  # the counter starts anew at every step
        places = places - places[:, :1]
    made = keyed_uniform(0, requests.seeds[:, None], places, np.int64(purpose))
    return torch.from_numpy(made).to(positions.device)


def draw(weights: Tensor, u: Tensor) -> Tensor:
    """First id whose running sum of ``weights`` exceeds ``u`` times the whole; (...,) ids.

    Args:
        weights: (..., vocab), not negative; need not sum to 1. An empty row gives the last id.
        u: (...,) in [0, 1).
    """
    running = weights.double().cumsum(-1)
    past = running > u.unsqueeze(-1) * running[..., -1:]
    last = weights.shape[-1] - 1
    return torch.where(past.any(-1), past.int().argmax(-1), last)


def token_logprobs(rows: Tensor, ids: Tensor, *, fault: str | None = None) -> Tensor:
    """Natural log-softmax of the raw rows (..., vocab) at ``ids`` (...,); float32."""
    if fault == "SP-11":  # a verified token counts as certain
        return torch.zeros(ids.shape, device=ids.device)
    wide = torch.log_softmax(rows.float(), dim=-1)
    return wide.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
