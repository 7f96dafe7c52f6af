"""Inversion draws and the filters of a request together, by hand."""

import numpy as np
import pytest

from tests.measured import assert_measured
from validate.oracle import draw, filtered

ROW = np.array([[0.35, 0.25, 0.20, 0.05, 0.15]])


@pytest.mark.parametrize(
    ("u", "expected"), [(0.0, 1), (0.2499, 1), (0.25, 3), (0.7499, 3), (0.75, 4), (0.9999, 4)]
)
def test_draw_takes_the_first_id_beyond_the_coin(u, expected):
    """Edges of [0, 1/4, 0, 1/2, 1/4]: 1/4 and 3/4, each belonging to the id after it."""
    assert draw(np.array([[0.0, 0.25, 0.0, 0.5, 0.25]]), np.array([u])).tolist() == [expected]


def test_draw_does_not_need_a_sum_of_one():
    assert draw(np.array([[2.0, 6.0]] * 2), np.array([0.2499, 0.25])).tolist() == [0, 1]


def test_draw_from_an_empty_row_is_the_last_id():
    assert draw(np.zeros((1, 4)), np.array([0.3])).tolist() == [3]


def test_order_decides_what_top_p_counts():
    """The row of sgl-project/sglang#36173: 0.82 of what top-k left is three tokens, of all four."""
    first = filtered(ROW, top_k=4, top_p=0.79, min_p=0.0, order="top_k_first")
    joint = filtered(ROW, top_k=4, top_p=0.96, min_p=0.0, order="joint")

    # top-k leaves .35 .25 .2 .15 of .95; .79 of that is .7505: three reach .8
    assert_measured(first, [[0.35 / 0.8, 0.25 / 0.8, 0.2 / 0.8, 0, 0]], atol=1e-15, rtol=1e-15)
    # .96 of the whole row needs all five, top-k takes the smallest away
    assert_measured(
        joint, [[0.35 / 0.95, 0.25 / 0.95, 0.2 / 0.95, 0, 0.15 / 0.95]], atol=1e-15, rtol=1e-15
    )


def test_min_p_looks_at_one_row():
    """0.5 of 0.35 is 0.175: three stay, with or without a top-k before it."""
    for k in (5, 4):
        out = filtered(ROW, top_k=k, top_p=1.0, min_p=0.5)
        assert_measured(out, [[0.35 / 0.8, 0.25 / 0.8, 0.2 / 0.8, 0, 0]], atol=1e-15, rtol=1e-15)


def test_each_row_has_its_own_parameters():
    out = filtered(
        np.repeat(ROW, 3, axis=0), top_k=[1, 0, 5], top_p=[1.0, 0.5, 1.0], min_p=[0.0, 0.0, 1.0]
    )
    assert [np.flatnonzero(row).tolist() for row in out] == [[0], [0, 1], [0]]


def test_one_mass_two_orders():
    """0.82: three of four are 0.8 / 0.95 = 0.842 of what top-k left, but 0.8 of the whole row."""
    found = {
        order: filtered(ROW, top_k=4, top_p=0.82, min_p=0.0, order=order)
        for order in ("top_k_first", "joint")
    }

    assert_measured(
        found["top_k_first"], [[0.35 / 0.8, 0.25 / 0.8, 0.2 / 0.8, 0, 0]], atol=1e-15, rtol=1e-15
    )
    assert_measured(
        found["joint"],
        [[0.35 / 0.95, 0.25 / 0.95, 0.2 / 0.95, 0, 0.15 / 0.95]],
        atol=1e-15,
        rtol=1e-15,
    )
