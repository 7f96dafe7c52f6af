"""attention.lse_slope: scores that are all too large by one factor, seen through the LSEs."""

from typing import Any

import numpy as np
import pytest

from tests.fakes import make_pair
from tests.layers import LEVELS, changed, decode, drawn, prefill, router
from tests.measured import assert_measured
from validate.metrics.attention_lse_slope import attention_lse_slope


def held(lse: Any, *, more: Any = None) -> dict[str, Any]:
    shape = (*np.shape(lse), 2)
    made = prefill({"mla.3.out": np.ones(shape), "mla.3.lse": lse})
    if more is not None:
        made |= decode(
            {"mla.3.out": np.ones((*np.shape(more), 2)), "mla.3.lse": more}, start=len(shape)
        )
    return {"p-0": made}


def test_the_slope_by_hand():
    """ref (3, 4), cand (4, 4): (1 * 3 + 0 * 4) / (9 + 16) = 0.12."""
    m = attention_lse_slope(make_pair(held([[3.0], [4.0]]), held([[4.0], [4.0]])), LEVELS)

    assert m.value is not None
    assert_measured(m.value, 0.12, atol=0, rtol=1e-12)
    assert (m.unit, m.n, m.n_of) == ("|slope - 1|", 2, "rows over layers and modes")
    assert m.pooled == 1
    assert m.worst is not None
    assert (m.worst.place, m.worst.detail) == ("prefill", "slope 1.12")


def test_the_worse_mode_counts_and_a_fall_counts_as_a_rise():
    """Prefill 0.12 up; decode ref 2, cand 1: 0.5 down."""
    ref = held([[3.0], [4.0]], more=[[2.0]])
    cand = held([[4.0], [4.0]], more=[[1.0]])
    m = attention_lse_slope(make_pair(ref, cand), LEVELS)

    assert m.value == 0.5
    assert m.worst is not None
    assert m.worst.place == "decode"
    assert m.breakdown["decode"] == m.breakdown["decode.mla.3"] == -0.5
    assert_measured(m.breakdown["prefill"], 0.12, atol=0, rtol=1e-12)


def test_layers_and_prompts_of_a_mode_are_one_fit():
    """Layer 3: 3 of 25, in the first prompt alone. Layer 7 and the second prompt exact: 3 of 100."""

    def made(first: float) -> dict[str, Any]:
        return prefill(
            {
                "mla.3.out": np.ones((2, 1, 2)),
                "mla.3.lse": [[first], [4.0]],
                "mla.7.out": np.ones((2, 1, 2)),
                "mla.7.lse": [[3.0], [4.0]],
            }
        )

    ref, cand = ({"p-0": made(first), "p-1": made(3.0)} for first in (3.0, 4.0))
    m = attention_lse_slope(make_pair(ref, cand), LEVELS)

    assert m.value is not None
    assert_measured(m.value, 0.03, atol=0, rtol=1e-12)
    assert m.n == 8
    assert m.breakdown["prefill.mla.7"] == 0.0


def test_rounding_leaves_the_slope_where_a_scale_moves_it():
    """Noise of 2 % of each LSE, as far as a scale of 1.02 moves it: sd 0.02 / sqrt(600)."""
    rng = np.random.default_rng(3)
    lse = rng.uniform(5, 10, (50, 12))
    noise = attention_lse_slope(
        make_pair(held(lse), held(lse * (1 + 0.02 * rng.normal(size=lse.shape)))), LEVELS
    )
    scale = attention_lse_slope(make_pair(held(lse), held(lse * 1.02)), LEVELS)

    assert noise.value is not None
    assert noise.value < 0.004
    assert scale.value is not None
    assert_measured(scale.value, 0.02, atol=0, rtol=1e-4)


def test_equal_sides_measure_exactly_zero():
    tensors = {"p-0": drawn(seed=1)}

    assert attention_lse_slope(make_pair(tensors, tensors), LEVELS).value == 0.0


def test_undefined_without_lse_or_with_zeros_or_infinities():
    nothing = {"p-0": prefill({"kda.0.out": [[[1.0]]]})}
    zero = held([[0.0], [0.0]])
    broken = held([[np.inf], [4.0]])

    def why(ref: Any, cand: Any) -> str:
        m = attention_lse_slope(make_pair(ref, cand), LEVELS)
        assert m.value is None
        return str(m.why_undefined)

    assert "no prompt holds log-sum-exps" in why(nothing, nothing)
    assert why(zero, zero) == "the log-sum-exps of ref are all zero in prefill"
    assert "cand 1 +inf" in why(held([[3.0], [4.0]]), broken)
    assert "cand 1 +inf" in why(held([[3.0]]), held([[np.inf]]))
    assert "cand 1 +inf" in why(held([[3.0]], more=[[0.0]]), held([[np.inf]], more=[[0.0]]))


@pytest.mark.parametrize("gap", [0.01, 0.0])
def test_rows_after_a_tie_are_left_out(gap):
    """Token 1 took another expert at layer 1 by a gap of 0.005; its LSE at layer 3 is far off."""
    scores = [[0.9, 0.1], [0.5, 0.495]]
    base = held([[3.0], [4.0]])["p-0"]
    ref = {**base, **router(scores, [[0], [0]])}
    cand = {
        **changed(base, prefill__mla__3__lse=np.array([[3.0], [9.0]], np.float32)),
        **router([[0.9, 0.1], [0.495, 0.5]], [[0], [1]]),
    }
    m = attention_lse_slope(make_pair({"p-0": ref}, {"p-0": cand}, route_gap=gap), LEVELS)

    assert m.value is not None
    assert (m.value == 0.0) == (gap > 0)
