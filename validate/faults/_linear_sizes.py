"""Makers of implementations that are wrong for some sizes or parameters only: ours elsewhere.

torch and our implementations are imported inside the makers only.
"""

from collections.abc import Callable
from typing import Any

__all__ = [
    "chunk_bound_fixed",
    "chunk_tokens_past_130",
    "chunk_whole_48",
    "conv_of_128",
    "conv_sequences_from_7",
    "five_choices",
    "gate_bound_fixed",
    "keys_past_32",
    "last_expert_never",
    "no_valid_rows",
    "norm_rows_from_64",
    "recurrent_batch_from_6",
    "recurrent_bound_fixed",
    "route_rows_from_67",
    "spoilt_chunk",
    "twelve_heads_of_128",
]

Function = Callable[..., Any]


def _chunk() -> Function:
    from functools import partial

    from validate.conformance.engines.torch_linear import chunk_solve, kda_packed

    return partial(kda_packed, rule=chunk_solve)


def _recurrent() -> Function:
    from functools import partial

    from validate.conformance.engines.torch_linear import kda_slots, stepwise

    return partial(kda_slots, rule=stepwise)


def norm_rows_from_64() -> Function:
    """Rows from 64 on are left as zeros."""
    from validate.conformance.engines._torch_elementwise import rms_norm

    def norm(**arguments: Any) -> Any:
        y = rms_norm(**arguments)
        y[64:] = 0
        return y

    return norm


def route_rows_from_67() -> Function:
    """Rows from 67 on repeat the choice of row 66."""
    from validate.conformance.engines._torch_elementwise import moe_route

    def choose(valid_rows: int, **arguments: Any) -> Any:
        ids, weights = moe_route(valid_rows=valid_rows, **arguments)
        ids[67:valid_rows], weights[67:valid_rows] = ids[66:67], weights[66:67]
        return ids, weights

    return choose


def last_expert_never() -> Function:
    """Expert 895 is never picked."""
    import torch

    from validate.conformance.engines._torch_elementwise import moe_route

    def choose(logits: Any, **arguments: Any) -> Any:
        if logits.shape[1] == 896:  # noqa: PLR2004  Kimi K3's experts
            logits = torch.cat([logits[:, :-1], torch.full_like(logits[:, :1], -1e4)], 1)
        return moe_route(logits=logits, **arguments)

    return choose


def five_choices() -> Function:
    """The fifth of five choices gets no weight."""
    from validate.conformance.engines._torch_elementwise import moe_route

    def choose(top_k: int, **arguments: Any) -> Any:
        ids, weights = moe_route(top_k=top_k, **arguments)
        if top_k == 5:  # noqa: PLR2004
            weights[:, 4] = 0
        return ids, weights

    return choose


def no_valid_rows() -> Function:
    """valid_rows of 0 is taken for no padding at all."""
    from validate.conformance.engines._torch_elementwise import moe_route

    def choose(logits: Any, valid_rows: int, **arguments: Any) -> Any:
        return moe_route(logits=logits, valid_rows=valid_rows or len(logits), **arguments)

    return choose


def _conv(spoil: Callable[[Any, Any], None]) -> Function:
    from validate.conformance.engines._torch_elementwise import short_conv

    def conv(x: Any, weight: Any, state: Any, cu_seqlens: Any) -> Any:
        y, remembered = short_conv(x, weight, state, cu_seqlens)
        spoil(y, cu_seqlens)
        return y, remembered

    return conv


def conv_sequences_from_7() -> Function:
    """Sequences from the seventh on are left as zeros."""

    def spoil(y: Any, cu: Any) -> None:
        if len(cu) > 7:  # noqa: PLR2004
            y[int(cu[6]) :] = 0

    return _conv(spoil)


def conv_of_128() -> Function:
    """The last token of a sequence of exactly 128 is left as zeros."""

    def spoil(y: Any, cu: Any) -> None:
        for start, end in zip(cu[:-1].tolist(), cu[1:].tolist(), strict=True):
            if end - start == 128:  # noqa: PLR2004
                y[end - 1] = 0

    return _conv(spoil)


def _wrong_where(make: Callable[[], Function], wrong: Callable[[Any, Any], bool]) -> Function:
    """KDA whose output is doubled in calls of some shape of q and lengths of sequences."""
    right = make()

    def kda(**arguments: Any) -> Any:
        out, state = right(**arguments)
        steps = arguments["cu_seqlens"].diff().tolist()
        return (out * 2 if wrong(tuple(arguments["q"].shape), steps) else out), state

    return kda


def recurrent_batch_from_6() -> Function:
    """Batches of six sequences and more are wrong."""
    return _wrong_where(_recurrent, lambda _, steps: len(steps) >= 6)  # noqa: PLR2004


def keys_past_32() -> Function:
    """Keys longer than 32 are wrong."""
    return _wrong_where(_recurrent, lambda shape, _: shape[2] > 32)  # noqa: PLR2004


def twelve_heads_of_128() -> Function:
    """12 heads of key 128 are wrong, and nothing else."""
    return _wrong_where(_recurrent, lambda shape, _: shape[1:] == (12, 128))


def spoilt_chunk(wrong: Callable[[int], bool]) -> Function:
    """Calls with a sequence of some lengths are wrong, and nothing else."""
    return _wrong_where(_chunk, lambda _, steps: any(wrong(step) for step in steps))


def chunk_tokens_past_130() -> Function:
    """Calls with a sequence longer than 130 tokens are wrong."""
    return spoilt_chunk(lambda step: step > 130)  # noqa: PLR2004


def chunk_whole_48() -> Function:
    """Calls with a sequence of exactly 48 tokens are wrong."""
    return spoilt_chunk(lambda step: step == 48)  # noqa: PLR2004


def _fixed(right: Function) -> Function:
    def kda(lower_bound: float, **arguments: Any) -> Any:  # noqa: ARG001  it is what is not read
        return right(lower_bound=-5.0, **arguments)

    return kda


def recurrent_bound_fixed() -> Function:
    """lower_bound is taken for -5 whatever is given."""
    return _fixed(_recurrent())


def chunk_bound_fixed() -> Function:
    """lower_bound is taken for -5 whatever is given."""
    return _fixed(_chunk())


def gate_bound_fixed() -> Function:
    """lower_bound is taken for -5 whatever is given."""
    from validate.conformance.engines._torch_elementwise import kda_gate

    return _fixed(kda_gate)
