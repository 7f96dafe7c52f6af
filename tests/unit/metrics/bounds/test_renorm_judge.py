"""One row before the oracle: every figure of the judgement by hand."""

import math

import numpy as np
import pytest

from tests.measured import assert_measured
from validate.metrics._renorm_judge import Judged, RowCase, judge_row, tie_band

U = 2.0**-24


def judged(given, out, *, k=2**30, p=1.0, ties="all"):
    arrays = np.asarray(given, float), np.asarray(out, float)
    return judge_row(RowCase(*arrays, k=k, p=p, ties=ties, u_out=U))


def test_numbers_that_are_no_probabilities_are_counted_on_both_sides():
    """NaN and a negative entry before, an infinity after; a negative zero is a zero."""
    found = judged([np.nan, -0.5, 0.5], [np.inf, -0.0, 0.5])

    assert found == Judged(
        bad=3,
        wrong=None,
        kept=0,
        low=0,
        high=0,
        tied=False,
        entries=0,
        sum_error=0.0,
        value_error=0.0,
        shortfall=0.0,
    )


@pytest.mark.parametrize(
    ("u_out", "units"), [(0.0, 16), (2.0**-24, 16), (2.0**-9, 16 + 2**15)], ids=str
)
def test_the_tie_band_grows_with_the_root_of_the_entries(u_out, units):
    """(6 sqrt(4) + 4) u = 16 u, and the roundoff of an output narrower than float32."""
    assert tie_band(4, u_out=u_out) == units * U


def test_a_right_top_2():
    found = judged([0.5, 0.3, 0.2], [0.625, 0.375, 0.0], k=2)

    assert (found.bad, found.wrong, found.tied) == (0, None, False)
    assert (found.kept, found.low, found.high, found.entries) == (2, 2, 2, 3)
    assert_measured([found.sum_error, found.value_error], [0.0, 0.0], atol=1e-15, rtol=0)
    assert found.shortfall == 0.0


def test_values_are_held_to_what_the_row_keeps():
    """0.7 for 0.625 is 0.12 too much, 0.3 for 0.375 is 0.2 too little; the sum is right."""
    found = judged([0.5, 0.3, 0.2], [0.7, 0.3, 0.0], k=2)

    assert_measured(found.value_error, 0.2, atol=1e-12, rtol=0)
    assert_measured(found.sum_error, 0.0, atol=1e-15, rtol=0)


def test_a_sum_that_is_not_one():
    """0.5 + 0.375: short of 1 by 0.125."""
    assert judged([0.5, 0.3, 0.2], [0.5, 0.375, 0.0], k=2).sum_error == 0.125


def test_mass_that_is_lacking():
    """p = 0.9 of the mass 1, and 0.5 kept."""
    found = judged([0.5, 0.3, 0.2], [1.0, 0.0, 0.0], p=0.9)

    assert_measured(found.shortfall, 0.4, atol=1e-12, rtol=0)
    assert (found.kept, found.low, found.high) == (1, 3, 3)


@pytest.mark.parametrize(
    ("given", "out", "k", "text"),
    [
        ([0.6, 0.4, 0.0], [0.5, 0.4, 0.1], 3, "id 2 has probability 0 before and 0.1 after"),
        ([0.5, 0.3, 0.2], [1.0, 0.0, 0.0], 2, "keeps 1 entries, the oracle 2 (k=2, p=1, ties all)"),
        ([0.5, 0.3, 0.2], [0.5, 0.3, 0.2], 2, "keeps 3 entries, the oracle 2 (k=2, p=1, ties all)"),
        (
            [0.5, 0.3, 0.2],
            [0.7, 0.0, 0.3],
            2,
            "keeps id 2 (0.2) and not id 1 (0.3) (k=2, p=1, ties all)",
        ),
        ([0.0, 0.0], [0.5, 0.0], 1, "a row of zeros gives 0.5"),
        ([0.0, 0.0], [0.0, 0.0], 1, None),
    ],
)
def test_what_is_wrong_in_words(given, out, k, text):
    assert judged(given, out, k=k).wrong == text


def test_a_row_of_zeros_keeps_its_sum():
    assert judged([0.0, 0.0], [0.5, 0.25], k=1).sum_error == 0.75


def test_a_row_that_keeps_nothing_has_no_right_value():
    found = judged([0.5, 0.5], [0.0, 0.0], k=1)

    assert (found.kept, found.value_error, found.sum_error) == (0, math.inf, 1.0)


@pytest.mark.parametrize(
    ("ties", "out", "low", "wrong"),
    [
        ("all", [0.5, 0.5, 0.0], 2, None),
        ("all", [1.0, 0.0, 0.0], 2, "keeps 1 entries, the oracle 2 (k=1, p=1, ties all)"),
        ("exactly_k", [1.0, 0.0, 0.0], 1, None),
    ],
)
def test_ties_at_the_last_place(ties, out, low, wrong):
    found = judged([0.4, 0.4, 0.2], out, k=1, ties=ties)

    assert (found.tied, found.low, found.high, found.wrong) == (True, low, low, wrong)


def test_no_tie_where_every_entry_is_kept():
    assert judged([0.4, 0.4], [0.5, 0.5], k=2).tied is False
    assert judged([0.4, 0.4], [0.5, 0.5], k=0).tied is True


def test_entries_below_the_smallest_normal_number_do_not_count():
    found = judged([0.75, 0.25, 1e-40], [0.75, 0.25, 0.0])

    assert (found.kept, found.low, found.high, found.entries, found.wrong) == (2, 2, 2, 2, None)
    kept = judged([0.75, 0.25, 1e-40], [0.75, 0.25, 1e-40])
    assert (kept.kept, kept.wrong) == (2, None)
    least = judged([0.75, 0.25, 2.0**-126], [0.75, 0.25, 2.0**-126])
    assert (least.kept, least.low, least.high, least.entries) == (3, 3, 3, 3)


def test_top_p_keeps_the_fewest_that_reach_it():
    """0.5 + 0.3 reaches 0.7 and 0.5 alone does not."""
    found = judged([0.5, 0.3, 0.2], [0.625, 0.375, 0.0], p=0.7)

    assert (found.low, found.high, found.wrong) == (2, 2, None)


def test_either_count_is_right_where_p_falls_on_a_sum():
    """0.5 + 0.25 is p to the last bit: float32 may stop there or go on."""
    found = judged([0.5, 0.25, 0.25 - 2**-10, 2**-10], [2 / 3, 1 / 3, 0.0, 0.0], p=0.75)

    assert (found.low, found.high, found.wrong) == (2, 3, None)
