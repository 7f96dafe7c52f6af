"""PyTorch casts to and from the eight-bit and four-bit formats, in exchangeable steps."""

from functools import partial

import torch
from torch import Tensor

from validate.conformance.records import Implementation

__all__ = [
    "E2M1",
    "IMPLEMENTATIONS",
    "block_scale_codes",
    "float8_cast",
    "mxfp4_cast",
    "nearest_e2m1",
    "scale_value",
    "unpack_e2m1",
]

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
BLOCK = 32
_LARGEST = {torch.float8_e4m3fn: 448.0, torch.float8_e4m3fnuz: 240.0}


def float8_cast(
    x: Tensor, scale: Tensor, codes: Tensor, *, fmt: torch.dtype, saturate: bool = True
) -> tuple[Tensor, Tensor]:
    """Codes of ``x / scale`` and values of ``codes`` times ``scale``, row by row."""
    scaled = x.float() / scale.unsqueeze(1)
    if saturate:
        scaled = scaled.clamp(-_LARGEST[fmt], _LARGEST[fmt])
    else:  # what a bare cast does beyond the largest depends on torch's version and device
        scaled = torch.where(beyond(scaled, fmt), torch.nan, scaled)
    encoded = scaled.to(fmt).view(torch.uint8)
    decoded = codes.view(fmt).float() * scale.unsqueeze(1)
    return encoded, decoded


def beyond(scaled: Tensor, fmt: torch.dtype) -> Tensor:
    """What rounds past the largest value: 448 is even and takes its midpoint 464, 240 is odd."""
    size = scaled.abs()
    return size > 464.0 if fmt == torch.float8_e4m3fn else size >= 248.0  # noqa: PLR2004


def block_scale_codes(x: Tensor) -> Tensor:
    """E8M0 codes of blocks of 32: the exponent bits of the largest magnitude, less 2."""
    largest = x.float().reshape(len(x), -1, BLOCK).abs().amax(2)
    exponent = (largest.view(torch.int32) >> 23) & 0xFF
    return torch.where(largest > 0, (exponent - 2).clamp(0, 254), 0).to(torch.uint8)


def nearest_scale_codes(x: Tensor) -> Tensor:
    """As ``block_scale_codes``, rounded to the nearest power: up from 1.5 * 2^k on."""
    largest = x.float().reshape(len(x), -1, BLOCK).abs().amax(2)
    exponent = ((largest.view(torch.int32) + (1 << 22)) >> 23) & 0xFF
    return torch.where(largest > 0, (exponent - 2).clamp(0, 254), 0).to(torch.uint8)


def scale_value(scales: Tensor) -> Tensor:
    """Value of E8M0 codes, float32; NaN at 255."""
    value = torch.ldexp(torch.ones_like(scales, dtype=torch.float64), scales.long() - 127)
    return torch.where(scales == 255, torch.nan, value).float()  # noqa: PLR2004  the NaN code


def nearest_e2m1(scaled: Tensor) -> Tensor:
    """FP4 codes of scaled values: nearest, ties to the even code, saturating at 6."""
    size = scaled.abs()
    # Midpoints between neighbours; a tie goes up only from an odd code.
    low = torch.zeros_like(size, dtype=torch.int64)
    for code in range(7):
        middle = (E2M1[code] + E2M1[code + 1]) / 2
        low += (size >= middle if code % 2 else size > middle).long()
    return low | (torch.signbit(scaled).long() << 3)


def unpack_e2m1(packed: Tensor) -> Tensor:
    """Values of packed codes, the low four bits first, [rows, 2 * bytes] float32."""
    table = torch.tensor([*E2M1, *(-value for value in E2M1)], device=packed.device)
    codes = torch.stack([packed & 15, packed >> 4], dim=2).reshape(len(packed), -1)
    return table[codes.long()]


def mxfp4_cast(
    x: Tensor, packed: Tensor, scales: Tensor, *, nearest: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Packed codes and scale codes of ``x``, and the values of ``packed`` with ``scales``."""
    own = nearest_scale_codes(x) if nearest else block_scale_codes(x)
    blocks = x.float().reshape(len(x), -1, BLOCK) / scale_value(own).unsqueeze(2)
    codes = nearest_e2m1(blocks).reshape(len(x), -1)
    encoded = (codes[:, 0::2] | (codes[:, 1::2] << 4)).to(torch.uint8)
    values = unpack_e2m1(packed).reshape(len(packed), -1, BLOCK)
    decoded = (values * scale_value(scales).unsqueeze(2)).reshape(len(packed), -1)
    return encoded, own, decoded


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    Implementation(
        name="torch:cast",
        op="float8_e4m3fn",
        function=partial(float8_cast, fmt=torch.float8_e4m3fn),
        title="PyTorch cast after a clamp to 448",
    ),
    Implementation(
        name="torch:cast_nan",
        op="float8_e4m3fn",
        function=partial(float8_cast, fmt=torch.float8_e4m3fn, saturate=False),
        title="PyTorch cast, NaN beyond 448",
        settings={"overflow": "nan"},
    ),
    Implementation(
        name="torch:cast",
        op="float8_e4m3fnuz",
        function=partial(float8_cast, fmt=torch.float8_e4m3fnuz),
        title="PyTorch cast after a clamp to 240",
    ),
    Implementation(
        name="torch:cast_nan",
        op="float8_e4m3fnuz",
        function=partial(float8_cast, fmt=torch.float8_e4m3fnuz, saturate=False),
        title="PyTorch cast, NaN beyond 240",
        settings={"overflow": "nan"},
    ),
    Implementation(
        name="torch:floor",
        op="mxfp4",
        function=mxfp4_cast,
        title="PyTorch, scale from the exponent bits of the largest magnitude (OCP)",
    ),
    Implementation(
        name="torch:nearest",
        op="mxfp4",
        function=partial(mxfp4_cast, nearest=True),
        title="PyTorch, scale rounded to the nearest power of two",
        settings={"scale_rule": "nearest"},
    ),
)
