"""Planted faults and controls of attention operations: prefill, merge, and those of decode."""

from collections.abc import Callable
from typing import Any

from validate.faults._decode_controls import CONTROLS as DECODE_CONTROLS
from validate.faults.operations import OperationControl, OperationFault
from validate.faults.operations_decode import FAULTS as DECODE_FAULTS

__all__ = ["CONTROLS", "FAULTS"]

Function = Callable[..., Any]


def _with(**steps: Any) -> Function:
    """The blocked prefill with some steps replaced."""
    from functools import partial

    from validate.conformance.engines._prefill import PrefillSteps, prefill_with

    return partial(prefill_with, PrefillSteps(**steps))


def _hd_05() -> Function:
    from validate.models.heads import pad_heads

    def pad(q: Any, k: Any, v: Any) -> Any:
        # Each to its own accepted count: 12 over 4 becomes 16 over 4.
        return pad_heads(q, "zero"), pad_heads(k, "zero"), pad_heads(v, "zero")

    return _with(pad=pad, unpad=lambda x, heads, axis: x.narrow(axis, 0, heads).contiguous())


def _hd_07() -> Function:
    import torch

    def pad(q: Any, k: Any, v: Any) -> Any:
        heads, width, value = k.shape[1], k.shape[2], v.shape[2]
        fused = torch.cat([k, v], dim=-1).flatten(1)  # stored a head at a time: [k | v] ...
        split = fused.split([heads * width, heads * value], dim=-1)  # ... split as [all k | all v]
        return q, split[0].unflatten(1, (heads, width)), split[1].unflatten(1, (heads, value))

    return _with(pad=pad)


def _lc_08() -> Function:
    from validate.conformance.engines._prefill import visible

    def no_prefix(rows: Any, keys: Any, *, first: int, causal: bool) -> Any:  # noqa: ARG001
        return visible(rows, keys, first=0, causal=causal)

    return _with(visible=no_prefix)


def _la_12() -> Function:
    from validate.conformance.engines._prefill import visible

    def by_tile_start(rows: Any, keys: Any, *, first: int, causal: bool) -> Any:
        return visible(rows, keys[:1].expand(len(keys)), first=first, causal=causal)

    return _with(visible=by_tile_start)


def _vx_33() -> Function:
    from validate.conformance.engines._prefill import visible

    def new_only(rows: Any, keys: Any, *, first: int, causal: bool) -> Any:
        seen = visible(rows, keys, first=first, causal=causal)
        return seen & (keys >= first) if causal else seen

    return _with(visible=new_only)


def _qu_07() -> Function:
    from validate.conformance.engines._prefill import PrefillSteps, prefill_with

    def ragged(q: Any, k: Any, v: Any, k_scale: float, v_scale: float, **rest: Any) -> Any:  # noqa: ARG001
        return prefill_with(PrefillSteps(), q, k, v, k_scale=1.0, v_scale=1.0, **rest)

    return ragged


def _tv_13() -> Function:
    right = _with()

    def clears_tail(q: Any, k: Any, v: Any, key_starts: Any, **rest: Any) -> Any:
        v[int(key_starts[-1]) :] = 0  # in the caller's tensor
        return right(q, k, v, key_starts=key_starts, **rest)

    return clears_tail


def _lc_02() -> Function:
    import math

    import torch

    def merge(outs: Any, lses: Any) -> Any:
        top = lses.amax(0)
        safe = top.masked_fill(top == -math.inf, 0.0)
        weight = torch.exp2(lses - safe)  # the ranks send natural logs
        total = weight.sum(0)
        counted = outs.float().masked_fill((lses == -math.inf).unsqueeze(-1), 0.0)
        share = weight / total.masked_fill(total == 0, 1.0)
        return (share.unsqueeze(-1) * counted).sum(0).to(outs.dtype), safe + total.log2()

    return merge


def _lc_04() -> Function:
    import math

    def merge(outs: Any, lses: Any) -> Any:
        lses = lses.masked_fill(lses == math.inf, -math.inf)  # the other library's empty part
        top = lses.amax(0)  # and no thought for -inf everywhere: -inf - -inf
        weight = (lses - top).exp()
        total = weight.sum(0)
        counted = outs.float().masked_fill((lses == -math.inf).unsqueeze(-1), 0.0)
        out = (weight.unsqueeze(-1) * counted).sum(0) / total.unsqueeze(-1)
        return out.to(outs.dtype), top + total.log()

    return merge


