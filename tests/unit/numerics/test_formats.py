"""Widening is exact; steps are counted in the named dtype."""

import ml_dtypes
import numpy as np
import pytest

from validate.errors import InputError
from validate.numerics import dtype_of, to_float64, ulp_distance, unit_roundoff

BF16 = ml_dtypes.bfloat16


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        # IEEE 754-2019 table 3.5 (p = 53, 24, 11); bfloat16 has p = 8; OCP fp8 e4m3 has p = 4.
        ("float64", 2.0**-53),
        ("float32", 2.0**-24),
        ("float16", 2.0**-11),
        ("bfloat16", 2.0**-8),
        ("float8_e4m3fn", 2.0**-4),
        ("float8_e4m3fnuz", 2.0**-4),
    ],
)
def test_unit_roundoff(dtype, expected):
    assert unit_roundoff(dtype) == expected


def test_widening_is_exact_for_every_bfloat16():
    bits = np.arange(2**16, dtype=np.uint16)
    values = bits.view(BF16)

    wide = to_float64(values)

    # A bfloat16 is the upper half of a float32 (Intel BF16 white paper, 2018).
    with np.errstate(invalid="ignore"):
        expected = (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    assert wide.dtype == np.float64
    assert np.array_equal(wide, expected, equal_nan=True)


def test_widening_is_exact_for_every_float16():
    bits = np.arange(2**16, dtype=np.uint16)
    values = bits.view(np.float16)

    wide = to_float64(values)

    back = wide.astype(np.float16).view(np.uint16)
    finite = np.isfinite(wide)
    assert np.array_equal(back[finite], bits[finite])


def test_widening_gives_a_copy():
    values = np.ones(3)

    to_float64(values)[0] = 5.0

    assert values[0] == 1.0


def test_widening_refuses_integers():
    with pytest.raises(InputError, match="array of dtype int32 is not a float array"):
        to_float64(np.zeros(3, dtype=np.int32))


def test_unknown_dtype_is_named():
    with pytest.raises(InputError, match="dtype 'bf16' is no float format known here"):
        dtype_of("bf16")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_ulp_of_neighbours(dtype):
    start = np.array([0.0, 1.0, -1.0, 1.5, 65504.0 / 2], dtype=dtype)
    after = np.nextafter(start, np.array(np.inf, dtype=dtype))

    assert ulp_distance(start, after, dtype=dtype).tolist() == [1, 1, 1, 1, 1]
    assert ulp_distance(after, start, dtype=dtype).tolist() == [1, 1, 1, 1, 1]


def test_ulp_of_bfloat16_counts_its_own_steps():
    # Spacing of bfloat16 in [1, 2) is 2^-7.
    ref = np.array([1.0, 1.0, -1.0], dtype=np.float32)
    cand = np.array([1.0 + 2**-7, 1.0 + 3 * 2**-7, -1.0 - 2**-7], dtype=np.float32)

    assert ulp_distance(ref, cand, dtype="bfloat16").tolist() == [1, 3, 1]


def test_ulp_crosses_zero():
    tiny = np.float32(2.0**-149)

    zero = np.array([0.0, -0.0, -tiny], dtype=np.float32)
    other = np.array([-0.0, tiny, tiny], dtype=np.float32)

    assert ulp_distance(zero, other, dtype="float32").tolist() == [0, 1, 2]


def test_ulp_of_the_widest_span_does_not_wrap():
    top = np.array([np.finfo(np.float64).max])

    steps = ulp_distance(-top, top, dtype="float64")

    # The greatest finite pattern is 0x7FEFFFFFFFFFFFFF on either side of zero.
    assert int(steps[0]) == 2 * 0x7FEFFFFFFFFFFFFF


def test_ulp_refuses_what_is_not_finite():
    with pytest.raises(InputError, match="cand holds 1 of 2 values that are not finite"):
        ulp_distance(np.ones(2), np.array([1.0, np.nan]), dtype="float32")
    with pytest.raises(InputError, match="ref holds 1 of 1 values that are not finite in float16"):
        ulp_distance(np.array([1e6]), np.array([1.0]), dtype="float16")


def test_ulp_refuses_unlike_shapes_and_one_byte_formats():
    with pytest.raises(InputError, match=r"ref has shape \(2,\), cand has shape \(1,\)"):
        ulp_distance(np.ones(2), np.ones(1), dtype="float32")
    with pytest.raises(InputError, match="not defined for dtype float8_e4m3fn"):
        ulp_distance(np.ones(2), np.ones(2), dtype="float8_e4m3fn")
