"""Makers of faulty KDA implementations: each is ours with the one line wrong.

torch and our implementations are imported inside the makers only.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

__all__ = [
    "biased_beta",
    "boundary_lost",
    "carried_transposed",
    "decay_after_update",
    "exponents_of_one_sign",
    "first_head_gate",
    "half_state",
    "half_state_steps",
    "inverse_by_powers",
    "mask_by_tile",
    "no_scale",
    "padding_divides",
    "replayed_zeros",
    "sequences_joined",
    "slot_in_wrong_unit",
    "softplus_gate",
    "state_forgotten",
    "state_read_transposed",
    "tail_skipped",
    "unguarded_norm",
]

Function = Callable[..., Any]


def _chunked(between: Callable[[Any], Any], chunk: int = 16) -> Function:
    """``kda_chunk`` that does ``between`` to the state at every chunk boundary."""
    import torch

    from validate.conformance.engines.torch_linear import chunk_solve, kda_packed
    from validate.models.kda import KdaInputs

    def rule(inputs: Any, state: Any) -> Any:
        outs = []
        for start in range(0, inputs.q.shape[2], chunk):
            if start:
                state = between(state)
            part = KdaInputs(*(x[:, :, start : start + chunk] for x in inputs))
            out, state = chunk_solve(part, state, chunk=chunk)
            outs.append(out)
        return torch.cat(outs, 2), state

    return partial(kda_packed, rule=rule)


def carried_transposed() -> Function:
    """S becomes its transpose between chunks."""
    return _chunked(lambda state: state.mT.reshape(state.shape))


def boundary_lost() -> Function:
    """S becomes zero between chunks."""
    return _chunked(lambda state: state * 0.0)


def half_state() -> Function:
    """S is rounded to float16 between chunks."""
    return _chunked(lambda state: state.half().float())


def state_forgotten() -> Function:
    """The initial state is not read: every call starts from zeros."""
    from validate.conformance.engines.torch_linear import chunk_solve, kda_packed

    return partial(kda_packed, rule=lambda inputs, state: chunk_solve(inputs, state * 0.0))


def state_read_transposed() -> Function:
    """A V-first state is read as a K-first one."""
    from validate.conformance.engines.torch_linear import chunk_solve, kda_packed

    def rule(inputs: Any, state: Any) -> Any:
        return chunk_solve(inputs, state.mT.reshape(state.shape))

    return partial(kda_packed, rule=rule)


def padding_divides() -> Function:
    """Rows that fill up a short chunk are normalised without eps: 0/0 in the triangular system."""
    import torch
    from torch.nn import functional as nnf

    from validate.conformance.engines.torch_linear import chunk_solve, kda_packed
    from validate.models.kda import KdaInputs

    def rule(inputs: Any, state: Any) -> Any:
        tokens, chunk = inputs.q.shape[2], 16
        if tokens >= chunk:
            return chunk_solve(inputs, state, chunk=chunk)
        pad = chunk - tokens
        q, k, v, g = (nnf.pad(x, (0, 0, 0, pad)) for x in inputs[:4])
        k = k / torch.sqrt(k.square().sum(-1, keepdim=True))
        filled = KdaInputs(q, k, v, g, nnf.pad(inputs.beta, (0, pad)))
        out, state = chunk_solve(filled, state, chunk=chunk)
        return out[:, :, :tokens], state

    return partial(kda_packed, rule=rule)


def sequences_joined() -> Function:
    """The recurrence ignores cu_seqlens: a sequence starts from its predecessor's state."""
    import torch

    from validate.conformance.engines.torch_linear import chunk_solve, kda_packed

    def packed(cu_seqlens: Any, initial_state: Any, **arguments: Any) -> Any:
        ends = torch.stack([cu_seqlens[0], cu_seqlens[-1]])
        first = None if initial_state is None else initial_state[:1]
        out, state = kda_packed(cu_seqlens=ends, initial_state=first, rule=chunk_solve, **arguments)
        return out, state.repeat(len(cu_seqlens) - 1, 1, 1, 1)

    return packed


def tail_skipped() -> Function:
    """Tokens past the grid limit are not computed (64 here, 65,536 in the kernel)."""
    from validate.conformance.engines.torch_linear import chunk_solve, kda_packed

    def rule(inputs: Any, state: Any) -> Any:
        out, state = chunk_solve(inputs, state)
        out[:, :, 64:] = 0.0
        return out, state

    return partial(kda_packed, rule=rule)


