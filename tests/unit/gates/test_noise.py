"""The noise floor over repeats."""

import math

import pytest

from tests.measured import assert_measured
from validate.errors import InputError
from validate.gates import MIN_REPEATS, noise_floor, unit_roundoff


def test_floor_is_students_upper_limit_on_the_logarithm():
    """Logarithms 0, 1, 2: mean 1, standard deviation 1, n = 3: exp(1 + 2.919986 / sqrt(3)).

    t(0.95, 2) = 2.919986 (Student's t table, two degrees of freedom).
    """
    floor = noise_floor([1.0, math.e, math.e**2], dtype="bfloat16")

    assert floor.repeats == 3
    assert floor.values == (1.0, math.e, math.e**2)
    assert not floor.derived
    assert_measured(floor.value, math.exp(1 + 2.9199855804 / math.sqrt(3)), atol=0, rtol=1e-9)


def test_level_moves_the_limit():
    """t(0.99, 3) = 4.540703; logarithms 0, 0, 2, 2 have mean 1 and s = 2 / sqrt(3)."""
    floor = noise_floor([1.0, 1.0, math.e**2, math.e**2], dtype="bfloat16", level=0.99)

    expected = math.exp(1 + 4.5407028587 * (2 / math.sqrt(3)) / 2)
    assert_measured(floor.value, expected, atol=0, rtol=1e-9)


def test_some_zeros_leave_the_maximum():
    """There is no logarithm of 0."""
    assert noise_floor([0.0, 0.0, 2.0], dtype="bfloat16").value == 2.0


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 1.0]])
def test_fewer_than_three_repeats_give_none(values):
    """The count is told."""
    floor = noise_floor(values, dtype="bfloat16")

    assert floor.value is None
    assert floor.repeats == len(values)
    assert floor.why_undefined == f"{len(values)} repeats of ref, at least 3 needed"


def test_three_repeats_are_enough():
    """The smallest sample that gives a floor."""
    assert MIN_REPEATS == 3
    assert noise_floor([1.0, 1.0, 1.0], dtype="bfloat16").value == 1.0


@pytest.mark.parametrize("bad", [-5e-324, -1.0])
def test_a_negative_repeat_gives_none(bad):
    """A difference is not below 0; -0.0 is 0."""
    assert noise_floor([1.0, bad, 1.0, 1.0], dtype="bfloat16").value is None
    assert noise_floor([0.0, -0.0, 0.0], dtype="bfloat16").value == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_repeat_that_is_no_number_gives_none(bad):
    """One bad repeat of four is not averaged away."""
    floor = noise_floor([1.0, 1.0, bad, 1.0], dtype="bfloat16")

    assert floor.value is None
    assert floor.why_undefined == f"1 of 4 repeats measure {bad}"
    assert [str(value) for value in floor.values] == ["1.0", "1.0", str(bad), "1.0"]


def test_zero_falls_back_to_unit_roundoff_and_says_so():
    """Scale 3, power 2: 3 * 2**-16 for bfloat16."""
    floor = noise_floor([0.0, 0.0, 0.0], dtype="bfloat16", roundoff=(3.0, 2))

    assert floor.derived
    assert floor.value == 3 * 2.0**-16
    assert floor.values == (0.0, 0.0, 0.0)


def test_zero_stays_zero_where_no_stand_in_is_stated():
    """Gates that do not divide by the floor show it as measured."""
    floor = noise_floor([0.0, 0.0, 0.0], dtype="bfloat16")

    assert floor.value == 0
    assert not floor.derived


def test_a_repeat_next_to_nothing_does_not_lift_the_floor():
    """Medians of KL seen on one card, in nats: 2.6e-5, 1.2e-11, 2.8e-5, 2.0e-5.

    Student's t on their logarithms gives 3.4e-3, a hundred times the largest; each is below
    16 u^2 = 2.4e-4 of bfloat16, so that is the floor.
    """
    measured = [2.649e-05, 1.174e-11, 2.794e-05, 2.005e-05]

    floor = noise_floor(measured, dtype="bfloat16", roundoff=(16.0, 2))

    assert floor.derived
    assert floor.value == 16 * 2.0**-16
    assert floor.values == tuple(measured)


def test_a_repeat_next_to_nothing_counts_as_one_rounding():
    """exp(mean + t s / 2) of log(2^-8, 2^-6, 2^-6, 2^-6): mean -6.5 ln 2, s = ln 2, t(0.95, 3)."""
    floor = noise_floor([1e-15, 2**-6, 2**-6, 2**-6], dtype="bfloat16", roundoff=(1.0, 1))

    expected = 2**-6.5 * math.exp(2.3533634348 * math.log(2) / 2)
    assert not floor.derived
    assert_measured(floor.value, expected, atol=0, rtol=1e-9)


def test_a_floor_below_one_rounding_is_one_rounding():
    """Repeats that rounded alike do not make rounding free: 2^-8 in bfloat16."""
    floor = noise_floor([1e-9] * 3, dtype="bfloat16", roundoff=(1.0, 1))

    assert floor.derived
    assert_measured(floor.value, 2.0**-8, atol=0, rtol=0)


def test_repeats_below_one_rounding_leave_no_spread():
    """256 u = 1 in bfloat16: a scale of 256 times 0.007 is a rounding of 0.007, above every repeat."""
    floor = noise_floor([0.004, 0.005, 0.006], dtype="bfloat16", roundoff=(256 * 0.007, 1))

    assert floor.derived
    assert_measured(floor.value, 0.007, atol=0, rtol=1e-15)


def test_a_floor_above_one_rounding_is_what_was_measured():
    """Three equal repeats leave no spread, so the upper limit is their value."""
    floor = noise_floor([0.004] * 3, dtype="bfloat16", roundoff=(1.0, 1))

    assert not floor.derived
    assert_measured(floor.value, 0.004, atol=0, rtol=1e-9)


def test_without_a_stand_in_a_small_floor_is_kept():
    """A gate whose limit names no roundoff divides by what was measured."""
    floor = noise_floor([1e-9] * 3, dtype="bfloat16")

    assert not floor.derived
    assert_measured(floor.value, 1e-9, atol=0, rtol=1e-9)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float64", 2.0**-53),
        ("float32", 2.0**-24),
        ("float16", 2.0**-11),
        ("bfloat16", 2.0**-8),
        ("float8_e4m3fn", 2.0**-4),
        ("float8_e4m3fnuz", 2.0**-4),
        ("float8_e5m2", 2.0**-3),
    ],
)
def test_unit_roundoff_is_half_an_ulp_of_one(dtype, expected):
    """Half of the machine epsilons that ml_dtypes.finfo and numpy.finfo give."""
    assert unit_roundoff(dtype) == expected


def test_unknown_dtype_is_refused():
    """Short names are no names."""
    with pytest.raises(InputError, match="no unit roundoff is known for 'bf16'; known: float64"):
        unit_roundoff("bf16")


def test_a_floor_of_exactly_one_rounding_was_measured():
    """A repeat of 0 counts as one rounding, 2^-8, as the others: no spread, and not derived."""
    floor = noise_floor([0.0, 2.0**-8, 2.0**-8], dtype="bfloat16", roundoff=(1.0, 1))

    assert_measured(floor.value, 2.0**-8, atol=0, rtol=1e-14)
    assert not floor.derived
