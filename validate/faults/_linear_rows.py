"""Makers of faulty gates, convolutions, mixes, activations and norms: ours with one line wrong.

torch and our implementations are imported inside the makers only.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

__all__ = [
    "activation_unbounded",
    "bank_as_scratch",
    "betas_swapped",
    "bias_transposed",
    "bounds_not_given",
    "eps_outside_root",
    "exponentials_overflow",
    "gate_not_exponentiated",
    "gate_softplus",
    "half_squares",
    "history_lost",
    "mixed_normed",
    "norm_over_heads",
    "norm_per_rank",
    "norm_weight_slice",
    "plain_exponentials",
    "prefix_left_out",
    "silu_output_gate",
    "taps_reversed",
    "without_silu",
]

Function = Callable[..., Any]


def gate_softplus() -> Function:
    """G = -exp(A_log) softplus(f + dt_bias): the lower bound is not applied."""
    import torch
    from torch.nn import functional as nnf

    def gate(f: Any, b: Any, a_log: Any, dt_bias: Any, lower_bound: float) -> Any:  # noqa: ARG001
        return -a_log.exp().unsqueeze(-1) * nnf.softplus(f.float() + dt_bias), torch.sigmoid(b)

    return gate


def gate_not_exponentiated() -> Function:
    """A_log is used as the rate itself."""
    import torch

    def gate(f: Any, b: Any, a_log: Any, dt_bias: Any, lower_bound: float) -> Any:
        z = a_log.unsqueeze(-1) * (f.float() + dt_bias)
        return lower_bound * torch.sigmoid(z), torch.sigmoid(b)

    return gate


def bias_transposed() -> Function:
    """dt_bias is laid out by key and read by head."""
    from validate.conformance.engines._torch_elementwise import kda_gate

    def gate(dt_bias: Any, **arguments: Any) -> Any:
        return kda_gate(dt_bias=dt_bias.T.reshape(dt_bias.shape), **arguments)

    return gate


def taps_reversed() -> Function:
    """Tap 0 multiplies the current token."""
    from validate.conformance.engines._torch_elementwise import short_conv

    def conv(weight: Any, **arguments: Any) -> Any:
        return short_conv(weight=weight.flip(1), **arguments)

    return conv


def bounds_not_given() -> Function:
    """A sequence's first tokens are convolved with the end of the one before it."""
    import torch

    from validate.conformance.engines._torch_elementwise import short_conv

    def conv(x: Any, weight: Any, state: Any, cu_seqlens: Any) -> Any:
        _, remembered = short_conv(x, weight, state, cu_seqlens)
        ends = torch.stack([cu_seqlens[0], cu_seqlens[-1]])
        y, _ = short_conv(x, weight, None if state is None else state[:1], ends)
        return y, remembered

    return conv


def history_lost() -> Function:
    """A piece shorter than the kernel leaves zeros where older inputs belong."""
    import torch

    from validate.conformance.engines._torch_elementwise import short_conv

    def conv(x: Any, weight: Any, state: Any, cu_seqlens: Any) -> Any:
        y, _ = short_conv(x, weight, state, cu_seqlens)
        count, taps = len(cu_seqlens) - 1, weight.shape[1] - 1
        remembered = torch.zeros((count, x.shape[1], taps), dtype=x.dtype)
        for n in range(count):
            late = x[max(int(cu_seqlens[n]), int(cu_seqlens[n + 1]) - taps) : cu_seqlens[n + 1]]
            if len(late):
                remembered[n, :, taps - len(late) :] = late.T
        return y, remembered

    return conv


def without_silu() -> Function:
    """The activation is left to a caller who does not apply it."""
    from validate.conformance.engines._torch_elementwise import short_conv

    def convolve(window: Any, weight: Any) -> Any:
        tokens = window.shape[0] - weight.shape[1] + 1
        taps = range(weight.shape[1])
        return sum(window[j : j + tokens].float() * weight[:, j].float() for j in taps)

    return partial(short_conv, convolve=convolve)


def _mix(bank: Any, prefix: Any, norm: Any, proj: Any, eps: float) -> tuple[Any, Any, Any]:
    import torch

    c = torch.cat([bank, prefix.unsqueeze(0)]).float()
    normed = c * torch.rsqrt(c.square().mean(-1, keepdim=True) + eps) * norm.float()
    return c, normed, (normed * proj.float()).sum(-1)


def mixed_normed() -> Function:
    """The mix is taken from the normed candidates."""
    import torch

    def mix(bank: Any, prefix: Any, **weights: Any) -> Any:
        _, normed, scores = _mix(bank, prefix, **weights)
        return (torch.softmax(scores, 0).unsqueeze(-1) * normed).sum(0).to(prefix.dtype)

    return mix


