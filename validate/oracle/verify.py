"""Verification of a block of drafted tokens: which are accepted, and what is emitted after them.

Every function takes the coins from outside, so that it is a plain function and any kernel
can be held against it. Shapes: ``batch`` requests, ``drafts`` drafted ids a request,
``rows = drafts + 1`` rows of the target, row i being the law of the token after i drafts.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int
from numpy.typing import NDArray

from validate.oracle.records import Array
from validate.oracle.sampling import draw

__all__ = [
    "Verified",
    "residual",
    "verify_chain",
    "verify_exact_match",
    "verify_greedy",
    "verify_target_only",
]

Ids = NDArray[np.integer]


class Verified(NamedTuple):
    """What one verify step commits."""

    accepted: NDArray[np.int64]
    """How many drafts of each request were accepted, [batch]."""
    ids: NDArray[np.int64]
    """Accepted drafts, then one id more, then -1; [batch, rows]."""


def residual(target: Float64[Array, " vocab"], draft: Float64[Array, " vocab"]) -> Array:
    """``(p - q)+``: what the target has beyond the drafter; not divided by its sum."""
    return np.maximum(target - draft, 0.0)


def verify_chain(
    draft_ids: Int[Ids, "batch drafts"],
    draft_probs: Float64[Array, "batch drafts vocab"],
    target_probs: Float64[Array, "batch rows vocab"],
    *,
    uniforms: Float64[Array, "batch drafts"],
    uniform_final: Float64[Array, " batch"],
) -> Verified:
    """Rejection sampling along a chain: accept while ``u q(x) < p(x)``, then the residual.

    On the first rejection, in row i, one id is drawn from ``(p_i - q_i)+``; when all are
    accepted, one from the last row. The emitted token of each row then follows p exactly.

    Args:
        draft_ids: Drafted ids, drawn from ``draft_probs``.
        draft_probs: q of each draft.
        target_probs: p of each row, one row more than drafts.
        uniforms: A coin a draft, in [0, 1).
        uniform_final: The coin of the id that is drawn at the end.

    Returns:
        ``Verified``; an empty residual gives the last id.

    Source:
        Leviathan et al. (arXiv 2211.17192), algorithm 1; sglang ``reject_sampling.py``
        (strict, last id); flashinfer ``ChainSpeculativeSampling``.

    Example:
        q is all on id 0, p even: u = 0.4 accepts, u = 0.5 does not, and the residual has id 1.

        >>> q, p = np.array([[[1.0, 0.0]]]), np.full((1, 2, 2), 0.5)
        >>> for u in (0.4, 0.5):
        ...     coins = {"uniforms": np.array([[u]]), "uniform_final": np.array([0.9])}
        ...     print(verify_chain(np.array([[0]]), q, p, **coins).ids.tolist())
        [[0, 1]]
        [[1, -1]]
    """
    batch, drafts = draft_ids.shape
    accepted = np.zeros(batch, np.int64)
    left = np.empty((batch, target_probs.shape[2]))
    for b in range(batch):
        row = 0
        while row < drafts:
            x = draft_ids[b, row]
            if not uniforms[b, row] * draft_probs[b, row, x] < target_probs[b, row, x]:
                break
            row += 1
        accepted[b] = row
        left[b] = target_probs[b, row]
        if row < drafts:
            left[b] = residual(target_probs[b, row], draft_probs[b, row])
    return _emitted(draft_ids, accepted, draw(left, uniform_final))


def verify_target_only(
    draft_ids: Int[Ids, "batch drafts"],
    target_probs: Float64[Array, "batch rows vocab"],
    *,
    uniforms: Float64[Array, "batch drafts"],
    uniform_final: Float64[Array, " batch"],
    threshold_single: float = 1.0,
    threshold_acc: float = 1.0,
) -> Verified:
    """Verification without draft probabilities: accept while ``u <= p(x) / threshold_acc``.

    A draft with ``p(x) >= threshold_single`` is accepted whatever the coin says. On the
    first rejection one id is drawn from p without the rejected id. With both thresholds at
    1 the emitted token follows p exactly, whatever proposed the draft.

    Args:
        draft_ids: Drafted ids.
        target_probs: p of each row, one row more than drafts.
        uniforms: A coin a draft, in [0, 1).
        uniform_final: The coin of the id that is drawn at the end.
        threshold_single: Probability from which a draft needs no coin.
        threshold_acc: Divisor of p; below 1 more is accepted than p allows.

    Returns:
        ``Verified``; a row with nothing but the rejected id gives the last id.

    Source:
        sglang ``tree_speculative_sampling_target_only`` on a tree without branches.

    Example:
        >>> p = np.array([[[0.25, 0.75], [0.0, 1.0]]])
        >>> for u in (0.25, 0.26):
        ...     coins = {"uniforms": np.array([[u]]), "uniform_final": np.array([0.0])}
        ...     print(verify_target_only(np.array([[0]]), p, **coins).ids.tolist())
        [[0, 1]]
        [[1, -1]]
    """
    batch, drafts = draft_ids.shape
    accepted = np.zeros(batch, np.int64)
    left = np.empty((batch, target_probs.shape[2]))
    for b in range(batch):
        row = 0
        while row < drafts:
            p = target_probs[b, row, draft_ids[b, row]]
            if not (uniforms[b, row] <= p / threshold_acc or p >= threshold_single):
                break
            row += 1
        accepted[b] = row
        left[b] = target_probs[b, row]
        if row < drafts:
            left[b, draft_ids[b, row]] = 0.0
    return _emitted(draft_ids, accepted, draw(left, uniform_final))


def verify_exact_match(
    draft_ids: Int[Ids, "batch drafts"],
    target_probs: Float64[Array, "batch rows vocab"],
    *,
    uniforms: Float64[Array, "batch rows"],
) -> Verified:
    """The target draws a token in every row; drafts count while they equal those draws.

    What is emitted are the target's own draws, up to and including the first that differs
    from its draft, so the law is p whatever the drafter does.

    Args:
        draft_ids: Drafted ids.
        target_probs: p of each row, one row more than drafts.
        uniforms: The coin of each row's draw, in [0, 1).

    Returns:
        ``Verified``.

    Source:
        ml-explore/mlx-swift-lm#459 (the branch that emits the same draw); vLLM's rejection
        sampler for draws of the target.

    Example:
        >>> p = np.array([[[0.5, 0.5], [0.0, 1.0]]])
        >>> for u in (0.1, 0.6):
        ...     coins = np.array([[u, 0.3]])
        ...     print(verify_exact_match(np.array([[0]]), p, uniforms=coins).ids.tolist())
        [[0, 1]]
        [[1, -1]]
    """
    own = np.stack(
        [draw(target_probs[:, row], uniforms[:, row]) for row in range(uniforms.shape[1])]
    )
    return _leading(draft_ids, own.T, np.full(len(draft_ids), draft_ids.shape[1]))


def verify_greedy(
    draft_ids: Int[Ids, "batch drafts"],
    target_logits: Float64[Array, "batch rows padded"],
    *,
    vocab: int,
    draft_len: Int[Ids, " batch"],
) -> Verified:
    """Drafts count while they are the argmax of their row; then the argmax of the next row.

    Args:
        draft_ids: Drafted ids; those beyond ``draft_len`` hold anything.
        target_logits: Logits of each row; columns from ``vocab`` on are padding and hold
            anything.
        vocab: How many ids there are.
        draft_len: How many drafts of each request count, 0 to drafts.

    Returns:
        ``Verified``; the lowest index wins a tie.

    Source:
        sglang ``dspark_components`` (greedy branch; a cut draft is ``min(correct_len,
        verify_len - 1)`` with the bonus read again there).

    Example:
        >>> logits = np.array([[[0.0, 2.0, 9.0], [1.0, 0.0, 9.0]]])
        >>> n = np.array([1])
        >>> verify_greedy(np.array([[1]]), logits, vocab=2, draft_len=n).ids.tolist()
        [[1, 0]]
    """
    best = np.argmax(target_logits[:, :, :vocab], axis=2)
    return _leading(draft_ids, best, draft_len)


def _leading(draft_ids: Ids, own: Ids, lengths: Ids) -> Verified:
    """Accept the leading run of drafts that equal ``own``; emit the next of ``own``."""
    batch, drafts = draft_ids.shape
    counted = np.arange(drafts)[None, :] < lengths[:, None]
    run = np.cumprod((draft_ids == own[:, :drafts]) & counted, axis=1)
    accepted = run.sum(axis=1).astype(np.int64)
    return _emitted(draft_ids, accepted, own[np.arange(batch), accepted].astype(np.int64))


def _emitted(draft_ids: Ids, accepted: NDArray[np.int64], last: NDArray[np.int64]) -> Verified:
    """Accepted drafts, then ``last``, then -1."""
    batch, drafts = draft_ids.shape
    ids = np.full((batch, drafts + 1), -1, np.int64)
    for b, count in enumerate(accepted):
        ids[b, :count] = draft_ids[b, :count]
        ids[b, count] = last[b]
    return Verified(accepted=accepted, ids=ids)
