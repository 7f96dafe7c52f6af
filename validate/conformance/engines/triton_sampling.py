"""Triton renorm and chain verification behind the contracts; triton is imported when called."""

from functools import partial

from torch import Tensor, float32, int32

from validate.conformance.engines.torch_sampling import Parameter, per_row
from validate.conformance.engines.triton_attention import available
from validate.conformance.records import Implementation

__all__ = ["IMPLEMENTATIONS", "available", "top_k", "top_p", "verify_chain"]


def top_k(probs: Tensor, top_k: Parameter) -> Tensor:
    """Radix select of the k-th largest, 8 bits a pass, then one division."""
    from validate.conformance.engines import _triton_sampling

    k = per_row(top_k, probs, int32).reshape(-1).contiguous()
    return _triton_sampling.top_k(probs.contiguous(), k)


def top_p(probs: Tensor, top_p: Parameter, *, relative: bool = True) -> Tensor:
    """Bit-by-bit search of the threshold that keeps the mass, then one division."""
    from validate.conformance.engines import _triton_sampling

    p = per_row(top_p, probs, float32).reshape(-1).contiguous()
    return _triton_sampling.top_p(probs.contiguous(), p, relative=relative)


def verify_chain(
    draft_ids: Tensor,
    draft_probs: Tensor,
    target_probs: Tensor,
    uniforms: Tensor,
    uniform_final: Tensor,
) -> tuple[Tensor, Tensor]:
    """One program a request: the run, the residual's sum, the draw."""
    from validate.conformance.engines import _triton_sampling

    return _triton_sampling.verify_chain(
        draft_ids, draft_probs, target_probs, uniforms, uniform_final
    )


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    Implementation(
        name="triton:radix",
        op="top_k_renorm_prob",
        function=top_k,
        title="Triton radix select, every tie kept (written for ROCm too, unrun there)",
        devices=("cuda",),
    ),
    Implementation(
        name="triton:bits",
        op="top_p_renorm_prob",
        function=top_p,
        title="Triton threshold search, p of the row's sum (written for ROCm too, unrun there)",
        devices=("cuda",),
    ),
    Implementation(
        name="triton:bits_absolute",
        op="top_p_renorm_prob",
        function=partial(top_p, relative=False),
        title="Triton threshold search, p against the mass as it came (unrun on ROCm)",
        devices=("cuda",),
        settings={"mass": "absolute"},
    ),
    Implementation(
        name="triton:chain",
        op="verify_chain",
        function=verify_chain,
        title="Triton chain verify, one program a request (written for ROCm too, unrun there)",
        devices=("cuda",),
    ),
)
