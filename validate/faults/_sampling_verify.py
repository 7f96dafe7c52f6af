"""Planted faults and controls of the verifiers."""

from collections.abc import Callable
from typing import Any

from validate.faults.operations import OperationControl, OperationFault

__all__ = ["CONTROLS", "FAULTS"]

Function = Callable[..., Any]


def _chain(
    *,
    accepts: Function | None = None,
    left: Function | None = None,
    bonus_row: int = 0,
    used: Function | None = None,
) -> Function:
    """Our chain verify with one step replaced.

    Args:
        accepts: From coins, p and q of the drafts to what is accepted.
        left: From the final p and q to the weights of the last draw.
        bonus_row: Added to the row that is read when every draft was accepted.
        used: From q as given to q as the verifier takes it.
    """
    import torch

    from validate.conformance.engines import _torch_verify as steps

    def rule(u: Any, p: Any, q: Any) -> Any:
        return u * q < p

    def positive(p: Any, q: Any) -> Any:
        return (p - q).clamp_min(0.0)

    def verify(
        draft_ids: Any, draft_probs: Any, target_probs: Any, uniforms: Any, uniform_final: Any
    ) -> Any:
        q = draft_probs if used is None else used(draft_probs)
        drafts = draft_ids.shape[1]
        p_at, q_at = (steps.at_drafts(probs, draft_ids) for probs in (target_probs, q))
        accepted = steps.accepted_run((accepts or rule)(uniforms, p_at, q_at))
        padded = torch.cat([q, torch.zeros_like(target_probs[:, drafts:])], dim=1)
        row = torch.where(accepted == drafts, (accepted + bonus_row).clamp_min(0), accepted)
        weights = (left or positive)(
            steps.final_row(target_probs, row), steps.final_row(padded, accepted)
        )
        return steps.emitted(draft_ids, accepted, steps.invert_last(weights, uniform_final))

    return verify


def _sa_01() -> Function:
    from validate.conformance.engines._torch_verify import accepted_run, emitted

    platform_without_kernels = True

    def verify(
        draft_ids: Any, draft_probs: Any, target_probs: Any, uniforms: Any, uniform_final: Any
    ) -> Any:
        all_greedy = False
        if not (all_greedy or platform_without_kernels):
            return _chain()(draft_ids, draft_probs, target_probs, uniforms, uniform_final)
        best = target_probs.argmax(2)
        accepted = accepted_run(draft_ids == best[:, :-1])
        return emitted(draft_ids, accepted, best.gather(1, accepted.unsqueeze(1)).squeeze(1))

    return verify


def _sp_09() -> Function:
    import torch

    def rounded(q: Any) -> Any:
        # The drafter's logits, centred on 20, once more in bfloat16; the draft came from q.
        return torch.softmax((q.log() + 20.0).bfloat16().float(), dim=2)

    return _chain(used=rounded)


def _sp_07() -> Function:
    from validate.conformance.engines import _torch_verify as steps

    def verify(draft_ids: Any, target_probs: Any, uniforms: Any) -> Any:
        batch, rows, vocab = target_probs.shape
        own = steps.invert_last(target_probs.float().reshape(-1, vocab), uniforms.reshape(-1))
        own = own.view(batch, rows)
        accepted = steps.accepted_run(draft_ids == own[:, :-1])
        # A second draw for the row that did not match, in place of the one that decided it.
        fresh = uniforms.roll(-1, dims=1).gather(1, accepted.unsqueeze(1)).squeeze(1)
        last = steps.invert_last(steps.final_row(target_probs, accepted), fresh)
        return steps.emitted(draft_ids, accepted, last)

    return verify


def _greedy(best_of: Function) -> Function:
    """Our greedy verify with another argmax."""
    import torch

    from validate.conformance.engines import _torch_verify as steps

    def verify(draft_ids: Any, target_logits: Any, vocab: int, draft_len: Any) -> Any:
        best = best_of(target_logits, vocab)
        column = torch.arange(draft_ids.shape[1], device=draft_ids.device)
        run = (draft_ids == best[:, :-1]) & (column < draft_len.unsqueeze(1))
        accepted = steps.accepted_run(run)
        last = best.gather(1, accepted.unsqueeze(1)).squeeze(1)
        return steps.emitted(draft_ids, accepted, last)

    return verify


def _sp_10() -> Function:
    def runners_up(logits: Any, vocab: int) -> Any:
        # The n best of row 0 in place of the best of n rows.
        return logits[:, 0, :vocab].topk(logits.shape[1], dim=1).indices

    return _greedy(runners_up)


def _sa_10() -> Function:
    return _greedy(lambda logits, vocab: logits.argmax(2))  # noqa: ARG005  padding takes part


def _vx_83() -> Function:
    return _chain(left=lambda p, q: p)  # noqa: ARG005


def _vx_84() -> Function:
    return _chain(bonus_row=-1)


def _vx_85() -> Function:
    return _chain(accepts=lambda u, p, q: u <= p)  # noqa: ARG005


def _vx_86() -> Function:
    return _chain(accepts=lambda u, p, q: u * q <= p)


def _target_only(*, strict: bool = False, keep: bool = False) -> Function:
    from validate.conformance.engines import _torch_verify as steps

    def verify(
        draft_ids: Any,
        target_probs: Any,
        uniforms: Any,
        uniform_final: Any,
        threshold_single: float,
        threshold_acc: float,
    ) -> Any:
        p = steps.at_drafts(target_probs, draft_ids)
        share = p / threshold_acc
        taken = (uniforms < share) if strict else (uniforms <= share)
        accepted = steps.accepted_run(taken | (p >= threshold_single))
        left = steps.final_row(target_probs, accepted)
        if not keep:
            left = steps.without_rejected(left, draft_ids, accepted)
        return steps.emitted(draft_ids, accepted, steps.invert_last(left, uniform_final))

    return verify


