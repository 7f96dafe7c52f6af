"""Planted faults and controls of the number formats."""

from collections.abc import Callable
from typing import Any

from validate.faults.operations import OperationControl, OperationFault

__all__ = ["CONTROLS", "FAULTS"]

Function = Callable[..., Any]


def _float8(
    fmt: str = "float8_e4m3fn",
    *,
    read_as: str | None = None,
    largest: float | None = None,
    encode_scale: Function | None = None,
    decode_scale: Function | None = None,
    after: Function | None = None,
) -> Function:
    """Our cast with one step replaced.

    Args:
        fmt: Format that is written.
        read_as: Format that codes are read as.
        largest: Where values are clamped.
        encode_scale: From the scale given to the one divided by.
        decode_scale: From the scale given to the one multiplied by.
        after: From decoded values and scales to what is returned.
    """
    import torch

    written = getattr(torch, fmt)
    read = getattr(torch, read_as or fmt)
    top = largest or (448.0 if fmt == "float8_e4m3fn" else 240.0)

    def cast(x: Any, scale: Any, codes: Any) -> Any:
        into = scale if encode_scale is None else encode_scale(scale)
        out = scale if decode_scale is None else decode_scale(scale)
        scaled = (x.float() / into.unsqueeze(1)).clamp(-top, top)
        decoded = codes.view(read).float() * out.unsqueeze(1)
        if after is not None:
            decoded = after(decoded, scale.unsqueeze(1))
        return scaled.to(written).view(torch.uint8), decoded

    return cast


def _power_above(scale: Any) -> Any:
    import torch

    return torch.exp2(torch.ceil(torch.log2(scale)))


def _requantised(decoded: Any, scale: Any) -> Any:
    import torch

    power = _power_above(scale)
    again = (decoded / power).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)
    return again.float() * power


def _qu_01() -> Function:
    return _float8("float8_e4m3fnuz", read_as="float8_e4m3fn")


def _qu_02() -> Function:
    return _float8(largest=224.0)


def _qu_03() -> Function:
    return _float8(decode_scale=_power_above)


def _qu_08() -> Function:
    import torch

    return _float8(encode_scale=torch.ones_like)


def _qu_12() -> Function:
    return _float8(after=_requantised)


def _mxfp4(
    *,
    codes_of: Function | None = None,
    scaled_by: Function | None = None,
    pack: Function | None = None,
    scales_read: Function | None = None,
    nearest: bool = False,
) -> Function:
    """Our MXFP4 cast with one step replaced.

    Args:
        codes_of: From ``x`` to scale codes.
        scaled_by: From ``x`` and scale codes to the divisors of its blocks.
        pack: From element codes to bytes.
        scales_read: From scale bytes as stored to scale codes as used.
        nearest: The other scale rule.
    """
    import torch

    from validate.conformance.engines import _torch_formats as steps

    def low_first(codes: Any) -> Any:
        return (codes[:, 0::2] | (codes[:, 1::2] << 4)).to(torch.uint8)

    own_rule = steps.nearest_scale_codes if nearest else steps.block_scale_codes

    def cast(x: Any, packed: Any, scales: Any) -> Any:
        own = (codes_of or own_rule)(x)
        by = steps.scale_value(own) if scaled_by is None else scaled_by(x, own)
        blocks = x.float().reshape(len(x), -1, steps.BLOCK) / by.unsqueeze(2)
        codes = steps.nearest_e2m1(blocks).reshape(len(x), -1)
        used = scales if scales_read is None else scales_read(scales)
        values = steps.unpack_e2m1(packed).reshape(len(packed), -1, steps.BLOCK)
        decoded = (values * steps.scale_value(used).unsqueeze(2)).reshape(len(packed), -1)
        return (pack or low_first)(codes), own, decoded

    return cast


