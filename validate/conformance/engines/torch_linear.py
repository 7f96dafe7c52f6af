"""Our implementations of the linear-attention and elementwise operations, in torch eager.

Each takes torch tensors by the argument names of its contract and returns tensors of its
own memory. Sums, gates and states are float32 whatever the inputs are.
"""

import itertools
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from validate.conformance.engines._torch_elementwise import (
    attn_res,
    kda_gate,
    moe_combine,
    moe_route,
    rms_norm,
    short_conv,
    short_conv_grouped,
    situ,
)
from validate.conformance.records import Implementation
from validate.models.kda import KdaInputs, chunk_delta_rule, recurrent_delta_rule

__all__ = [
    "IMPLEMENTATIONS",
    "Rule",
    "chunk_solve",
    "delta_inputs",
    "kda_gate",
    "kda_packed",
    "kda_slots",
    "stepwise",
]

Rule = Callable[[KdaInputs, Tensor], tuple[Tensor, Tensor]]
"""Delta-rule inputs (1, heads, tokens, ...) and a state (1, heads, key, value): output, state."""

L2_EPS = 1e-6
"""Inside the root of the q and k normalisation; fla ``ops/kda``."""


def delta_inputs(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gates: tuple[Tensor, Tensor],
) -> KdaInputs:
    """What the delta rule reads, float32, (1, heads, tokens, ...): L2 norms, scale, gates."""
    q, k, v = q.float(), k.float(), v.float()
    q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + L2_EPS) * q.shape[-1] ** -0.5
    k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + L2_EPS)
    decay, beta = gates
    return KdaInputs(*(x.transpose(0, 1).unsqueeze(0) for x in (q, k, v, decay, beta)))


def stepwise(inputs: KdaInputs, state: Tensor) -> tuple[Tensor, Tensor]:
    """The recurrence, token by token; the state after the last."""
    out, states = recurrent_delta_rule(inputs, state)
    return out, states[:, -1]


def chunk_solve(inputs: KdaInputs, state: Tensor, *, chunk: int = 16) -> tuple[Tensor, Tensor]:
    """Chunk by chunk, each with one triangular solve; exponents are differences, never positive."""
    outs = []
    for start in range(0, inputs.q.shape[2], chunk):
        q, k, v, g, beta = (x[:, :, start : start + chunk] for x in inputs)
        total = g.cumsum(2)
        gap = total.unsqueeze(3) - total.unsqueeze(2)
        causal = torch.ones(gap.shape[2:4], dtype=torch.bool, device=gap.device).tril()
        fade = torch.where(causal[..., None], gap, -torch.inf).exp()
        recall = torch.einsum("bhtc,bhsc,bhtsc->bhts", k, k, fade).tril(-1)
        system = torch.eye(k.shape[2], device=k.device) + beta.unsqueeze(-1) * recall
        missing = beta.unsqueeze(-1) * (v - (k * total.exp()) @ state)
        written = torch.linalg.solve_triangular(system, missing, upper=False)
        read = torch.einsum("bhtc,bhsc,bhtsc->bhts", q, k, fade)
        outs.append((q * total.exp()) @ state + read @ written)
        last = total[:, :, -1:]
        state = last.exp().mT * state + (k * (last - total).exp()).mT @ written
    return torch.cat(outs, 2), state


def chunk_bfloat16(inputs: KdaInputs, state: Tensor, *, chunk: int = 64) -> tuple[Tensor, Tensor]:
    """Chunk by chunk as a tensor-core kernel does it: operands of products rounded to bfloat16.

    The triangular inverse, the corrected values and the state that is read are rounded too;
    sums, exponents and the carried state stay float32. Emulates the roundings of fla's
    ``chunk_kda`` under bfloat16 inputs.
    """

    def held(x: Tensor) -> Tensor:
        return x.to(torch.bfloat16).float()

    outs = []
    for start in range(0, inputs.q.shape[2], chunk):
        q, k, v, g, beta = (x[:, :, start : start + chunk] for x in inputs)
        q, k, v = held(q), held(k), held(v)
        total = g.cumsum(2)
        gap = total.unsqueeze(3) - total.unsqueeze(2)
        causal = torch.ones(gap.shape[2:4], dtype=torch.bool, device=gap.device).tril()
        fade = torch.where(causal[..., None], gap, -torch.inf).exp()
        recall = torch.einsum("bhtc,bhsc,bhtsc->bhts", k, k, fade).tril(-1)
        system = torch.eye(k.shape[2], device=k.device) + beta.unsqueeze(-1) * recall
        eye = torch.eye(k.shape[2], device=k.device).expand_as(system)
        inverse = held(torch.linalg.solve_triangular(system, eye, upper=False))
        values = held(inverse @ held(beta.unsqueeze(-1) * v))
        keys = held(inverse @ held(beta.unsqueeze(-1) * k * total.exp()))
        written = held(values - keys @ held(state))
        read = held(torch.einsum("bhtc,bhsc,bhtsc->bhts", q, k, fade))
        outs.append(held(q * total.exp()) @ held(state) + read @ written)
        last = total[:, :, -1:]
        state = last.exp().mT * state + held(k * (last - total).exp()).mT @ written
    return torch.cat(outs, 2), state


