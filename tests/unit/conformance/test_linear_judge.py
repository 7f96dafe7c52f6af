"""Judging by the rounding model: hand-made errors, non-finite values, truncated patterns."""

import numpy as np
import pytest

from tests.measured import assert_measured
from validate.conformance.ops._rounding import (
    Expected,
    Multiples,
    joined,
    judge,
    largest_ratios,
)


def expected(values, scale=0.5, axes=("row", "channel")):
    held = np.array(values, dtype=np.float64)
    return Expected(values=held, scale=np.full(held.shape, scale), axes=axes)


def test_within_the_model_nothing_is_broken():
    truth = expected([[1.0, 2.0], [3.0, 4.0]])

    assert judge("y", truth, np.array([[1.5, 2.0], [3.0, 3.5]], dtype=np.float32)) == ()


def test_ratios_by_hand():
    """Errors 1 and 2 in row 0 at scale 0.5: element 4, row sqrt(5)/sqrt(0.5), bulk sqrt(5)/1."""
    truth = expected([[1.0, 2.0], [3.0, 4.0]])
    got = np.array([[2.0, 4.0], [3.0, 4.0]], dtype=np.float32)

    assert_measured(
        largest_ratios(truth, got), [4.0, np.sqrt(10.0), np.sqrt(5.0)], atol=0, rtol=1e-12
    )


def test_one_wrong_value_breaks_element_and_names_the_place():
    truth = expected(np.ones((3, 2)), scale=0.1)
    got = np.ones((3, 2), dtype=np.float32)
    got[2, 1] = 3.0

    found = judge("y", truth, got, multiples=Multiples(element=8.0, row=1e9, bulk=1e9))

    assert [one.clause for one in found] == ["element"]
    assert found[0].at == {"row": 2, "channel": 1}
    assert found[0].wrong == {"row": (2,), "channel": (1,)}
    assert "row 2, channel 1: 3, oracle 1, error 2, limit 0.8" in found[0].what
    assert_measured(found[0].ratio, 2.5, atol=0, rtol=1e-12)


def test_a_small_bias_everywhere_breaks_the_bulk_alone():
    truth = expected(np.zeros((50, 40)), scale=0.1)
    got = np.full((50, 40), 0.25)

    found = judge("y", truth, got)

    assert [one.clause for one in found] == ["bulk"]
    assert "rel-L2 undefined (oracle 0)" in found[0].what


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_told_alone(bad):
    truth = expected(np.ones((2, 2)))
    got = np.ones((2, 2), dtype=np.float32)
    got[1, 0] = bad

    found = judge("y", truth, got)

    assert [one.clause for one in found] == ["finite"]
    assert found[0].at == {"row": 1, "channel": 0}
    assert largest_ratios(truth, got) == (np.inf, np.inf, np.inf)


def test_scale_zero_demands_equality():
    truth = expected([[1.0, 0.0]], scale=0.0)

    assert judge("y", truth, np.array([[1.0, 0.0]])) == ()
    assert {one.clause for one in judge("y", truth, np.array([[1.0, 1e-30]]))} == {
        "element",
        "worst-row",
        "bulk",
    }


def test_empty_breaks_nothing_and_parts_are_joined():
    assert judge("y", expected(np.zeros((0, 4))), np.zeros((0, 4))) == ()
    both = joined([expected([[1.0]]), expected([[2.0], [3.0]])])
    assert both.values[:, 0].tolist() == [1.0, 2.0, 3.0]