def _vx_87() -> Function:
    return _target_only(keep=True)


def _vx_88() -> Function:
    return _target_only(strict=True)


FAULTS: tuple[OperationFault, ...] = (
    OperationFault(
        id="SA-01",
        op="verify_chain",
        title="Verification takes the argmax on this platform, whatever the temperature",
        source="sgl-project/sglang#31214, #37134. Planted in the condition that chooses the branch.",
        make=_sa_01,
    ),
    OperationFault(
        id="SP-09",
        op="verify_chain",
        title="Drafts are drawn from one q, the ratio takes another (logits rounded to bfloat16)",
        source="deepseek-ai/DeepSpec#31. Planted in the q that the verifier uses.",
        make=_sp_09,
    ),
    OperationFault(
        id="VX-83",
        op="verify_chain",
        title="The replacement is drawn from p in place of (p - q)+",
        source="Named beside SP-09: a TVD of 0.08. Planted in the residual.",
        make=_vx_83,
    ),
    OperationFault(
        id="VX-84",
        op="verify_chain",
        title="The bonus token is read from the last draft's row",
        source="Same class as antirez/ds4#358 (rows taken for one another). Planted in the row index.",
        make=_vx_84,
    ),
    OperationFault(
        id="VX-85",
        op="verify_chain",
        title="A draft is accepted while u <= p: q is left out of the ratio",
        source="The target-only rule used with a residual of (p - q)+. Planted in the comparison.",
        make=_vx_85,
    ),
    OperationFault(
        id="VX-86",
        op="verify_chain",
        title="A draft of probability 0 is accepted by a coin of 0",
        source="sglang's rule is strict (reject_sampling.py). Planted as <= in place of <.",
        make=_vx_86,
    ),
    OperationFault(
        id="SP-07",
        op="verify_exact_match",
        title="On a mismatch the target is drawn from again",
        source="ml-explore/mlx-swift-lm#459: P(x) = p(x) (q(x) + 1 - sum pq). Planted in the coin of "
        "the last draw.",
        make=_sp_07,
    ),
    OperationFault(
        id="SP-10",
        op="verify_greedy",
        title="Row i gets row 0's runner-up",
        source="antirez/ds4#358. Planted as the n best of one row for the best of n rows.",
        make=_sp_10,
    ),
    OperationFault(
        id="SA-10",
        op="verify_greedy",
        title="Padded vocabulary columns take part in the argmax",
        source="mirage-project/mirage#751. Planted in the columns that argmax sees.",
        make=_sa_10,
    ),
    OperationFault(
        id="VX-87",
        op="verify_target_only",
        title="The rejected draft may be drawn again",
        source="sglang tree_speculative_sampling_target_only takes it out of the residual. Planted by "
        "leaving it in.",
        make=_vx_87,
    ),
    OperationFault(
        id="VX-88",
        op="verify_target_only",
        title="A coin that equals p / threshold_acc rejects",
        source="sglang compares with <=. Planted as <.",
        make=_vx_88,
    ),
)


def _ok_3() -> Function:
    from validate.conformance.engines import _torch_verify as steps

    def one_by_one(draft_ids: Any, target_probs: Any, uniforms: Any) -> Any:
        import torch

        batch, drafts = draft_ids.shape
        accepted = torch.zeros(batch, dtype=torch.int64, device=draft_ids.device)
        last = torch.zeros_like(accepted)
        for b in range(batch):
            for row in range(drafts + 1):
                weights = target_probs[b : b + 1, row].float()
                last[b] = steps.invert_last(weights, uniforms[b : b + 1, row])[0]
                accepted[b] = row
                if row == drafts or last[b] != draft_ids[b, row]:
                    break
        return steps.emitted(draft_ids, accepted, last)

    return one_by_one


def _ok_4() -> Function:
    def without_draft(p: Any, q: Any) -> Any:
        # Where the drafter was sure (one-hot q), p without the draft; else the residual.
        import torch

        sure = (q == 1.0).any(1, keepdim=True)
        return torch.where(sure, torch.where(q == 1.0, 0.0, p), (p - q).clamp_min(0.0))

    return _chain(left=without_draft)


def _ok_vx_81() -> Function:
    return _chain(accepts=lambda u, p, q: (u < p / q) | (q == 0) & (p > 0))


def _ok_6() -> Function:
    def last_index(logits: Any, vocab: int) -> Any:
        return vocab - 1 - logits[:, :, :vocab].flip(2).argmax(2)

    return _greedy(last_index)


CONTROLS: tuple[OperationControl, ...] = (
    OperationControl(
        id="OK-3",
        op="verify_exact_match",
        title="Token equality that emits the target's own draw, request by request",
        source="See SP-07: low acceptance, exact distribution.",
        make=_ok_3,
    ),
    OperationControl(
        id="OK-4",
        op="verify_chain",
        title="Argmax proposals with one-hot q: p without the draft on a rejection",
        source="vllm-project/vllm#16899, #40651.",
        make=_ok_4,
    ),
    OperationControl(
        id="OK-VX-81",
        op="verify_chain",
        title="The comparison is written u < p / q",
        source="The same rule with a division; coins within 2 u of the ratio may differ.",
        make=_ok_vx_81,
    ),
    OperationControl(
        id="OK-6",
        op="verify_greedy",
        title="Equal maxima are broken by the highest index",
        source="vllm-project/vllm#15478 (comment).",
        settings={"ties": "any"},
        make=_ok_6,
    ),
)
