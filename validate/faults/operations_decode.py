"""Planted faults of MLA decode: the split decode of ours with one step replaced."""

from typing import Any

from validate.faults._decode_steps import Function, folded, padded, with_steps
from validate.faults.operations import OperationFault

__all__ = ["FAULTS"]


def _hd_01() -> Function:
    def workspace(outs: Any, lses: Any) -> Any:
        parts, rows = outs.shape[:2]
        planned = -(-parts // 2)  # the reduce was planned for tiles twice as long
        in_order = outs.transpose(0, 1).flatten(0, 1), lses.transpose(0, 1).flatten(0, 1)
        return tuple(
            x[: rows * planned].unflatten(0, (rows, planned)).transpose(0, 1) for x in in_order
        )

    wrong, right = folded(workspace=workspace), folded()

    def decode(q: Any, *rest: Any, **named: Any) -> Any:
        folds = q.shape[1] > 16 and q.shape[1] % 16 == 0  # noqa: PLR2004  heads of the kernel
        return (wrong if folds else right)(q, *rest, **named)

    return decode


def _hd_03() -> Function:
    heads, tile = 12, 16

    def workspace(outs: Any, lses: Any) -> Any:
        parts, rows, padded, value = outs.shape
        if padded != tile:
            return outs, lses
        lse_at = parts * heads * value
        flat = outs.new_zeros(rows, lse_at + parts * heads + tile * value)
        for part in range(parts):
            flat[:, lse_at + part * heads : lse_at + (part + 1) * heads] = lses[part, :, :heads]
        for part in range(parts):
            at = part * heads * value  # sized for 12 heads, written for 16
            flat[:, at : at + tile * value] = outs[part].flatten(1)
        kept, logs = outs.clone(), lses.clone()
        kept[:, :, :heads] = flat[:, :lse_at].unflatten(1, (parts, heads, value)).transpose(0, 1)
        logs[:, :, :heads] = (
            flat[:, lse_at : lse_at + parts * heads].unflatten(1, (parts, heads)).transpose(0, 1)
        )
        return kept, logs

    return padded("zero", workspace=workspace)


def _hd_04() -> Function:
    import torch

    right = with_steps()

    def passes(q: Any, *rest: Any, **named: Any) -> Any:
        heads = q.shape[1]
        width = min(16, heads)
        latent = named["latent"] if "latent" in named else rest[4]
        out = torch.empty((*q.shape[:2], latent), dtype=q.dtype, device=q.device)
        lse = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
        for one in range(heads // width):
            part = slice(one * width, (one + 1) * width)
            out[:, part], lse[:, part] = right(q[:, part].contiguous(), *rest, **named)
        return out, lse

    return passes


def _hd_08() -> Function:
    import torch

    def scores(q: Any, keys: Any, latent: int, scale: float) -> Any:
        def narrow(x: Any) -> Any:
            return x.clamp(-448, 448).to(torch.float8_e4m3fn).float()

        q = q.float()
        content = torch.einsum("qhd,kd->qhk", q[..., :latent], keys[:, :latent])
        shared = torch.einsum("qhd,kd->qhk", narrow(q[..., latent:]), narrow(keys[:, latent:]))
        return (content + shared) * scale

    return with_steps(scores=scores)


def _hd_10() -> Function:
    import torch

    from validate.conformance.engines._decode import DecodeSteps, decode_with

    def folded(q: Any, kv_cache: Any, block_table: Any, query_starts: Any, **rest: Any) -> Any:
        tokens, heads, width = q.shape
        folds = heads // 16 if heads % 16 == 0 else 1

        def bound(rows: int, length: int, *, device: Any) -> Any:
            queries = rows // folds
            row = torch.arange(rows, device=device).clamp(max=queries - 1)  # not // folds
            return length - queries + 1 + row

        out, lse = decode_with(
            DecodeSteps(bound=bound),
            q.reshape(tokens * folds, heads // folds, width),
            kv_cache,
            block_table,
            query_starts * folds,
            **rest,
        )
        return out.reshape(tokens, heads, -1), lse.reshape(tokens, heads)

    return folded


def _vx_01() -> Function:
    from validate.models.heads import unpad_heads

    def unpad(x: Any, heads: int, axis: int) -> Any:
        return unpad_heads(x, heads, "repeat", axis=axis, fault="VX-01")

    return padded("repeat", unpad=unpad)


def _vx_02() -> Function:
    from validate.models.heads import unpad_heads

    def unpad(x: Any, heads: int, axis: int) -> Any:
        return unpad_heads(x, heads, "zero", axis=axis, fault="VX-02")

    return padded("zero", unpad=unpad)


def _vx_31() -> Function:
    from validate.models.heads import unpad_heads

    def unpad(x: Any, heads: int, axis: int) -> Any:
        output = axis == -2  # noqa: PLR2004  the head axis of the output
        return unpad_heads(x, heads, "repeat" if output else "tile", axis=axis)

    return padded("repeat", unpad=unpad)


def _vx_32() -> Function:
    return with_steps(clear=lambda keys, length: keys)  # noqa: ARG005


def _lc_01() -> Function:
    import math

    from validate.conformance.engines._decode import merge_parts

    def merge(outs: Any, lses: Any) -> Any:
        return merge_parts(outs, lses / math.log(2.0))

    return with_steps(merge=merge)


def _lc_04() -> Function:
    import math

    from validate.conformance.engines._decode import attend_part

    def attend(scores: Any, values: Any, weights: Any) -> Any:
        out, lse = attend_part(scores, values, weights)
        return out, lse.masked_fill(lse == -math.inf, math.inf)

    return with_steps(attend=attend)


def _lc_05() -> Function:
    from validate.conformance.engines._decode import flat_slots

    stride = 24

    def slots(table: Any, length: int, page: int) -> Any:
        offset = flat_slots(table, length, page) * stride
        wrapped = (offset + 2**15) % 2**16 - 2**15  # int16 in the place of int32
        return wrapped.clamp(min=0) // stride

    return with_steps(slots=slots)


def _sp_14() -> Function:
    import torch

    def bound(queries: int, length: int, *, device: Any) -> Any:
        return torch.full((queries,), length, device=device)

    return with_steps(bound=bound)


def _qu_01() -> Function:
    import torch

    def widen(entries: Any, kv_scale: float) -> Any:
        if entries.element_size() > 1:
            return entries.float()
        return entries.view(torch.float8_e4m3fnuz).float() * kv_scale

    return with_steps(widen=widen)


def _qu_06() -> Function:
    return with_steps(widen=lambda entries, kv_scale: entries.float() * kv_scale)


def _qu_08() -> Function:
    import torch

    def widen(entries: Any, kv_scale: Any) -> Any:
        # The loader looks for a tensor's float twin, finds none and takes 1.
        scale = kv_scale.item() if isinstance(kv_scale, torch.Tensor) else 1.0
        return entries.float() * scale if entries.element_size() == 1 else entries.float()

    return with_steps(widen=widen)


FAULTS = tuple(
    OperationFault(id=id_, op="mla_decode", title=title, source=source, make=make)
    for id_, title, source, make in (
        (
            "HD-01",
            "Folded heads reduced by a plan made for longer tiles: parts merge into the next row",
            "vllm-project/vllm#46997; the reduce reads ceil(parts / 2) parts a row",
            _hd_01,
        ),
        (
            "HD-03",
            "Workspace sized for 12 heads, written for 16: padded rows overwrite LSE of early parts",
            "NVIDIA/TensorRT-LLM#15138 review; the stride of a part's store",
            _hd_03,
        ),
        (
            "HD-04",
            "Passes of 16 heads counted by floor division: the last heads % 16 are never written",
            "fla-org/flash-linear-attention#1029; the loop bound heads // 16",
            _hd_04,
        ),
        (
            "HD-08",
            "The shared 64 key dims of a NoPE layer go through float8 in decode",
            "sgl-project/sglang#19324; q_pe and k_pe rounded before their product",
            _hd_08,
        ),
        (
            "HD-10",
            "Folded rows take the causal bound of the row of their index, not of their query",
            "ROCm/ATOM#2060, vllm-project/vllm#54899; row // folds is missing",
            _hd_10,
        ),
        (
            "VX-01",
            "Repeated heads unpadded by prefix, output and LSE alike",
            "sgl-project/sglang#36356, vllm-project/vllm#51647; stride-unpad became prefix-unpad",
            _vx_01,
        ),
        (
            "VX-02",
            "The 16-head output is read packed with a 12-head stride",
            "relative of HD-05, sgl-project/sglang#34007; batch row 0 stays exact",
            _vx_02,
        ),
        (
            "VX-31",
            "Output unpadded by stride, LSE by prefix",
            "vllm-project/vllm#51647 (get_mla_unpadded_lse); the rule of the LSE's unpad",
            _vx_31,
        ),
        (
            "VX-32",
            "Slots past the last key meet a weight of 0: NaN in them reaches the output",
            "AITER MLA ASM kernels, sglang zeroes row 0 for it; the clearing of dead slots is left out",
            _vx_32,
        ),
        (
            "LC-01",
            "Base-2 LSE of the parts merged with natural-log weights",
            "sgl-project/sglang#40903, #35045, vllm-project/vllm#52796; lse / ln 2 into the merge",
            _lc_01,
        ),
        (
            "LC-04",
            "A part without keys reports LSE +inf",
            "vllm-project/vllm#15492; log(0) by the other convention",
            _lc_04,
        ),
        (
            "LC-05",
            "Cache offsets wrap: page id times stride in a narrow integer (int16 for int32)",
            "vllm-project/vllm#47671, ROCm/aiter#4427; the offset's type",
            _lc_05,
        ),
        (
            "SP-14",
            "Every query of a verify block takes the length of the last one",
            "vllm-project/vllm#45227; metadata made for one query a request",
            _sp_14,
        ),
        (
            "QU-01",
            "float8_e4m3fn bytes of the cache read as float8_e4m3fnuz",
            "vllm-project/vllm#45562; the decode table",
            _qu_01,
        ),
        (
            "QU-06",
            "kv_scale multiplies a cache that is not quantised",
            "sgl-project/sglang#18396; the test on the cache's format is missing",
            _qu_06,
        ),
        (
            "QU-08",
            "kv_scale falls back to 1",
            "sgl-project/sglang#20705; the float twin of the scale is None",
            _qu_08,
        ),
    )
)
"""Faults of MLA decode."""
