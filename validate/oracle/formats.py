"""Eight-bit floats and MXFP4 by their definition: sign, exponent, fraction, one table a format.

Nothing here uses a library's cast: codes are decoded from their bits and encoded by looking
for the nearest value, so that a cast can be held against it.
"""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float64, UInt8
from numpy.typing import NDArray

from validate.errors import InputError
from validate.oracle.records import Array

__all__ = [
    "MX_BLOCK",
    "Float8",
    "MxFp4",
    "Overflow",
    "ScaleRule",
    "e2m1_values",
    "e8m0_of",
    "e8m0_values",
    "float8_decode",
    "float8_encode",
    "float8_values",
    "mxfp4_decode",
    "mxfp4_encode",
]

Float8 = Literal["float8_e4m3fn", "float8_e4m3fnuz"]
Overflow = Literal["saturate", "nan"]
"""What a finite value beyond the largest gives: the largest, or NaN (as ``ml_dtypes`` casts)."""
ScaleRule = Literal["floor", "nearest"]
"""Power of two of a block: ``floor`` of log2 of its largest magnitude (OCP MX 1.0, 6.3), or
the ``nearest`` power of two, up from 1.5 * 2^k on."""
Codes = NDArray[np.uint8]

MX_BLOCK = 32
"""Elements that share one scale."""
E2M1_MAX_EXPONENT = 2
"""6 = 1.5 * 2^2."""
E8M0_BIAS = 127
E8M0_NAN = 255
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


class MxFp4(NamedTuple):
    """A quantised row."""

    packed: Codes
    """Two elements a byte, the earlier one in the low four bits; [rows, n / 2]."""
    scales: Codes
    """E8M0 codes, one a block of 32; [rows, n / 32]."""


def float8_values(fmt: Float8) -> Float64[Array, "256"]:
    """The value of every code; NaN where the code is one.

    ``float8_e4m3fn``: bias 7, NaN at 0x7F and 0xFF, largest 448. ``float8_e4m3fnuz``: bias
    8, one NaN at 0x80, no negative zero, largest 240.

    Source:
        OCP 8-bit floating point 1.0, table 1; "8-bit Numerical Formats for Deep Neural
        Networks" (arXiv 2206.02915) for FNUZ.

    Example:
        >>> [float(float8_values(f)[0x7E]) for f in ("float8_e4m3fn", "float8_e4m3fnuz")]
        [448.0, 224.0]
    """
    bias = 7 if fmt == "float8_e4m3fn" else 8
    code = np.arange(256)
    exponent, fraction = (code >> 3) & 15, code & 7
    normal = np.ldexp(1.0 + fraction / 8.0, exponent - bias)
    subnormal = np.ldexp(fraction / 8.0, 1 - bias)
    value: Array = np.where(exponent == 0, subnormal, normal)
    value = np.where(code >= 128, -value, value)
    if fmt == "float8_e4m3fn":
        value[[0x7F, 0xFF]] = np.nan
    else:
        value[0x80] = np.nan
    return value


def float8_decode(codes: UInt8[Codes, "..."], fmt: Float8) -> Float64[Array, "..."]:
    """Codes to values."""
    return float8_values(fmt)[codes]


def float8_encode(
    values: Float64[Array, "..."], fmt: Float8, *, overflow: Overflow = "saturate"
) -> UInt8[Codes, "..."]:
    """Values to codes: nearest, ties to the even fraction; NaN to NaN.

    Args:
        values: Any float64, infinities and NaN included.
        fmt: Which table.
        overflow: What a value gives that rounds beyond the largest; infinities follow it.

    Returns:
        One byte a value. Zero keeps its sign in ``float8_e4m3fn``; FNUZ has one zero.

    Example:
        Halfway between 16 (fraction 0) and 18 (fraction 1) stands 17:

        >>> float8_values("float8_e4m3fn")[float8_encode(np.array([17.0]), "float8_e4m3fn")]
        array([16.])
    """
    fn = fmt == "float8_e4m3fn"
    table = float8_values(fmt)
    top = 0x7E if fn else 0x7F
    magnitudes = table[: top + 1]
    size = np.abs(values)
    code = _nearest_even(size, magnitudes)
    # Halfway between the largest and what the next code would be; the largest has an even
    # fraction in FN (so the midpoint rounds to it) and an odd one in FNUZ (so it does not).
    step = magnitudes[top] - magnitudes[top - 1]
    edge = magnitudes[top] + step / 2
    beyond = size > edge if fn else size >= edge
    code = np.where(beyond & (overflow == "nan"), 0x7F if fn else 0x80, code)
    negative = np.signbit(values) & (code != 0x80)
    if not fn:
        negative &= code != 0  # one zero, without a sign
    code = np.where(negative, code | 0x80, code)
    nan = np.isnan(values)
    return np.where(nan, 0x7F if fn else 0x80, code).astype(np.uint8)