def prefix_left_out() -> Function:
    """Only closed prefixes take part in the softmax."""
    import torch

    def mix(bank: Any, prefix: Any, **weights: Any) -> Any:
        if len(bank) == 0:
            return prefix.clone()
        c, _, scores = _mix(bank, prefix, **weights)
        share = torch.softmax(scores[:-1], 0).unsqueeze(-1)
        return (share * c[:-1]).sum(0).to(prefix.dtype)

    return mix


def plain_exponentials() -> Function:
    """Scores are exponentiated without their maximum taken off."""

    def mix(bank: Any, prefix: Any, **weights: Any) -> Any:
        c, _, scores = _mix(bank, prefix, **weights)
        share = scores.exp() / scores.exp().sum(0)
        return (share.unsqueeze(-1) * c).sum(0).to(prefix.dtype)

    return mix


def bank_as_scratch() -> Function:
    """The result is made in the last bank slot, which is live."""
    from validate.conformance.engines._torch_elementwise import attn_res

    def mix(bank: Any, **arguments: Any) -> Any:
        made = attn_res(bank=bank, **arguments)
        if len(bank):
            bank[-1].copy_(made)
        return made

    return mix


def activation_unbounded() -> Function:
    """SwiGLU: neither branch is bounded."""
    from torch.nn import functional as nnf

    def act(gate: Any, up: Any, beta: float, linear_beta: float) -> Any:  # noqa: ARG001
        return (nnf.silu(gate.float()) * up.float()).to(gate.dtype)

    return act


def betas_swapped() -> Function:
    """Beta and linear_beta change places."""
    from validate.conformance.engines._torch_elementwise import situ

    def act(beta: float, linear_beta: float, **arguments: Any) -> Any:
        return situ(beta=linear_beta, linear_beta=beta, **arguments)

    return act


def exponentials_overflow() -> Function:
    """Tanh as (e^2x - 1) / (e^2x + 1): infinity over infinity for large x."""
    import torch

    def tanh(x: Any) -> Any:
        e = torch.exp(2.0 * x)
        return (e - 1.0) / (e + 1.0)

    def act(gate: Any, up: Any, beta: float, linear_beta: float) -> Any:
        g, u = gate.float(), up.float()
        bounded = beta * tanh(g / beta) * torch.sigmoid(g)
        return (bounded * linear_beta * tanh(u / linear_beta)).to(gate.dtype)

    return act


def _normed(x: Any, weight: Any, gate: Any, square: Any, eps: float) -> Any:
    import torch

    y = x.float() * torch.rsqrt(square + eps) * weight.float()
    return (y if gate is None else y * torch.sigmoid(gate.float())).to(x.dtype)


def norm_over_heads() -> Function:
    """The mean square runs over all heads together."""

    def norm(x: Any, weight: Any, eps: float, gate: Any) -> Any:
        return _normed(x, weight, gate, x.float().square().mean((-2, -1), keepdim=True), eps)

    return norm


def norm_per_rank() -> Function:
    """Each of eight ranks takes the mean square of its own slice of the row."""

    def norm(x: Any, weight: Any, eps: float, gate: Any) -> Any:
        square = x.float().square()
        width = x.shape[-1]
        if width % 8:
            return _normed(x, weight, gate, square.mean(-1, keepdim=True), eps)
        own = square.unflatten(-1, (8, width // 8)).mean(-1, keepdim=True)
        spread = own.expand(*own.shape[:-1], width // 8).flatten(-2)
        return _normed(x, weight, gate, spread, eps)

    return norm


def norm_weight_slice() -> Function:
    """Every second head is scaled by weights that start half a head later."""

    def norm(x: Any, weight: Any, eps: float, gate: Any) -> Any:
        square = x.float().square().mean(-1, keepdim=True)
        shifted = weight.roll(-(weight.shape[0] // 2))
        rows = [shifted if head % 2 else weight for head in range(x.shape[-2])]
        import torch

        return _normed(x, torch.stack(rows), gate, square, eps)

    return norm


def eps_outside_root() -> Function:
    """Eps is added to the root instead of to the mean square."""

    def norm(x: Any, weight: Any, eps: float, gate: Any) -> Any:
        root = x.float().square().mean(-1, keepdim=True).sqrt() + eps
        return _normed(x, weight, gate, root.square(), 0.0)

    return norm


def half_squares() -> Function:
    """Squares are summed in float16: they overflow from 256 on."""
    import torch

    def norm(x: Any, weight: Any, eps: float, gate: Any) -> Any:
        square = x.to(torch.float16).square().mean(-1, keepdim=True).float()
        return _normed(x, weight, gate, square, eps)

    return norm


def silu_output_gate() -> Function:
    """The output gate is SiLU, as in plain gated norms, not sigmoid."""
    import torch

    from validate.conformance.engines._torch_elementwise import rms_norm

    def norm(x: Any, weight: Any, eps: float, gate: Any) -> Any:
        if gate is None:
            return rms_norm(x, weight, eps, None)
        normed = rms_norm(x.float(), weight, eps, None)
        return (normed * torch.nn.functional.silu(gate.float())).to(x.dtype)

    return norm
