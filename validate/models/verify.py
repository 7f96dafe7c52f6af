"""Verification of drafted blocks: what is accepted, and what ends the step.

Row i of the target's laws is the law of the token after i drafts. Every
verifier here emits tokens that follow the target's law exactly, whatever
proposed the drafts; they differ in how often they accept.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from validate.models.sampler import draw

__all__ = ["Verified", "Verifier", "verify"]

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

    Returns:
        ``Verified``.
    """
    batch, width = drafts.shape
    row = torch.arange(batch, device=drafts.device)
    if verifier == "exact_match":
        own = draw(p, final_coins)
        accepts = drafts == own[:, :width]
        count = _leading(accepts, limit)
        return Verified(accepts, count, own[row, count])
    at = _of_drafts(p, drafts)
    accepts = coins * _of_drafts(q, drafts) < at if verifier == "chain" else coins <= at
    count = _leading(accepts, limit)
    law = p[row, count]
    where = count.clamp(max=width - 1)
    if verifier == "chain":
        left = (law - q[row, where]).clamp(min=0)
    else:
        left = law.scatter(1, drafts[row, where].unsqueeze(1), 0.0)
    rejected = count < limit
    weights = torch.where(rejected.unsqueeze(1), left, law)
    return Verified(accepts, count, draw(weights, final_coins[row, count]))
