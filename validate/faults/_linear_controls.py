"""Right implementations that differ from ours for a legitimate reason: none may be flagged."""

from collections.abc import Callable
from functools import partial
from typing import Any

from validate.faults.operations import OperationControl

__all__ = ["CONTROLS"]

Function = Callable[..., Any]


def _other_chunk() -> Function:
    from validate.conformance.engines.torch_linear import chunk_solve, kda_packed

    return partial(kda_packed, rule=partial(chunk_solve, chunk=24))


def _products_in_bfloat16() -> Function:
    from validate.conformance.engines.torch_linear import chunk_bfloat16, kda_packed

    return partial(kda_packed, rule=chunk_bfloat16)


def _state_in_bfloat16() -> Function:
    import torch

    from validate.conformance.engines.torch_linear import chunk_solve, kda_packed
    from validate.models.kda import KdaInputs

    def rule(inputs: Any, state: Any) -> Any:
        outs = []
        for start in range(0, inputs.q.shape[2], 16):
            part = KdaInputs(*(x[:, :, start : start + 16] for x in inputs))
            out, state = chunk_solve(part, state)
            state = state.to(torch.bfloat16).float()
            outs.append(out)
        return torch.cat(outs, 2), state

    return partial(kda_packed, rule=rule, state_dtype=torch.bfloat16)


def _stepwise_state_in_bfloat16() -> Function:
    import torch

    from validate.conformance.engines.torch_linear import kda_slots, stepwise
    from validate.models.kda import KdaInputs

    def rule(inputs: Any, state: Any) -> Any:
        outs = []
        for t in range(inputs.q.shape[2]):
            out, state = stepwise(KdaInputs(*(x[:, :, t : t + 1] for x in inputs)), state)
            state = state.to(torch.bfloat16).float()
            outs.append(out)
        return torch.cat(outs, 2), state

    return partial(kda_slots, rule=rule, state_dtype=torch.bfloat16)


def _value_first() -> Function:
    from validate.conformance.engines.torch_linear import kda_slots

    return partial(kda_slots, v_first=True)


def _beta_in_bfloat16() -> Function:
    from validate.faults._linear_delta import biased_beta

    return biased_beta()


def _updated_in_place() -> Function:
    from validate.conformance.engines.torch_linear import kda_slots

    def wrapped(states: Any, slots: Any, **arguments: Any) -> Any:
        if states is None:
            return kda_slots(states=None, slots=None, **arguments)
        pool = states.clone()
        out, final = kda_slots(states=pool, slots=slots, **arguments)
        pool[slots] = final
        return out, pool[slots]

    return wrapped


def _first_index_last() -> Function:
    """Among equals the highest index wins."""
    from validate.conformance.engines._torch_elementwise import moe_route

    def choose(logits: Any, correction_bias: Any, **arguments: Any) -> Any:
        ids, weights = moe_route(
            logits=logits.flip(1), correction_bias=correction_bias.flip(0), **arguments
        )
        mirrored = logits.shape[1] - 1 - ids
        return mirrored.where(ids >= 0, ids), weights

    return choose


def _unsorted() -> Function:
    """Chosen experts by index."""
    from validate.conformance.engines._torch_elementwise import moe_route

    def choose(**arguments: Any) -> Any:
        ids, weights = moe_route(**arguments)
        order = ids.argsort(1)
        return ids.gather(1, order), weights.gather(1, order)

    return choose


def _products_of_sums() -> Function:
    """Score as (sum of c w p) times the reciprocal root, norm and proj multiplied beforehand."""
    import torch

    def mix(bank: Any, prefix: Any, norm: Any, proj: Any, eps: float) -> Any:
        if len(bank) == 0:
            return prefix.clone()
        c = torch.cat([bank, prefix.unsqueeze(0)]).float()
        fused = (norm * proj).float()
        scores = (c @ fused) * torch.rsqrt(c.square().mean(-1) + eps)
        return (torch.softmax(scores, 0).unsqueeze(-1) * c).sum(0).to(prefix.dtype)

    return mix