def e2m1_values() -> Float64[Array, "16"]:
    """The value of every FP4 code: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives."""
    return np.array(E2M1 + tuple(-value for value in E2M1))


def e8m0_values() -> Float64[Array, "256"]:
    """The value of every scale code: ``2^(code - 127)``; NaN at 255.

    Example:
        >>> e8m0_values()[[126, 127, 128]]
        array([0.5, 1. , 2. ])
    """
    value = np.ldexp(1.0, np.arange(256) - E8M0_BIAS)
    value[E8M0_NAN] = np.nan
    return value


def e8m0_of(largest: Float64[Array, "..."], *, rule: ScaleRule = "floor") -> Codes:
    """Scale code of a block from its largest magnitude, so that this lands within E2M1.

    Args:
        largest: Largest magnitude of a block, finite, not negative; 0 gives code 0.
        rule: See ``ScaleRule``.

    Returns:
        Codes 0 to 254.

    Source:
        OCP Microscaling formats 1.0, section 6.3.

    Example:
        6 = 1.5 * 2^2 needs scale 1; 8 needs 2. Nearest takes 2 for 6 already.

        >>> (
        ...     e8m0_of(np.array([6.0, 8.0])).tolist(),
        ...     e8m0_of(np.array([6.0]), rule="nearest").tolist(),
        ... )
        ([127, 128], [128])
    """
    fraction, exponent = np.frexp(largest)  # fraction in [0.5, 1)
    power = exponent - 1 + ((fraction >= 0.75) if rule == "nearest" else 0)
    code = np.clip(power - E2M1_MAX_EXPONENT + E8M0_BIAS, 0, E8M0_NAN - 1)
    return np.where(largest > 0, code, 0).astype(np.uint8)


def mxfp4_encode(
    x: Float64[Array, "rows n"], *, rule: ScaleRule = "floor", scales: Codes | None = None
) -> MxFp4:
    """Rows to E2M1 elements with one E8M0 scale a block of 32; ties to even, saturating at 6.

    Args:
        x: Finite; n a multiple of 32.
        rule: How a scale follows from a block's largest magnitude.
        scales: Scale codes to use in place of the rule's, [rows, n / 32].

    Returns:
        ``MxFp4``.

    Raises:
        InputError: n is no multiple of 32.
    """
    rows, n = x.shape
    if n % MX_BLOCK != 0:
        msg = f"mxfp4_encode: rows of {n} elements; a multiple of {MX_BLOCK} is needed"
        raise InputError(msg)
    blocks = x.reshape(rows, -1, MX_BLOCK)
    if scales is None:
        scales = e8m0_of(np.abs(blocks).max(axis=2), rule=rule)
    scaled = blocks / e8m0_values()[scales][:, :, None]
    code = _nearest_even(np.abs(scaled), np.array(E2M1)) | (np.signbit(scaled) * 8)
    code = code.reshape(rows, n).astype(np.uint8)
    return MxFp4(packed=code[:, 0::2] | (code[:, 1::2] << 4), scales=scales)


def mxfp4_decode(
    packed: UInt8[Codes, "rows half"], scales: UInt8[Codes, "rows blocks"]
) -> Float64[Array, "rows n"]:
    """Elements times their block's scale; NaN throughout a block whose scale is NaN.

    Example:
        >>> row = mxfp4_decode(np.full((1, 16), 0x72, np.uint8), np.array([[128]], np.uint8))
        >>> row[0, :2].tolist()
        [2.0, 12.0]
    """
    codes = np.stack([packed & 15, packed >> 4], axis=2).reshape(len(packed), -1)
    value = e2m1_values()[codes].reshape(len(packed), -1, MX_BLOCK)
    return (value * e8m0_values()[scales][:, :, None]).reshape(len(packed), -1)


def _nearest_even(size: Array, magnitudes: Array) -> NDArray[np.int64]:
    """Index of the nearest of rising ``magnitudes``; the even index where two are as near.

    Codes of one sign rise with their values, and an even code has an even fraction.
    """
    upper = np.clip(np.searchsorted(magnitudes, size), 0, len(magnitudes) - 1)
    lower = np.maximum(upper - 1, 0)
    with np.errstate(invalid="ignore"):  # inf and NaN: settled by the caller
        up, down = magnitudes[upper] - size, size - magnitudes[lower]
        take_lower = (down < up) | ((down == up) & (lower % 2 == 0))
    take_lower &= size < magnitudes[upper]
    chosen: NDArray[np.int64] = np.where(take_lower, lower, upper).astype(np.int64)
    return chosen