def _vx_34() -> Function:
    import math

    def merge(outs: Any, lses: Any) -> Any:
        top = lses.amax(0)
        safe = top.masked_fill(top == -math.inf, 0.0)
        weight = (lses - safe).exp()
        total = weight.sum(0)
        share = weight / total.masked_fill(total == 0, 1.0)
        # Weight 0 times what an empty part never wrote.
        return (share.unsqueeze(-1) * outs.float()).sum(0).to(outs.dtype), safe + total.log()

    return merge


_ROWS: tuple[tuple[str, str, str, str, Callable[[], Function]], ...] = (
    (
        "HD-05",
        "mla_prefill",
        "q and key heads padded independently: 12 over 4 becomes 16 over 4, the ratio breaks",
        "vllm-project/vllm-omni#5716; the pad of k and v",
        _hd_05,
    ),
    (
        "HD-07",
        "mla_prefill",
        "Fused keys and values stored a head at a time, split as all keys then all values",
        "vllm-project/vllm#8017; the split axis",
        _hd_07,
    ),
    (
        "LC-08",
        "mla_prefill",
        "Chunked prefill forgets the prefix in the causal mask: row i sees keys 0 .. i",
        "ROCm/ATOM#1379; the mask's offset",
        _lc_08,
    ),
    (
        "LA-12",
        "mla_prefill",
        "The mask of a tile is decided from its first key: rows see the future inside a tile",
        "fla-org/flash-linear-attention#1104; the branch on the tile's start",
        _la_12,
    ),
    (
        "VX-33",
        "mla_prefill",
        "Extend attends the new tokens alone, the cached prefix is skipped",
        "DCP extend routed to plain MHA (k3-serving.md 2.4, hazard 8); keys before the first new one",
        _vx_33,
    ),
    (
        "QU-07",
        "mla_prefill",
        "k_scale and v_scale silently dropped by the ragged wrapper",
        "flashinfer-ai/flashinfer#4979, #1023; both factors left out of the call",
        _qu_07,
    ),
    (
        "TV-13",
        "mla_prefill",
        "Rows of v behind the last key are cleared in the caller's tensor",
        "tonyd2wild/GLM-5.3-Flash-NVFP4-DFlash2-2x-DGX-Spark#4; an op that writes its input v",
        _tv_13,
    ),
    (
        "LC-02",
        "lse_merge",
        "Ranks merged with base-2 weights from natural-log LSE",
        "vllm-project/vllm#47079; exp2 in the place of exp",
        _lc_02,
    ),
    (
        "LC-04",
        "lse_merge",
        "Only +inf is taken for an empty part: -inf everywhere gives NaN",
        "vllm-project/vllm#15492; the other convention of log(0)",
        _lc_04,
    ),
    (
        "VX-34",
        "lse_merge",
        "Output of an empty part multiplied by weight 0: unwritten NaN reaches the result",
        "relative of LC-04; the mask on outputs is left out",
        _vx_34,
    ),
)

FAULTS: tuple[OperationFault, ...] = (
    *DECODE_FAULTS,
    *(
        OperationFault(id=id_, op=op, title=title, source=source, make=make)
        for id_, op, title, source, make in _ROWS
    ),
)
"""Faults of attention operations."""


def _ok_5() -> Function:
    from functools import partial

    from validate.conformance.engines._prefill import PrefillSteps, prefill_with

    return partial(prefill_with, PrefillSteps.padded("tile"))


def _ok_merge() -> Function:
    from validate.conformance.engines._decode import merge_parts

    def one_by_one(outs: Any, lses: Any) -> Any:
        import torch

        out, lse = outs[-1].float(), lses[-1]
        for part in range(len(outs) - 2, -1, -1):
            pair = torch.stack([out, outs[part].float()]), torch.stack([lse, lses[part]])
            out, lse = merge_parts(*pair)
        # A single part passes no merge: its empty rows are cleared here.
        return out.masked_fill((lse == -torch.inf).unsqueeze(-1), 0.0).to(outs.dtype), lse.clone()

    return one_by_one


CONTROLS: tuple[OperationControl, ...] = (
    *DECODE_CONTROLS,
    OperationControl(
        id="OK-5",
        op="mla_prefill",
        title="Heads of q, k and v tiled 12 to 16 and sliced back",
        source="sgl-project/sglang#36356, vllm-project/vllm#51040; nothing reduces across heads",
        make=_ok_5,
    ),
    OperationControl(
        id="OK-VX-31",
        op="lse_merge",
        title="Parts merged two at a time, the last first",
        source="another order of the same sum",
        make=_ok_merge,
    ),
)
"""Right implementations that differ."""