def _qu_09() -> Function:
    def exact(x: Any, codes: Any) -> Any:
        import torch

        del codes
        # Elements by the scale before it was rounded, the stored one after.
        largest = x.float().reshape(len(x), -1, 32).abs().amax(2)
        return torch.where(largest > 0, largest / 6.0, 1.0)

    return _mxfp4(scaled_by=exact)


def _qu_10() -> Function:
    import torch

    def high_first(codes: Any) -> Any:
        return ((codes[:, 0::2] << 4) | codes[:, 1::2]).to(torch.uint8)

    return _mxfp4(pack=high_first)


def _qu_11() -> Function:
    import torch

    def assigned(scales: Any) -> Any:
        # The bytes are assigned to a parameter of a float8 dtype: their values are converted.
        return scales.float().to(torch.float8_e8m0fnu).view(torch.uint8)

    return _mxfp4(scales_read=assigned)


FAULTS: tuple[OperationFault, ...] = (
    OperationFault(
        id="QU-01",
        op="float8_e4m3fnuz",
        title="FNUZ bytes are read as FN: every value twice what it was",
        source="vllm-project/vllm#45562. Planted in the table that codes are read with.",
        make=_qu_01,
    ),
    OperationFault(
        id="QU-02",
        op="float8_e4m3fn",
        title="The largest value follows the GPU, not the cache: 224 in a format of 448",
        source="vllm-project/vllm#45681 (review). Planted in the clamp.",
        make=_qu_02,
    ),
    OperationFault(
        id="QU-03",
        op="float8_e4m3fn",
        title="The scale is rounded to a power of two after quantising",
        source="huggingface/transformers#47030. Planted in the scale of decoding.",
        make=_qu_03,
    ),
    OperationFault(
        id="QU-08",
        op="float8_e4m3fn",
        title="Scales fall back to 1.0",
        source="sgl-project/sglang#20705. Planted in the scale of encoding.",
        make=_qu_08,
    ),
    OperationFault(
        id="QU-12",
        op="float8_e4m3fn",
        title="One more rounding: values are requantised with a power-of-two scale",
        source="vllm-project/vllm#58157 (comment). Planted after decoding; with decoded=requantised it "
        "is a declared deviation and passes (control OK-8).",
        make=_qu_12,
    ),
    OperationFault(
        id="QU-09",
        op="mxfp4",
        title="The stored scale is rounded, the elements were made with the exact one",
        source="vllm-project/vllm#22399. Planted in the divisor of the elements.",
        make=_qu_09,
    ),
    OperationFault(
        id="QU-10",
        op="mxfp4",
        title="The two elements of each byte are swapped",
        source="vllm-project/vllm#41092 (cause unknown; recipe). Planted where bytes are packed.",
        make=_qu_10,
    ),
    OperationFault(
        id="QU-11",
        op="mxfp4",
        title="Scale bytes are converted as numbers in place of being reinterpreted",
        source="lightseekorg/tokenspeed#42. Planted where scales are loaded.",
        make=_qu_11,
    ),
)


def _ok_7() -> Function:
    import torch

    from validate.conformance.engines._torch_formats import nearest_scale_codes

    def from_below(x: Any) -> Any:
        # The largest magnitude as another order of sums gives it: one float32 step lower.
        wide = x.float()
        return nearest_scale_codes(torch.nextafter(wide, torch.zeros_like(wide)))

    return _mxfp4(codes_of=from_below, nearest=True)


CONTROLS: tuple[OperationControl, ...] = (
    OperationControl(
        id="OK-7",
        op="mxfp4",
        title="The scale is off by one code at 1.5 * 2^k",
        source="ROCm/aiter#4748 (review): dequantised values within one step.",
        settings={"scale_rule": "nearest"},
        make=_ok_7,
    ),
    OperationControl(
        id="OK-8",
        op="float8_e4m3fn",
        title="Requantised scales, declared",
        source="vllm-project/vllm#58157 (comment): as if one more e4m3 rounding.",
        settings={"decoded": "requantised"},
        make=_qu_12,
    ),
)
