"""Makers of faulty routers and sums over experts: ours with one line wrong.

torch and our implementations are imported inside the makers only.
"""

from collections.abc import Callable
from typing import Any

__all__ = [
    "bias_in_bfloat16",
    "bias_in_weights",
    "every_rank_adds_shared",
    "experts_bias_unweighted",
    "logits_read_as_float32",
    "no_smallest_sum",
    "padding_routed",
    "renormalised_always",
    "scaled_never",
    "scaled_twice",
    "slots_multiplied_by_zero",
    "softmax_scores",
]

Function = Callable[..., Any]


def bias_in_bfloat16() -> Function:
    """The correction bias is stored in bfloat16."""
    import torch

    from validate.conformance.engines._torch_elementwise import moe_route

    def choose(correction_bias: Any, **arguments: Any) -> Any:
        return moe_route(correction_bias=correction_bias.to(torch.bfloat16).float(), **arguments)

    return choose


def padding_routed() -> Function:
    """Rows past valid_rows keep whatever ids their garbage gave."""
    from validate.conformance.engines._torch_elementwise import moe_route

    def choose(logits: Any, valid_rows: int, **arguments: Any) -> Any:  # noqa: ARG001
        return moe_route(logits=logits, valid_rows=len(logits), **arguments)

    return choose


def logits_read_as_float32() -> Function:
    """A bfloat16 buffer is read as float32: pairs fuse, and the rest is past the end."""
    import torch

    from validate.conformance.engines._torch_elementwise import moe_route

    def choose(logits: Any, **arguments: Any) -> Any:
        if logits.dtype is torch.bfloat16:
            fused = logits.reshape(-1)[: logits.numel() // 2 * 2].view(torch.float32)
            read = torch.zeros(logits.shape, dtype=torch.float32)
            read.view(-1)[: fused.numel()] = fused
            logits = torch.nan_to_num(read)
        return moe_route(logits=logits, **arguments)

    return choose


def renormalised_always() -> Function:
    """The flag that asks for raw weights is not forwarded."""
    from validate.conformance.engines._torch_elementwise import moe_route

    def choose(renormalize: bool, **arguments: Any) -> Any:  # noqa: ARG001, FBT001  the contract's name
        return moe_route(renormalize=True, **arguments)

    return choose


def softmax_scores() -> Function:
    """Scores are a softmax over experts instead of sigmoids."""
    import torch

    from validate.conformance.engines._torch_elementwise import moe_route

    def choose(logits: Any, **arguments: Any) -> Any:
        share = torch.softmax(logits.float(), -1)
        return moe_route(logits=torch.logit(share), **arguments)

    return choose


def bias_in_weights() -> Function:
    """Weights are gathered from the biased scores."""
    from validate.conformance.engines._torch_elementwise import moe_route

    def choose(logits: Any, correction_bias: Any, **arguments: Any) -> Any:
        ids, weights = moe_route(logits=logits, correction_bias=correction_bias, **arguments)
        valid = ids[:, 0] >= 0
        taken = ids[valid].long()
        biased = logits.float().sigmoid()[valid].gather(1, taken) + correction_bias[taken]
        if arguments["renormalize"]:
            biased = biased / (biased.sum(-1, keepdim=True) + 1e-20)
        weights[valid] = biased * arguments["scale"]
        return ids, weights

    return choose


def no_smallest_sum() -> Function:
    """The sum of the chosen sigmoids is divided by as it is: 0/0 when all of them vanish."""
    from validate.conformance.engines._torch_elementwise import moe_route

    def choose(renormalize: bool, scale: float, **arguments: Any) -> Any:  # noqa: FBT001
        ids, weights = moe_route(renormalize=False, scale=1.0, **arguments)
        if renormalize:
            valid = ids[:, 0] >= 0
            weights[valid] = weights[valid] / weights[valid].sum(-1, keepdim=True)
        return ids, weights * scale

    return choose


def _scaled(times: int) -> Function:
    from validate.conformance.engines._torch_elementwise import moe_route

    def choose(scale: float, **arguments: Any) -> Any:
        return moe_route(scale=scale**times, **arguments)

    return choose


def scaled_twice() -> Function:
    """The routed scale is applied in the router and again by the kernel."""
    return _scaled(2)


def scaled_never() -> Function:
    """The routed scale is left to a later stage that does not apply it."""
    return _scaled(0)


def experts_bias_unweighted() -> Function:
    """Every chosen expert's bias is added whole, not by its weight."""
    from validate.conformance.engines._torch_elementwise import moe_combine

    def total(bias: Any, ids: Any, made: Any, **arguments: Any) -> Any:
        y = moe_combine(bias=None, ids=ids, made=made, **arguments)
        if bias is None:
            return y
        taken = (ids >= 0).unsqueeze(-1)
        added = (bias.float()[ids.clamp_min(0).long()] * taken).sum(1)
        return (y.float() + added).to(made.dtype)

    return total


def every_rank_adds_shared() -> Function:
    """The shared expert is replicated and summed by the collective of eight ranks."""
    from validate.conformance.engines._torch_elementwise import moe_combine

    def total(shared: Any, made: Any, **arguments: Any) -> Any:
        summed = None if shared is None else 8 * shared.float()
        return moe_combine(shared=summed, made=made, **arguments)

    return total


def slots_multiplied_by_zero() -> Function:
    """A slot without an expert is trusted to its weight of zero: 0 times NaN is NaN."""

    def total(made: Any, ids: Any, weights: Any, bias: Any, shared: Any) -> Any:
        rows = made.float()
        if bias is not None:
            rows = rows + bias.float()[ids.clamp_min(0).long()]
        y = (weights.unsqueeze(-1) * rows).sum(1)
        return (y if shared is None else y + shared.float()).to(made.dtype)

    return total
