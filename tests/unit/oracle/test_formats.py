"""Eight-bit and four-bit floats: tables against the standards, and against ml_dtypes' casts."""

import ml_dtypes
import numpy as np
import pytest

from tests.measured import assert_measured
from validate.errors import InputError
from validate.oracle import (
    e2m1_values,
    e8m0_of,
    e8m0_values,
    float8_decode,
    float8_encode,
    float8_values,
    mxfp4_decode,
    mxfp4_encode,
)
from validate.oracle.formats import Float8

FN: Float8 = "float8_e4m3fn"
FNUZ: Float8 = "float8_e4m3fnuz"


@pytest.mark.parametrize("fmt", [FN, FNUZ])
def test_all_256_codes_are_those_of_ml_dtypes(fmt):
    other = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, fmt)).astype(np.float64)
    assert np.array_equal(float8_values(fmt), other, equal_nan=True)


@pytest.mark.parametrize("fmt", [FN, FNUZ])
def test_encoding_is_that_of_ml_dtypes(fmt):
    """100,001 values past the range with all midpoints in it, infinities, NaN and both zeros."""
    table = float8_values(fmt)
    rising = np.sort(table[np.isfinite(table)])
    middles = (rising[1:] + rising[:-1]) / 2
    x = np.concatenate([np.linspace(-500, 500, 10_001), middles, [np.inf, -np.inf, np.nan, -0.0]])

    ours = float8_encode(x, fmt, overflow="nan")
    other = x.astype(getattr(ml_dtypes, fmt)).view(np.uint8)

    both_nan = np.isnan(table[ours]) & np.isnan(table[other])
    assert ((ours == other) | both_nan).all()


def test_landmarks_of_the_standard():
    """OCP FP8 1.0, table 1: largest 448, least normal 2^-6, least subnormal 2^-9."""
    fn, fnuz = float8_values(FN), float8_values(FNUZ)
    assert (fn[0x7E], fn[0x08], fn[0x01]) == (448.0, 2.0**-6, 2.0**-9)
    assert (fnuz[0x7F], fnuz[0x08], fnuz[0x01]) == (240.0, 2.0**-7, 2.0**-10)
    assert np.isnan(fnuz[0x80])
    assert np.signbit(fn[0x80])


def test_overflow_saturates_or_is_nan():
    x = np.array([448.0, 464.0, 465.0, -1e9, np.inf])
    assert float8_encode(x, FN).tolist() == [0x7E, 0x7E, 0x7E, 0xFE, 0x7E]
    assert float8_encode(x, FN, overflow="nan").tolist() == [0x7E, 0x7E, 0x7F, 0xFF, 0x7F]
    assert float8_encode(np.array([248.0]), FNUZ, overflow="nan").tolist() == [0x80]
    assert float8_encode(np.array([247.9]), FNUZ, overflow="nan").tolist() == [0x7F]


@pytest.mark.parametrize("fmt", [FN, FNUZ])
def test_every_code_comes_back(fmt):
    codes = np.arange(256, dtype=np.uint8)
    back = float8_encode(float8_decode(codes, fmt), fmt)
    nan = np.isnan(float8_values(fmt))
    assert (back[~nan] == codes[~nan]).all()


def test_fp4_codes_and_scales_of_the_standard():
    """OCP MX 1.0, tables 5 and 7."""
    assert e2m1_values().tolist() == [
        *(0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0),
        *(-0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0),
    ]
    assert (e8m0_values()[0], e8m0_values()[254]) == (2.0**-127, 2.0**127)
    assert np.isnan(e8m0_values()[255])


def test_scale_of_a_block():
    largest = np.array([0.0, 1.0, 3.0, 3.9, 4.0, 448.0])
    assert e8m0_of(largest).tolist() == [0, 125, 126, 126, 127, 133]
    assert e8m0_of(largest, rule="nearest").tolist() == [0, 125, 127, 127, 127, 134]


def test_fp4_rounds_ties_to_even_and_saturates():
    """Largest 7.9 has scale 1: 0.25 to 0, 0.75 to 1, 2.5 to 2, 3.5 to 4, 5 to 4, 7.9 to 6."""
    x = np.zeros((1, 32))
    x[0, :7] = [0.25, 0.75, 2.5, 3.5, 5.0, 7.9, -1.25]

    packed, scales = mxfp4_encode(x)

    assert scales.tolist() == [[127]]
    assert_measured(
        mxfp4_decode(packed, scales)[0, :7], [0.0, 1.0, 2.0, 4.0, 4.0, 6.0, -1.0], atol=0, rtol=0
    )


def test_the_earlier_element_is_in_the_low_bits():
    x = np.zeros((1, 32))
    x[0, 0], x[0, 1] = 6.0, -0.5
    assert mxfp4_encode(x).packed[0, 0] == 0x97


def test_every_fp4_code_comes_back_at_every_scale():
    packed = np.tile(np.arange(16, dtype=np.uint8) * 17, (253, 1))
    scales = np.arange(1, 254, dtype=np.uint8)[:, None]
    values = mxfp4_decode(packed, scales)
    again = mxfp4_encode(values, scales=scales)
    assert np.array_equal(again.packed, packed)


def test_rows_of_odd_length_are_refused():
    with pytest.raises(InputError, match="multiple of 32"):
        mxfp4_encode(np.zeros((1, 33)))


def test_scale_codes_stop_at_both_ends():
    """Code of 2^k is k - 2 + 127: 253 and 254 at 2^128 and 2^129, then 254; 1 and 0 at 2^-124."""
    assert e8m0_values().shape == (256,)
    large = 2.0 ** np.array([128, 129, 130, 131, 1000])
    assert e8m0_of(large).tolist() == [253, 254, 254, 254, 254]
    small = 2.0 ** np.array([-124, -125, -126, -127, -1000])
    assert e8m0_of(small).tolist() == [1, 0, 0, 0, 0]


def test_each_block_of_a_row_has_its_own_scale():
    """Largest 6, 12 and 3: scales 1, 2 and 1/2; every element is one that its block holds."""
    x = np.zeros((2, 96))
    x[0, [0, 31, 32, 63, 64, 95]] = [6.0, -0.5, 12.0, 1.0, 3.0, -0.25]
    x[1, [5, 40]] = [1.5, 3.0]

    packed, scales = mxfp4_encode(x)

    assert scales.tolist() == [[127, 128, 126], [125, 126, 0]]
    assert packed.shape == (2, 48)
    assert_measured(mxfp4_decode(packed, scales), x, atol=0, rtol=0)
