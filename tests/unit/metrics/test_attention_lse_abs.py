"""attention.lse_abs: the largest change of a log-sum-exp, and the base it may come from."""

import math
from typing import Any

import numpy as np

from tests.fakes import make_pair
from tests.layers import LEVELS, changed, drawn, prefill, router
from tests.measured import assert_measured
from validate.metrics.attention_lse_abs import attention_lse_abs


def held(lse: list[list[float]]) -> dict[str, Any]:
    rows, heads = len(lse), len(lse[0])
    return {"p-0": prefill({"mla.3.out": np.ones((rows, heads, 2)), "mla.3.lse": lse})}


def test_value_place_and_both_sides():
    m = attention_lse_abs(
        make_pair(held([[1.0, 2.0], [3.0, 4.0]]), held([[1.25, 2.0], [3.0, 3.5]])), LEVELS
    )

    assert (m.value, m.unit) == (0.5, "nats")
    assert (m.n, m.n_of) == (2, "rows over layers and modes")
    assert m.worst is not None
    assert (m.worst.prompt, m.worst.position) == ("p-0", 1)
    assert m.worst.place == "prefill.mla.3.lse head 1"
    assert m.worst.detail == "ref 4, cand 3.5 nats"


def test_a_fall_counts_as_much_as_a_rise():
    assert attention_lse_abs(make_pair(held([[1.0]]), held([[0.0]])), LEVELS).value == 1.0


def test_base_2_is_named():
    """LC-01: lse / ln 2 where the natural logarithm is meant."""
    ref = [[2.0, 3.0], [4.0, 5.0]]
    cand = [[value / math.log(2) for value in row] for row in ref]
    m = attention_lse_abs(make_pair(held(ref), held(cand)), LEVELS)

    assert m.value is not None
    assert_measured(m.value, 5 / math.log(2) - 5, atol=0, rtol=1e-6)
    assert m.pattern == "LSE is ref's times 1.443: base 2 where base e is meant (1 / ln 2 = 1.443)"


def test_equal_sides_measure_exactly_zero():
    tensors = {"p-0": drawn(seed=1)}
    m = attention_lse_abs(make_pair(tensors, tensors), LEVELS)

    assert (m.value, m.pattern) == (0.0, None)
    assert m.breakdown == {"slope of cand on ref": 1.0}


def test_without_lse_it_is_undefined():
    tensors = {"p-0": prefill({"kda.0.out": [[[1.0]]]})}

    assert "no prompt holds log-sum-exps" in str(
        attention_lse_abs(make_pair(tensors, tensors), LEVELS).why_undefined
    )


def test_infinite_lse_makes_it_undefined_with_its_sign():
    """LC-04: an empty context gives -inf on one side, +inf on the other."""
    ref = {"p-0": changed(drawn(seed=1), prefill__mla__1__lse=lambda a: a * 0 - np.inf)}
    cand = {"p-0": changed(drawn(seed=1), prefill__mla__1__lse=lambda a: a * 0 + np.inf)}
    m = attention_lse_abs(make_pair(ref, cand), LEVELS)

    assert m.value is None
    assert "ref 32 -inf; cand 32 +inf, first at (0, 0)" in str(m.why_undefined)


def test_rows_after_a_tie_are_left_out():
    sides = [
        {
            "p-0": {
                **prefill({"mla.3.out": np.ones((2, 1, 1)), "mla.3.lse": lse}),
                **router([[0.5, 0.5]] * 2, chosen),
            }
        }
        for lse, chosen in (([[1.0], [1.0]], [[0], [0]]), ([[1.5], [9.0]], [[0], [1]]))
    ]
    m = attention_lse_abs(make_pair(*sides, route_gap=0.01), LEVELS)

    assert (m.value, m.n) == (0.5, 1)