def _rounded_before_weight() -> Function:
    """The normed row is rounded to the dtype of x before it is scaled, as HF's norms do."""
    import torch

    def norm(x: Any, weight: Any, eps: float, gate: Any) -> Any:
        wide = x.float()
        normed = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype)
        y = weight * normed
        return y if gate is None else (y.float() * torch.sigmoid(gate.float())).to(x.dtype)

    return norm


def _taps_backwards() -> Function:
    """Taps summed from the newest to the oldest."""
    from validate.conformance.engines._torch_elementwise import short_conv

    def convolve(window: Any, weight: Any) -> Any:
        import torch

        tokens = window.shape[0] - weight.shape[1] + 1
        taps = range(weight.shape[1] - 1, -1, -1)
        total = sum(window[j : j + tokens].float() * weight[:, j].float() for j in taps)
        return torch.nn.functional.silu(total)

    return partial(short_conv, convolve=convolve)


def _control(
    id_: str, op: str, title: str, make: Callable[[], Function], source: str, **settings: str
) -> OperationControl:
    return OperationControl(id=id_, op=op, title=title, source=source, settings=settings, make=make)


_ORDER = "OK-1 and OK-7: another order of one float32 sum"
_STATE = "OK-8 and LA-08: a declared deviation of known size"

CONTROLS: tuple[OperationControl, ...] = (
    _control("OK-7", "kda_chunk", "Chunks of 24 instead of 16", _other_chunk, _ORDER),
    _control(
        "OK-VX-50",
        "kda_chunk",
        "Operands of products rounded to bfloat16, as tensor cores take them",
        _products_in_bfloat16,
        "fla chunk_kda; declared for float32 inputs, inside the contract for bfloat16 ones",
        products="bfloat16",
    ),
    _control(
        "OK-8",
        "kda_chunk",
        "bfloat16 states between chunks, declared",
        _state_in_bfloat16,
        _STATE,
        state="bfloat16",
    ),
    _control(
        "OK-8",
        "kda_recurrent",
        "bfloat16 state after every token, declared",
        _stepwise_state_in_bfloat16,
        _STATE,
        state="bfloat16",
    ),
    _control(
        "OK-VX-51",
        "kda_recurrent",
        "V-first states, declared",
        _value_first,
        "ATOM and fla keep V-first states for serving",
        layout="v_first",
    ),
    _control(
        "OK-VX-52",
        "kda_recurrent",
        "beta rounded to bfloat16, declared",
        _beta_in_bfloat16,
        "fla's layer computes beta in the dtype of the model",
        beta="bfloat16",
    ),
    _control(
        "OK-VX-53",
        "kda_recurrent",
        "A pool updated in place, wrapped by a clone",
        _updated_in_place,
        "vLLM and sglang update the state pool in place",
    ),
    _control(
        "OK-6",
        "moe_route",
        "Another index among equal scores",
        _first_index_last,
        "vllm-project/vllm#15478 comment, pytorch/pytorch#150012",
    ),
    _control(
        "OK-VX-54",
        "moe_route",
        "Experts by index, declared",
        _unsorted,
        "aiter's grouped top-k returns experts unsorted",
        sorted="any",
    ),
    _control(
        "OK-VX-55",
        "attn_res",
        "norm and proj multiplied in the dtype of the stream, declared",
        _products_of_sums,
        "This project's reference path before it widened the scores",
        weights="input",
    ),
    _control(
        "OK-VX-56",
        "rms_norm",
        "One more rounding, before the weight",
        _rounded_before_weight,
        "HF transformers' RMSNorm modules",
    ),
    _control("OK-7", "short_conv", "Taps summed backwards", _taps_backwards, _ORDER),
)
"""Every control of these operations."""
