"""Planted faults and controls of sampling operations: filters, draws, verifiers, formats."""

from collections.abc import Callable
from typing import Any

from validate.faults import _sampling_filters, _sampling_formats, _sampling_verify
from validate.faults.operations import OperationControl, OperationFault

__all__ = ["CONTROLS", "FAULTS"]

Function = Callable[..., Any]
BLOCK = 1024
WAVEFRONT = 64


def _vx_120() -> Function:
    import torch

    from validate.conformance.engines.torch_sampling import divided, sorted_top_k

    def whole_blocks(probs: Any, top_k: Any) -> Any:
        rows, vocab = probs.float(), probs.shape[1]
        seen = vocab // BLOCK * BLOCK if vocab > 2 * BLOCK else vocab  # // for a division upwards
        inside = torch.arange(vocab, device=rows.device) < seen
        kept = sorted_top_k(torch.where(inside, rows, 0.0), top_k) > 0
        return divided(rows, kept).to(probs.dtype)

    return whole_blocks


def _vx_121() -> Function:
    import torch

    from validate.conformance.engines.torch_sampling import per_row, sorted_top_p

    def half(probs: Any, top_p: Any) -> Any:
        p = per_row(top_p, probs, torch.float32).squeeze(1)
        return sorted_top_p(probs, p.half().float()).to(probs.dtype)

    return half


def _vx_122() -> Function:
    import torch

    from validate.conformance.engines.torch_sampling import sample

    def capped(probs: Any, top_k: Any, top_p: Any, min_p: Any, uniforms: Any) -> Any:
        on = (top_k > 0) & (top_k < probs.shape[1])
        k = torch.where(on, top_k.clamp(max=1000), top_k)  # the scratch of the sorted ids
        return sample(probs, k, top_p, min_p, uniforms=uniforms)

    return capped


def _vx_123() -> Function:
    import torch

    from validate.conformance.engines._torch_verify import verify_chain

    def one_wavefront(
        draft_ids: Any, draft_probs: Any, target_probs: Any, uniforms: Any, uniform_final: Any
    ) -> Any:
        lane = torch.arange(len(draft_ids), device=draft_ids.device) % WAVEFRONT
        return verify_chain(draft_ids, draft_probs, target_probs, uniforms, uniform_final[lane])

    return one_wavefront


_SIZES: tuple[OperationFault, ...] = (
    OperationFault(
        id="VX-120",
        op="top_k_renorm_prob",
        title="Entries after the last whole block of 1,024 are not looked at",
        source="A launch grid divided downwards. Planted in the columns that the selection sees, for "
        "vocabularies above 2,048.",
        make=_vx_120,
    ),
    OperationFault(
        id="VX-121",
        op="top_p_renorm_prob",
        title="p is held in float16",
        source="A parameter cast to the dtype of the logits. Planted in the parameter.",
        make=_vx_121,
    ),
    OperationFault(
        id="VX-122",
        op="sample",
        title="A top-k above 1,000 is 1,000",
        source="A fixed scratch of sorted ids. Planted in the parameter.",
        make=_vx_122,
    ),
    OperationFault(
        id="VX-123",
        op="verify_chain",
        title="From the 65th request on, the last draw takes a coin of another request",
        source="A lane index in place of a request's. Planted in the index of the last coin.",
        make=_vx_123,
    ),
)

FAULTS: tuple[OperationFault, ...] = (
    *_sampling_filters.FAULTS,
    *_sampling_verify.FAULTS,
    *_sampling_formats.FAULTS,
    *_SIZES,
)
CONTROLS: tuple[OperationControl, ...] = (
    *_sampling_filters.CONTROLS,
    *_sampling_verify.CONTROLS,
    *_sampling_formats.CONTROLS,
)
