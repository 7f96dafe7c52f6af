"""PyTorch verifiers: whole batches at once, in exchangeable steps."""

import torch
from torch import Tensor

from validate.conformance.records import Implementation

__all__ = [
    "IMPLEMENTATIONS",
    "accepted_run",
    "at_drafts",
    "emitted",
    "final_row",
    "invert_last",
    "verify_chain",
    "verify_exact_match",
    "verify_greedy",
    "verify_target_only",
]


def at_drafts(probs: Tensor, draft_ids: Tensor) -> Tensor:
    """Probability of each draft in its row, [batch, drafts] float32."""
    rows = probs[:, : draft_ids.shape[1]]
    return rows.gather(2, draft_ids.unsqueeze(2)).squeeze(2).float()


def accepted_run(accepts: Tensor) -> Tensor:
    """Length of the leading run, [batch] int64."""
    return accepts.long().cumprod(1).sum(1)


def final_row(target_probs: Tensor, accepted: Tensor) -> Tensor:
    """Target row after the accepted drafts, [batch, vocab] float32."""
    at = accepted.view(-1, 1, 1).expand(-1, 1, target_probs.shape[2])
    return target_probs.gather(1, at).squeeze(1).float()


def invert_last(weights: Tensor, uniforms: Tensor) -> Tensor:
    """First id whose cumulative weight exceeds ``u * sum``; the last id of an empty row."""
    through = weights.cumsum(1)
    beyond = through > uniforms.unsqueeze(1) * through[:, -1:]
    return torch.where(beyond.any(1), beyond.int().argmax(1), weights.shape[1] - 1)


def emitted(draft_ids: Tensor, accepted: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """Accepted count and ids: accepted drafts, then ``last``, then -1."""
    batch, drafts = draft_ids.shape
    column = torch.arange(drafts + 1, device=draft_ids.device)
    ids = torch.full((batch, drafts + 1), -1, dtype=torch.int64, device=draft_ids.device)
    ids[:, :drafts] = torch.where(column[:drafts] < accepted.unsqueeze(1), draft_ids.long(), -1)
    ids = torch.where(column == accepted.unsqueeze(1), last.unsqueeze(1), ids)
    return accepted, ids


def verify_chain(
    draft_ids: Tensor,
    draft_probs: Tensor,
    target_probs: Tensor,
    uniforms: Tensor,
    uniform_final: Tensor,
) -> tuple[Tensor, Tensor]:
    """Rejection sampling: ``u q < p``, then the residual, or the bonus row."""
    drafts = draft_ids.shape[1]
    accepts = uniforms * at_drafts(draft_probs, draft_ids) < at_drafts(target_probs, draft_ids)
    accepted = accepted_run(accepts)
    # The row after the last draft has no drafter: q is 0 there and the residual is p.
    padded = torch.cat([draft_probs, torch.zeros_like(target_probs[:, drafts:])], dim=1)
    left = (final_row(target_probs, accepted) - final_row(padded, accepted)).clamp_min(0.0)
    return emitted(draft_ids, accepted, invert_last(left, uniform_final))


def verify_target_only(
    draft_ids: Tensor,
    target_probs: Tensor,
    uniforms: Tensor,
    uniform_final: Tensor,
    threshold_single: float,
    threshold_acc: float,
) -> tuple[Tensor, Tensor]:
    """Target alone: ``u <= p / threshold_acc`` or ``p >= threshold_single``; then p without the draft."""
    p = at_drafts(target_probs, draft_ids)
    accepted = accepted_run((uniforms <= p / threshold_acc) | (p >= threshold_single))
    left = without_rejected(final_row(target_probs, accepted), draft_ids, accepted)
    return emitted(draft_ids, accepted, invert_last(left, uniform_final))


def without_rejected(left: Tensor, draft_ids: Tensor, accepted: Tensor) -> Tensor:
    """The final row with the rejected draft's weight at 0; the bonus row as it is."""
    drafts = draft_ids.shape[1]
    rejected = draft_ids.gather(1, accepted.clamp(max=drafts - 1).unsqueeze(1))
    column = torch.arange(left.shape[1], device=left.device)
    gone = (column == rejected) & (accepted < drafts).unsqueeze(1)
    return torch.where(gone, 0.0, left)


def verify_exact_match(
    draft_ids: Tensor, target_probs: Tensor, uniforms: Tensor
) -> tuple[Tensor, Tensor]:
    """The target draws in every row; drafts count while equal, the draw that differs is emitted."""
    batch, rows, vocab = target_probs.shape
    own = invert_last(target_probs.float().reshape(-1, vocab), uniforms.reshape(-1))
    own = own.view(batch, rows)
    accepted = accepted_run(draft_ids == own[:, :-1])
    return emitted(draft_ids, accepted, own.gather(1, accepted.unsqueeze(1)).squeeze(1))


def verify_greedy(
    draft_ids: Tensor, target_logits: Tensor, vocab: int, draft_len: Tensor
) -> tuple[Tensor, Tensor]:
    """Drafts count while they are their row's argmax and within ``draft_len``."""
    best = target_logits[:, :, :vocab].argmax(2)
    column = torch.arange(draft_ids.shape[1], device=draft_ids.device)
    accepted = accepted_run((draft_ids == best[:, :-1]) & (column < draft_len.unsqueeze(1)))
    return emitted(draft_ids, accepted, best.gather(1, accepted.unsqueeze(1)).squeeze(1))


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    Implementation(
        name="torch:batched",
        op="verify_chain",
        function=verify_chain,
        title="PyTorch, gather, cumulative product, residual and inversion",
    ),
    Implementation(
        name="torch:batched",
        op="verify_target_only",
        function=verify_target_only,
        title="PyTorch, gather and cumulative product, p without the rejected draft",
        emulates="sglang tree_speculative_sampling_target_only on a chain",
    ),
    Implementation(
        name="torch:batched",
        op="verify_exact_match",
        function=verify_exact_match,
        title="PyTorch, the target's own draws decide and are emitted",
    ),
    Implementation(
        name="torch:batched",
        op="verify_greedy",
        function=verify_greedy,
        title="PyTorch, argmax of each row",
    ),
)
