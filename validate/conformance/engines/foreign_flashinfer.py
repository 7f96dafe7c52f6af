"""flashinfer's sampling kernels behind the contracts; imported when called, compiled when first run."""

import importlib
from collections.abc import Callable
from typing import Any

from torch import Generator, Tensor, float32, int32

from validate.conformance.engines.torch_sampling import Parameter, per_row
from validate.conformance.records import Implementation

__all__ = ["IMPLEMENTATIONS", "available"]


def available() -> str | None:
    """Why flashinfer cannot be used; None when it can be imported."""
    try:
        importlib.import_module("flashinfer.sampling")
    except ImportError as error:
        return f"not installed ({error})"
    return None


def _sampling(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(importlib.import_module("flashinfer.sampling"), name)
    return found


def _number_or_rows(value: Parameter, rows: Tensor, dtype: Any) -> Any:
    """A Python number as it is; a tensor as one number a row."""
    if not isinstance(value, Tensor):
        return value
    return per_row(value, rows, dtype).reshape(-1).contiguous()


def top_k(probs: Tensor, top_k: Parameter) -> Tensor:
    """``flashinfer.sampling.top_k_renorm_probs``."""
    out: Tensor = _sampling("top_k_renorm_probs")(probs, _number_or_rows(top_k, probs, int32))
    return out


def top_p(probs: Tensor, top_p: Parameter) -> Tensor:
    """``flashinfer.sampling.top_p_renorm_probs``."""
    out: Tensor = _sampling("top_p_renorm_probs")(probs, _number_or_rows(top_p, probs, float32))
    return out


def sample(probs: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor, seed: int) -> Tensor:
    """``top_k_renorm_probs``, ``top_p_renorm_probs``, ``min_p_sampling_from_probs``, one generator."""
    left = _sampling("top_k_renorm_probs")(probs, top_k)
    left = _sampling("top_p_renorm_probs")(left, top_p)
    generator = Generator(probs.device).manual_seed(seed)
    ids: Tensor = _sampling("min_p_sampling_from_probs")(left, min_p, generator=generator)
    return ids.long()


def verify_chain(
    draft_ids: Tensor, draft_probs: Tensor, target_probs: Tensor, seed: int
) -> tuple[Tensor, Tensor]:
    """``chain_speculative_sampling``; accepted are the drafts that it emitted."""
    generator = Generator(draft_probs.device).manual_seed(seed)
    ids, _, emitted = _sampling("chain_speculative_sampling")(
        draft_probs, draft_ids.int(), target_probs, generator=generator
    )
    return emitted.long(), ids.long()


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    Implementation(
        name="flashinfer:renorm",
        op="top_k_renorm_prob",
        function=top_k,
        title="flashinfer.sampling.top_k_renorm_probs, what sglang calls on CUDA",
        devices=("cuda",),
        settings={"output": "float32", "low_k": "undefined"},
    ),
    Implementation(
        name="flashinfer:renorm",
        op="top_p_renorm_prob",
        function=top_p,
        title="flashinfer.sampling.top_p_renorm_probs, what sglang calls on CUDA",
        devices=("cuda",),
        settings={"output": "float32", "mass": "absolute"},
    ),
    Implementation(
        name="flashinfer:min_p",
        op="sample",
        function=sample,
        title="flashinfer: top-k renorm, top-p renorm, min-p sampling, one generator a call",
        devices=("cuda",),
        settings={"random": "call_seed"},
    ),
    Implementation(
        name="flashinfer:chain",
        op="verify_chain",
        function=verify_chain,
        title="flashinfer.sampling.chain_speculative_sampling, its own coins from one generator",
        devices=("cuda",),
        settings={"random": "call_seed"},
    ),
)
