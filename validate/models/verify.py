"""Verification of drafted blocks: what is accepted, and what ends the step.

Row i of the target's laws is the law of the token after i drafts. Every
verifier here emits tokens that follow the target's law exactly, whatever
proposed the drafts; they differ in how often they accept.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from validate.models.sampler import draw

__all__ = ["Verified", "Verifier", "argmax_law", "runner_up_law", "verify"]


Verifier = Literal["chain", "target_only", "exact_match"]


class Verified(NamedTuple):
    """One verify step of a batch."""

    accepts: Tensor
    """(batch, drafts) bool: each draft's own decision, also behind the first rejection."""
    taken: Tensor
    """(batch,) drafts accepted before the first rejection or the cut."""
    final: Tensor
    """(batch,) the token that ends the step."""


def _of_drafts(laws: Tensor, drafts: Tensor) -> Tensor:
    """Probability (batch, drafts) of each draft under its own row."""
    return laws[:, : drafts.shape[1]].gather(-1, drafts.unsqueeze(-1)).squeeze(-1)


def _leading(accepts: Tensor, limit: Tensor) -> Tensor:
    """Accepted drafts before the first rejection, at most ``limit``."""
    return torch.minimum(accepts.long().cumprod(1).sum(1), limit)


def verify(
    drafts: Tensor,
    q: Tensor,
    p: Tensor,
    *,
    verifier: Verifier,
    coins: Tensor,
    final_coins: Tensor,
    limit: Tensor,
    redraws: Tensor | None = None,
    fault: str | None = None,
) -> Verified:
    """Judge a block of drafts and draw the token that ends the step.

    Args:
        drafts: (batch, drafts) ids.
        q: (batch, drafts, vocab), the laws that the drafts were drawn from.
        p: (batch, drafts + 1, vocab), the target's laws.
        verifier: ``chain`` accepts while u q(x) < p(x) and ends with (p - q)+;
            ``target_only`` accepts while u <= p(x) and ends with p without x;
            ``exact_match`` accepts while x equals the target's own draw and ends with that draw.
        coins: (batch, drafts) uniform numbers that judge drafts.
        final_coins: (batch, drafts + 1) uniform numbers of each row's own draw.
        limit: (batch,) drafts that are verified at most (a cut by confidence).
        redraws: (batch, drafts + 1) uniform numbers of the fault ``SP-07``.
        fault: id of a planted fault.

    Returns:
        ``Verified``.
    """
    batch, width = drafts.shape
    row = torch.arange(batch, device=drafts.device)
    if verifier == "exact_match":
        own = draw(p, final_coins)
        accepts = drafts == own[:, :width]
        count = _leading(accepts, limit)
        if redraws is not None:  # SP-07: a mismatch throws the target's own draw away
            again = draw(p, redraws)
            own = torch.where((count < limit).unsqueeze(1), again, own)
        return Verified(accepts, count, own[row, count])
    at = _of_drafts(p, drafts)
    accepts = coins * _of_drafts(q, drafts) < at if verifier == "chain" else coins <= at
    count = _leading(accepts, limit)
    ended = count
    if fault == "VX-16":  # a full block ends with the row of its last draft
        ended = torch.where(count == limit, (count - 1).clamp(min=0), count)
    law = p[row, ended]
    where = count.clamp(max=width - 1)
    if verifier == "chain":
        left = (law - q[row, where]).clamp(min=0)
    else:
        left = law.scatter(1, drafts[row, where].unsqueeze(1), 0.0)
    if fault == "VX-15":
        left = law
    rejected = count < limit
    weights = torch.where(rejected.unsqueeze(1), left, law)
    return Verified(accepts, count, draw(weights, final_coins[row, count]))


def argmax_law(logits: Tensor) -> Tensor:
    """All mass of (batch, rows, vocab) on each row's largest logit, the lowest id among equals."""
    top = logits == logits.amax(-1, keepdim=True)
    first = top.int().argmax(-1, keepdim=True)
    return torch.zeros_like(logits, dtype=torch.float32).scatter_(-1, first, 1.0)


def runner_up_law(logits: Tensor) -> Tensor:
    """All mass of row i on the (i + 1)-th best of row 0: the top n of one row for the top 1 of n."""
    best = logits[:, 0].topk(logits.shape[1], dim=-1).indices.unsqueeze(-1)
    return torch.zeros_like(logits, dtype=torch.float32).scatter_(-1, best, 1.0)