def mask_by_tile() -> Function:
    """The causal mask of the read-out is decided by the start of a tile that straddles chunks."""
    import torch

    from validate.conformance.engines.torch_linear import kda_packed

    chunk, tile = 48, 32

    def one_chunk(parts: Any, state: Any) -> Any:
        q, k, v, g, beta = parts
        size = k.shape[2]
        total = g.cumsum(2)
        gap = (total.unsqueeze(3) - total.unsqueeze(2)).exp().clamp_max(1e4)
        row, column = torch.arange(size)[:, None], torch.arange(size)[None, :]
        causal = row >= column
        below = torch.einsum("bhtc,bhsc,bhtsc->bhts", k, k, gap) * (row > column)
        system = torch.eye(size) + beta.unsqueeze(-1) * below
        missing = beta.unsqueeze(-1) * (v - (k * total.exp()) @ state)
        written = torch.linalg.solve_triangular(system, missing, upper=False)
        # The wrong line: in the last, partial tile of a chunk the mask is skipped.
        seen = causal | ((row // tile == chunk // tile) & (column // tile == chunk // tile))
        read = torch.einsum("bhtc,bhsc,bhtsc->bhts", q, k, gap) * seen
        out = (q * total.exp()) @ state + read @ written
        last = total[:, :, -1:]
        return out, last.exp().mT * state + (k * (last - total).exp()).mT @ written

    def rule(inputs: Any, state: Any) -> Any:
        outs = []
        for start in range(0, inputs.q.shape[2], chunk):
            out, state = one_chunk([x[:, :, start : start + chunk] for x in inputs], state)
            outs.append(out)
        return torch.cat(outs, 2), state

    return partial(kda_packed, rule=rule)


def exponents_of_one_sign() -> Function:
    """Keys carry e^-G over a whole chunk of 64 instead of differences: it overflows."""
    import torch

    from validate.conformance.engines.torch_linear import kda_packed

    def rule(inputs: Any, state: Any) -> Any:
        outs = []
        for start in range(0, inputs.q.shape[2], 64):
            q, k, v, g, beta = (x[:, :, start : start + 64] for x in inputs)
            total = g.cumsum(2)
            rise, fall = total.exp(), (-total).exp()
            below = ((k * rise) @ (k * fall).mT).tril(-1)
            system = torch.eye(k.shape[2]) + beta.unsqueeze(-1) * below
            missing = beta.unsqueeze(-1) * (v - (k * rise) @ state)
            written = torch.linalg.solve_triangular(system, missing, upper=False)
            outs.append((q * rise) @ state + ((q * rise) @ (k * fall).mT).tril() @ written)
            last = total[:, :, -1:]
            state = last.exp().mT * state + (k * (last - total).exp()).mT @ written
        return torch.cat(outs, 2), state

    return partial(kda_packed, rule=rule)


def inverse_by_powers() -> Function:
    """The triangular inverse as (I-A)(I+A^2)(I+A^4)(I+A^8), whose terms cancel on runs of one key."""
    import torch

    from validate.conformance.engines.torch_linear import kda_packed

    def rule(inputs: Any, state: Any) -> Any:
        outs = []
        for start in range(0, inputs.q.shape[2], 16):
            q, k, v, g, beta = (x[:, :, start : start + 16] for x in inputs)
            total = g.cumsum(2)
            fade = (total.unsqueeze(3) - total.unsqueeze(2)).clamp_max(0.0).exp()
            A = beta.unsqueeze(-1) * torch.einsum("bhtc,bhsc,bhtsc->bhts", k, k, fade).tril(-1)
            inverse, power = torch.eye(k.shape[2]) - A, A @ A
            for _ in range(3):
                inverse, power = inverse + inverse @ power, power @ power
            written = inverse @ (beta.unsqueeze(-1) * (v - (k * total.exp()) @ state))
            read = torch.einsum("bhtc,bhsc,bhtsc->bhts", q, k, fade).tril()
            outs.append((q * total.exp()) @ state + read @ written)
            last = total[:, :, -1:]
            state = last.exp().mT * state + (k * (last - total).exp()).mT @ written
        return torch.cat(outs, 2), state

    return partial(kda_packed, rule=rule)


def _stepped(step: Callable[[Any, Any, Any, Any, Any, Any], Any]) -> Function:
    """A rule that calls ``step`` (state, q, k, v, decay, beta of one token) for output and state."""
    import torch

    def rule(inputs: Any, state: Any) -> Any:
        outs = []
        for t in range(inputs.q.shape[2]):
            q, k, v = (x[:, :, t].unsqueeze(-2) for x in inputs[:3])
            decay = inputs.log_decay[:, :, t].exp().unsqueeze(-1)
            out, state = step(state, q, k, v, decay, inputs.beta[:, :, t, None, None])
            outs.append(out)
        return torch.cat(outs, 2), state

    return rule


def decay_after_update() -> Function:
    """The decay is applied after the update instead of before it."""
    from validate.conformance.engines.torch_linear import kda_slots

    def step(state: Any, q: Any, k: Any, v: Any, decay: Any, beta: Any) -> Any:
        state = decay * (state + k.mT @ (beta * (v - k @ state)))
        return q @ state, state

    return partial(kda_slots, rule=_stepped(step))


def half_state_steps() -> Function:
    """S is rounded to bfloat16 after every token."""
    import torch

    from validate.conformance.engines.torch_linear import kda_slots

    def step(state: Any, q: Any, k: Any, v: Any, decay: Any, beta: Any) -> Any:
        state = decay * state
        state = (state + k.mT @ (beta * (v - k @ state))).to(torch.bfloat16).float()
        return q @ state, state

    return partial(kda_slots, rule=_stepped(step))


def slot_in_wrong_unit() -> Function:
    """The slot index is divided by the smaller of two block sizes."""
    from validate.conformance.engines.torch_linear import kda_slots

    def slots_of(slots: Any, **arguments: Any) -> Any:
        return kda_slots(slots=None if slots is None else slots // 2, **arguments)

    return slots_of


def replayed_zeros() -> Function:
    """The final state is replayed from buffers of k and v that nobody wrote: it only decays."""
    from validate.conformance.engines.torch_linear import kda_slots

    def replayed(k: Any, v: Any, **arguments: Any) -> Any:
        out, _ = kda_slots(k=k, v=v, **arguments)
        _, state = kda_slots(k=k * 0.0, v=v * 0.0, **arguments)
        return out, state

    return replayed


def softplus_gate() -> Function:
    """The lower bound does not reach this variant: g = -exp(A_log) softplus(f + dt_bias)."""
    import torch
    from torch.nn import functional as nnf

    from validate.conformance.engines.torch_linear import kda_slots

    def gate(f: Any, b: Any, a_log: Any, dt_bias: Any, _: float) -> Any:
        return -a_log.exp().unsqueeze(-1) * nnf.softplus(f.float() + dt_bias), torch.sigmoid(b)

    return partial(kda_slots, gate=gate)


def biased_beta() -> Function:
    """Beta is rounded to bfloat16 before the recurrence."""
    import torch

    from validate.conformance.engines._torch_elementwise import kda_gate
    from validate.conformance.engines.torch_linear import kda_slots

    def gate(*arguments: Any) -> Any:
        decay, beta = kda_gate(*arguments)
        return decay, beta.to(torch.bfloat16).float()

    return partial(kda_slots, gate=gate)


def first_head_gate() -> Function:
    """A_log is read from the first head of the checkpoint for every head."""
    from validate.conformance.engines._torch_elementwise import kda_gate
    from validate.conformance.engines.torch_linear import kda_slots

    def gate(f: Any, b: Any, a_log: Any, dt_bias: Any, lower_bound: float) -> Any:
        return kda_gate(f, b, a_log[:1].expand_as(a_log), dt_bias, lower_bound)

    return partial(kda_slots, gate=gate)


def no_scale() -> Function:
    """Q keeps its unit length: key^-0.5 is missing."""
    from validate.conformance.engines.torch_linear import kda_slots, stepwise

    def rule(inputs: Any, state: Any) -> Any:
        return stepwise(inputs._replace(q=inputs.q * inputs.q.shape[-1] ** 0.5), state)

    return partial(kda_slots, rule=rule)


def unguarded_norm() -> Function:
    """Q and k are divided by their length without eps: rows of zeros become NaN."""
    from validate.conformance.engines.torch_linear import kda_slots

    def divided(q: Any, k: Any, **arguments: Any) -> Any:
        q, k = (x.float() / x.float().norm(dim=-1, keepdim=True) for x in (q, k))
        return kda_slots(q=q, k=k, **arguments)

    return divided
