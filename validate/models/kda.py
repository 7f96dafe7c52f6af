"""Kimi Delta Attention: short convolution, lower-bound gate, chunked prefill, recurrent decode."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as nnf

from validate.models.ops import linear, linear_accumulate, rms_norm
from validate.models.options import PathOptions
from validate.models.trace import Silent, Trace
from validate.schema import ModelConfig

__all__ = [
    "KdaInputs",
    "KdaState",
    "KdaSteps",
    "chunk_delta_rule",
    "kda_layer",
    "recurrent_delta_rule",
]

L2_EPS = 1e-6
"""Inside the root of the q and k normalisation; fla ``naive_recurrent_kda``."""


class KdaState(NamedTuple):
    """State of one KDA layer."""

    recurrent: Tensor
    """(batch, heads, key, value), float32 under bfloat16; K-first."""
    conv: Tensor
    """(batch, 3, channels, taps): the last ``conv_kernel - 1`` inputs of q, k, v, oldest first."""


class KdaSteps(NamedTuple):
    """Snapshots of one KDA layer, one after every token of a pass."""

    recurrent: Tensor
    """(batch, tokens, heads, key, value) in the dtype that states are stored in."""
    conv: Tensor
    """(batch, 3, channels, taps + tokens): the history before the pass, then its inputs."""

    def after(self, counts: Tensor, before: KdaState, *, fault: str | None = None) -> KdaState:
        """The state after the first ``counts[b]`` tokens of each row; 0 gives ``before``."""
        tokens = self.recurrent.shape[1]
        taps = self.conv.shape[-1] - tokens
        fed, stepped_by = self._counts(counts, fault)
        index = fed.unsqueeze(1) + torch.arange(taps, device=counts.device)
        index = index[:, None, None].expand(-1, *self.conv.shape[1:3], -1)
        row = torch.arange(len(counts), device=counts.device)
        stepped = self.recurrent[row, (stepped_by - 1).clamp(0, tokens - 1)]
        kept = torch.where((counts > 0).view(-1, 1, 1, 1), stepped, before.recurrent)
        return KdaState(kept, self.conv.gather(3, index))

    def _counts(self, counts: Tensor, fault: str | None) -> tuple[Tensor, Tensor]:
        """Tokens that the conv history and the recurrent snapshot are taken after."""
        whole = torch.where(counts > 0, self.recurrent.shape[1], 0)
        if fault == "LA-05":  # a cache that cannot be trimmed is left as it is
            return whole, whole
        if fault == "LA-03":  # the length of the conv history clamps the checkpoint too
            clamped = counts.clamp(max=self.conv.shape[-1] - self.recurrent.shape[1])
            return clamped, clamped
        if fault == "VX-17":  # counted from 1 where snapshots are counted from 0
            return counts, torch.where(counts > 0, counts + 1, 0)
        if fault == "VX-18":  # the history ends with rejected drafts
            return whole, counts
        return counts, counts


class KdaInputs(NamedTuple):
    """What the delta rule reads; accumulation dtype, (batch, heads, tokens, ...)."""

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor
    beta: Tensor
    """(batch, heads, tokens)."""


def short_convolution(x: Tensor, history: Tensor, weight: Tensor) -> Tensor:
    """Causal depthwise convolution and SiLU: ``y_t = silu(sum_j weight[:, j] x_{t-taps+j})``.

    Args:
        x: (batch, tokens, channels).
        history: the inputs before ``x``, (batch, channels, taps), oldest first.
        weight: (channels, taps + 1); the last column multiplies the current token.

    Returns:
        (batch, tokens, channels) in the dtype of ``x``; sums are wide.
    """
    wide = weight.dtype
    padded = torch.cat([history.to(wide).transpose(1, 2), x.to(wide)], dim=1)
    tokens = x.shape[1]
    out = sum(padded[:, j : j + tokens] * weight[:, j] for j in range(weight.shape[1]))
    return nnf.silu(torch.as_tensor(out)).to(x.dtype)


def next_history(x: Tensor, history: Tensor, lengths: Tensor) -> Tensor:
    """The last ``taps`` inputs after ``lengths[b]`` valid tokens of each row, oldest first."""
    taps = history.shape[-1]
    padded = torch.cat([history, x.to(history.dtype).transpose(1, 2)], dim=-1)
    index = lengths.unsqueeze(1) + torch.arange(taps, device=x.device)
    return padded.gather(2, index.unsqueeze(1).expand(-1, padded.shape[1], -1))


def lower_bound_log_decay(f: Tensor, a_log: Tensor, dt_bias: Tensor, *, bound: float) -> Tensor:
    """``bound * sigmoid(exp(A_log) * (f + dt_bias))``, within (bound, 0); per key channel.

    Args:
        f: (batch, tokens, heads, key).
        a_log: (heads,).
        dt_bias: (heads * key,).
        bound: the negative lower bound, -5 in K3.
    """
    rate = a_log.exp().to(f.dtype).view(-1, 1)
    return bound * torch.sigmoid(rate * (f + dt_bias.to(f.dtype).view(f.shape[-2:])))


def recurrent_delta_rule(inputs: KdaInputs, state: Tensor) -> tuple[Tensor, Tensor]:
    """Token by token: ``S <- Diag(exp g) S; S <- S + beta k (v - S^T k)^T; o = S^T q``.

    Returns:
        Outputs (batch, heads, tokens, value) and the states after every token,
        (batch, tokens, heads, key, value).
    """
    outputs, states = [], []
    for t in range(inputs.q.shape[2]):
        k = inputs.k[:, :, t].unsqueeze(-1)
        state = state * inputs.log_decay[:, :, t].exp().unsqueeze(-1)
        missing = inputs.v[:, :, t] - (state * k).sum(-2)
        state = state + k * (inputs.beta[:, :, t, None] * missing).unsqueeze(-2)
        outputs.append((state * inputs.q[:, :, t].unsqueeze(-1)).sum(-2))
        states.append(state)
    return torch.stack(outputs, dim=2), torch.stack(states, dim=1)


def scan_chunks(
    transition: Tensor, update: Tensor, state: Tensor, *, fault: str | None = None
) -> tuple[Tensor, Tensor]:
    """``S_{n+1} = transition_n S_n + update_n`` over axis 2; returns every S_n and the last S."""
    before = []
    for n in range(transition.shape[2]):
        if n and fault == "LA-01":  # written K-first, read V-first by the next chunk
            state = state.mT
        before.append(state)
        state = transition[:, :, n] @ state + update[:, :, n]
    return torch.stack(before, dim=2), state


Scan = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def _solve_unit_lower(lower: Tensor, right: Tensor) -> Tensor:
    """X of ``(I + tril(lower, -1)) X = right``, row by row (forward substitution).

    Args:
        lower: (..., n, n); what stands on and above the diagonal is not read.
        right: (..., n, columns).
    """
    solved = right[..., :1, :]
    for t in range(1, right.shape[-2]):
        row = right[..., t : t + 1, :] - lower[..., t : t + 1, :t] @ solved
        solved = torch.cat([solved, row], dim=-2)
    return solved


def chunk_delta_rule(
    inputs: KdaInputs, state: Tensor, *, chunk: int, scan: Scan = scan_chunks
) -> tuple[Tensor, Tensor]:
    """The same recurrence chunk by chunk (UT transform), for prefill.

    With G the running sum of log decays inside a chunk and U the corrected
    values, ``(I + beta tril(K+ K-^T, -1)) U = beta (V - K+ S)``,
    ``O = Q+ S + tril(Q+ K-^T) U`` and ``S' = Diag(e^{G_C}) S + (K e^{G_C - G})^T U``,
    where ``K+ = K e^{G-m}``, ``K- = K e^{m-G}`` and m centres the exponents so
    that both stay in range for chunks of at most 16 (|log decay| < 5). U is
    solved by forward substitution: a product of powers of the matrix has
    binomials of the chunk in it, which on a run of one key cancel and take
    four digits of float32 with them.

    Args:
        inputs: any number of tokens; padding tokens carry beta 0 and decay 0.
        state: (batch, heads, key, value).
        chunk: tokens per chunk, at most 16.
        scan: how states pass from chunk to chunk (training fuses it into one op).

    Returns:
        Outputs (batch, heads, tokens, value) and the state after the last token.

    Source:
        Recurrence as fla ``naive_recurrent_kda``; the chunked form is derived here.
    """
    tokens = inputs.q.shape[2]
    pad = -tokens % chunk
    q, k, v, g = (
        nnf.pad(x, (0, 0, 0, pad)).unflatten(2, (-1, chunk))
        for x in (inputs.q, inputs.k, inputs.v, inputs.log_decay)
    )
    beta = nnf.pad(inputs.beta, (0, pad)).unflatten(2, (-1, chunk)).unsqueeze(-1)
    total = g.cumsum(-2)
    last = total[..., -1:, :]
    rise, fall = (total - last / 2).exp(), (last / 2 - total).exp()
    k_rise, k_fall, q_rise = k * rise, k * fall, q * rise
    k_plus, q_plus = k * total.exp(), q * total.exp()
    from_values, from_state = _solve_unit_lower(
        beta * (k_rise @ k_fall.mT), beta * torch.cat([v, k_plus], dim=-1)
    ).split([v.shape[-1], k.shape[-1]], dim=-1)
    k_end = (k * (last - total).exp()).mT
    transition = torch.diag_embed(last.squeeze(-2).exp()) - k_end @ from_state
    before, state = scan(transition, k_end @ from_values, state)
    corrected = from_values - from_state @ before
    out = q_plus @ before + (q_rise @ k_fall.mT).tril() @ corrected
    return out.flatten(2, 3)[:, :, :tokens], state


def _heads_first(x: Tensor, heads: int) -> Tensor:
    return x.view(*x.shape[:-1], heads, -1).transpose(1, 2)


def kda_inputs(
    x: Tensor,
    history: Tensor,
    valid: Tensor,
    weights: Mapping[str, Tensor],
    *,
    config: ModelConfig,
    options: PathOptions,
) -> tuple[KdaInputs, list[Tensor]]:
    """Project, convolve, normalise and gate one layer's input.

    Args:
        x: (batch, tokens, hidden).
        history: convolution history (batch, 3, channels, taps).
        valid: (batch, tokens) bool; False marks padding, which must not touch the state.
        weights: this layer's weights, names after ``kda.``.
        config: dimensions.
        options: dtypes.

    Returns:
        The delta-rule inputs and the raw convolution inputs of q, k, v.
    """
    acc, heads = options.accumulate, config.heads
    raw = [linear(x, weights[f"{n}.weight"]) for n in "qkv"]
    q, k, v = (
        _heads_first(
            short_convolution(r, history[:, i], weights[f"{n}_conv.weight"].to(acc)), heads
        ).to(acc)
        for i, (n, r) in enumerate(zip("qkv", raw, strict=True))
    )
    q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + L2_EPS) * config.kda_head_dim**-0.5
    k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + L2_EPS)
    f = (
        linear(linear(x, weights["f_a.weight"]), weights["f_b.weight"])
        .to(acc)
        .unflatten(-1, (heads, -1))
    )
    decay = lower_bound_log_decay(
        f, weights["A_log"], weights["dt_bias"], bound=config.gate_lower_bound
    )
    beta = torch.sigmoid(linear_accumulate(x, weights["b.weight"], dtype=acc))
    decay = decay * valid[..., None, None]
    beta = beta * valid[..., None]
    return KdaInputs(q, k, v, decay.transpose(1, 2), beta.transpose(1, 2)), raw


def kda_layer(
    x: Tensor,
    state: KdaState,
    lengths: Tensor,
    weights: Mapping[str, Tensor],
    *,
    config: ModelConfig,
    options: PathOptions,
    decode: bool,
    place: str,
    trace: Trace | Silent,
    steps: dict[int, KdaSteps] | None = None,
    layer: int = 0,
) -> tuple[Tensor, KdaState]:
    """One KDA layer on (batch, tokens, hidden); ``lengths[b]`` tokens of row b are real.

    With ``steps`` the decode form leaves the snapshots after every token there, under ``layer``.

    Returns:
        The layer's output (batch, tokens, hidden) and the state after the real tokens.
    """
    valid = torch.arange(x.shape[1], device=x.device) < lengths.unsqueeze(1)
    if options.fault == "ND-06":  # rows that fill up the batch's shape write into the slot
        valid = torch.ones_like(valid)
    inputs, raw = kda_inputs(x, state.conv, valid, weights, config=config, options=options)
    recurrent, states = state.recurrent.to(options.accumulate), None
    if decode:
        trace.branch("kda.recurrent")
        out, states = recurrent_delta_rule(inputs, recurrent)
        recurrent = states[:, -1]
    else:
        trace.branch("kda.chunk")
        if options.fault == "LA-14":  # a piece of the prompt starts from nothing
            recurrent = torch.zeros_like(recurrent)
        scan = partial(scan_chunks, fault=options.fault)
        out, recurrent = chunk_delta_rule(inputs, recurrent, chunk=options.kda_chunk, scan=scan)
    if options.state == "bf16":
        recurrent = recurrent.to(torch.bfloat16)
        trace.branch(f"kda.state.{str(recurrent.dtype).removeprefix('torch.')}")
    conv = torch.stack(
        [next_history(r, state.conv[:, i], lengths) for i, r in enumerate(raw)], dim=1
    )
    if steps is not None and states is not None:
        fed = torch.stack([r.transpose(1, 2) for r in raw], dim=1).to(conv.dtype)
        steps[layer] = KdaSteps(states.to(recurrent.dtype), torch.cat([state.conv, fed], dim=-1))
    out = out.transpose(1, 2).to(x.dtype)
    trace.emit(f"{place}.out", out)
    acc = options.accumulate
    normed = rms_norm(
        out.to(acc), weights["o_norm.weight"], eps=config.rms_norm_eps, accumulate=acc
    )
    gate = torch.sigmoid(linear(x, weights["g.weight"]).to(acc))
    gated = (normed.flatten(2) * gate).to(x.dtype)
    return linear(gated, weights["o.weight"]), KdaState(recurrent, conv)
