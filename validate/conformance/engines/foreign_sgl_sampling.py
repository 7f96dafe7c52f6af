"""sgl_kernel's sampling kernels behind the contracts; imported when called, unrun so far."""

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, float32, int32

from validate.conformance.engines.torch_sampling import Parameter, per_row
from validate.conformance.records import Implementation

__all__ = ["IMPLEMENTATIONS", "available"]


def available() -> str | None:
    """Why sgl_kernel cannot be used; None when it can be imported."""
    try:
        importlib.import_module("sgl_kernel")
    except (ImportError, OSError) as error:  # its library may miss a driver
        return f"not installed ({error})"
    return None


def _kernel(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(importlib.import_module("sgl_kernel"), name)
    return found


def top_k(probs: Tensor, top_k: Parameter) -> Tensor:
    """``sgl_kernel.top_k_renorm_prob``."""
    k = per_row(top_k, probs, int32).reshape(-1).contiguous()
    out: Tensor = _kernel("top_k_renorm_prob")(probs, k)
    return out


def top_p(probs: Tensor, top_p: Parameter) -> Tensor:
    """``sgl_kernel.top_p_renorm_prob``."""
    p = per_row(top_p, probs, float32).reshape(-1).contiguous()
    out: Tensor = _kernel("top_p_renorm_prob")(probs, p)
    return out


def verify_target_only(
    draft_ids: Tensor,
    target_probs: Tensor,
    uniforms: Tensor,
    uniform_final: Tensor,
    threshold_single: float,
    threshold_acc: float,
) -> tuple[Tensor, Tensor]:
    """``tree_speculative_sampling_target_only`` on a tree that is a chain below its root."""
    batch, drafts = draft_ids.shape
    nodes, device = drafts + 1, draft_ids.device
    root = torch.zeros_like(draft_ids[:, :1])
    node = torch.arange(nodes, device=device).expand(batch, nodes)
    child = torch.where(node < drafts, node + 1, -1).contiguous()
    where = torch.arange(batch * nodes, device=device).view(batch, nodes)
    predicts = torch.full((batch * nodes,), -1, dtype=torch.int32, device=device)
    index = torch.full((batch, nodes), -1, dtype=torch.int32, device=device)
    accepted = torch.zeros(batch, dtype=torch.int32, device=device)
    _kernel("tree_speculative_sampling_target_only")(
        predicts=predicts,
        accept_index=index,
        accept_token_num=accepted,
        candidates=torch.cat([root, draft_ids], dim=1).contiguous(),
        retrive_index=where,
        retrive_next_token=child,
        retrive_next_sibling=torch.full_like(child, -1),
        uniform_samples=torch.cat([uniforms, uniforms[:, :1]], dim=1).contiguous(),
        uniform_samples_for_final_sampling=uniform_final,
        target_probs=target_probs,
        draft_probs=torch.zeros_like(target_probs),
        threshold_single=threshold_single,
        threshold_acc=threshold_acc,
        deterministic=True,
    )
    taken = predicts[index.clamp_min(0).long()].long()
    return accepted.long(), torch.where(index >= 0, taken, -1)


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    Implementation(
        name="sgl_kernel:renorm",
        op="top_k_renorm_prob",
        function=top_k,
        title="sgl_kernel.top_k_renorm_prob (adapter unrun)",
        devices=("cuda",),
        settings={"output": "float32", "low_k": "undefined"},
    ),
    Implementation(
        name="sgl_kernel:renorm",
        op="top_p_renorm_prob",
        function=top_p,
        title="sgl_kernel.top_p_renorm_prob (adapter unrun)",
        devices=("cuda",),
        settings={"output": "float32", "mass": "absolute"},
    ),
    Implementation(
        name="sgl_kernel:tree",
        op="verify_target_only",
        function=verify_target_only,
        title="sgl_kernel.tree_speculative_sampling_target_only on a chain (adapter unrun)",
        devices=("cuda",),
    ),
)