def kda_packed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    f: Tensor,
    b: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    lower_bound: float,
    initial_state: Tensor | None,
    cu_seqlens: Tensor,
    *,
    rule: Rule,
    gate: Callable[..., tuple[Tensor, Tensor]] = kda_gate,
    v_first: bool = False,
    state_dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """``kda_chunk`` by a rule, sequence by sequence."""
    out = v.new_zeros(v.shape)
    states = []
    inputs = delta_inputs(q, k, v, gate(f, b, a_log, dt_bias, lower_bound))
    bounds = cu_seqlens.tolist()
    for n, (start, end) in enumerate(itertools.pairwise(bounds)):
        if initial_state is None:
            state = v.new_zeros((1, q.shape[1], q.shape[2], v.shape[2]), dtype=torch.float32)
        else:
            state = initial_state[n : n + 1].float()
            state = state.mT if v_first else state
        if end > start:
            part = KdaInputs(*(x[:, :, start:end] for x in inputs))
            read, state = rule(part, state)
            out[start:end] = read[0].transpose(0, 1).to(out.dtype)
        states.append(state.mT if v_first else state)
    return out, torch.cat(states).to(state_dtype).clone(memory_format=torch.contiguous_format)


def kda_slots(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    f: Tensor,
    b: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    lower_bound: float,
    states: Tensor | None,
    slots: Tensor | None,
    cu_seqlens: Tensor,
    *,
    rule: Rule = stepwise,
    gate: Callable[..., tuple[Tensor, Tensor]] = kda_gate,
    v_first: bool = False,
    state_dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """``kda_recurrent``: the states of ``slots`` gathered, then ``kda_packed``."""
    initial = None if states is None or slots is None else states[slots]
    packed = (q, k, v, f, b, a_log, dt_bias, lower_bound, initial, cu_seqlens)
    return kda_packed(*packed, rule=rule, gate=gate, v_first=v_first, state_dtype=state_dtype)


def _model_chunk(inputs: KdaInputs, state: Tensor) -> tuple[Tensor, Tensor]:
    return chunk_delta_rule(inputs, state, chunk=16)


_V_FIRST = {"layout": "v_first"}

IMPLEMENTATIONS: tuple[Implementation, ...] = (
    Implementation(
        name="torch:solve16",
        op="kda_chunk",
        function=partial(kda_packed, rule=chunk_solve),
        title="chunks of 16, one triangular solve each, float32",
    ),
    Implementation(
        name="torch:solve64",
        op="kda_chunk",
        function=partial(kda_packed, rule=partial(chunk_solve, chunk=64)),
        title="chunks of 64, one triangular solve each, float32",
    ),
    Implementation(
        name="torch:recurrent",
        op="kda_chunk",
        function=partial(kda_packed, rule=stepwise),
        title="token by token, float32",
    ),
    Implementation(
        name="torch:bfloat16-products",
        op="kda_chunk",
        function=partial(kda_packed, rule=chunk_bfloat16),
        title="chunks of 64, operands of products rounded to bfloat16",
        emulates="fla chunk_kda under bfloat16 inputs",
        settings={"products": "bfloat16"},
    ),
    Implementation(
        name="torch:model",
        op="kda_chunk",
        function=partial(kda_packed, rule=_model_chunk),
        title="the reference path's chunked prefill (validate.models)",
    ),
    Implementation(
        name="torch:recurrent",
        op="kda_recurrent",
        function=kda_slots,
        title="the reference path's decode (validate.models), float32",
    ),
    Implementation(
        name="torch:recurrent-v-first",
        op="kda_recurrent",
        function=partial(kda_slots, v_first=True),
        title="the same over V-first states",
        settings=_V_FIRST,
    ),
    Implementation(
        name="torch:lower-bound",
        op="kda_gate",
        function=kda_gate,
        title="lower-bound gate and beta, float32",
    ),
    Implementation(
        name="torch:shifted-sum",
        op="short_conv",
        function=short_conv,
        title="one shifted product a tap, float32",
    ),
    Implementation(
        name="torch:conv1d",
        op="short_conv",
        function=short_conv_grouped,
        title="the framework's grouped convolution, float32",
    ),
    Implementation(
        name="torch:model",
        op="attn_res",
        function=attn_res,
        title="the reference path's residual mix (validate.models)",
    ),
    Implementation(
        name="torch:sigmoid-top-k",
        op="moe_route",
        function=moe_route,
        title="stable sort of sigmoid + bias, float32, padded rows masked",
        settings={"ties": "lowest_index"},
    ),
    Implementation(
        name="torch:weighted-sum",
        op="moe_combine",
        function=moe_combine,
        title="weighted sum, float32, slots with id -1 skipped",
    ),
    Implementation(
        name="torch:model",
        op="situ",
        function=situ,
        title="the reference path's activation (validate.models)",
    ),
    Implementation(
        name="torch:model",
        op="rms_norm",
        function=rms_norm,
        title="the reference path's norm (validate.models), gated too",
    ),
)
"""Ours."""
