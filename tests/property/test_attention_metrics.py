"""Laws of the attention and state metrics: identity, scaling, permutation, added prompts."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.fakes import make_pair
from tests.layers import LEVELS, drawn
from tests.measured import assert_measured
from validate.metrics import METRICS
from validate.metrics.attention_head_rel_l2 import attention_head_rel_l2
from validate.metrics.attention_hidden_rel_l2 import attention_hidden_rel_l2
from validate.metrics.attention_lse_abs import attention_lse_abs
from validate.metrics.attention_rel_l2 import attention_rel_l2
from validate.metrics.attention_row_rel_l2 import attention_row_rel_l2
from validate.metrics.attention_scale import attention_scale

few = settings(max_examples=12, deadline=None)
"""Each example walks whole captures; twelve keep a law under a second."""

RELATIVE = (
    attention_rel_l2,
    attention_hidden_rel_l2,
    attention_head_rel_l2,
    attention_row_rel_l2,
    attention_scale,
)


def times(held: dict[str, Any], factor: float) -> dict[str, Any]:
    return {
        name: array if "positions" in name else array * np.float32(factor)
        for name, array in held.items()
    }


@few
@given(seed=st.integers(0, 999), tokens=st.integers(1, 12))
def test_equal_sides_are_exactly_zero_in_every_metric(seed, tokens):
    held = {"p-0": drawn(seed=seed, tokens=tokens), "p-1": drawn(seed=seed + 1, tokens=4)}
    pair = make_pair(held, held)

    for name, metric in METRICS.items():
        if name.startswith("attention.") and not name.endswith("_ratio") and "routing" not in name:
            assert metric(pair, LEVELS).value == 0.0, name


@few
@given(exponent=st.integers(-20, 20), seed=st.integers(0, 99))
def test_relative_metrics_ignore_a_common_power_of_two(exponent, seed):
    """Multiplying both sides by 2^k is exact in float32, so nothing may change at all."""
    ref, cand = drawn(seed=seed, tokens=4), drawn(seed=seed + 100, tokens=4)
    plain = make_pair({"p-0": ref}, {"p-0": cand})
    scaled = make_pair({"p-0": times(ref, 2.0**exponent)}, {"p-0": times(cand, 2.0**exponent)})

    for metric in RELATIVE:
        assert metric(scaled, LEVELS).value == metric(plain, LEVELS).value


@few
@given(alpha=st.sampled_from([0.5, 1.5, 2.0, 3.0]), seed=st.integers(0, 99))
def test_scaled_candidate_measures_alpha_minus_one(alpha, seed):
    held = drawn(seed=seed)
    pair = make_pair({"p-0": held}, {"p-0": times(held, alpha)})

    for metric in RELATIVE:
        # ||alpha r - r|| / ||r||; float32 rounding of the products. A row shorter than the RMS
        # row is held to that, so the worst row is exact only for the longest one.
        assert_measured(metric(pair, LEVELS).value, abs(alpha - 1), atol=0, rtol=1e-6)


@few
@given(order=st.permutations(range(4)), seed=st.integers(0, 99))
def test_heads_permuted_on_both_sides_change_nothing(order, seed):
    ref, cand = drawn(seed=seed), drawn(seed=seed + 100)

    def moved(held: dict[str, Any]) -> dict[str, Any]:
        return {
            name: array[:, order] if name.endswith((".out", ".lse")) else array
            for name, array in held.items()
        }

    plain = make_pair({"p-0": ref}, {"p-0": cand})
    both = make_pair({"p-0": moved(ref)}, {"p-0": moved(cand)})

    for metric in (attention_rel_l2, attention_head_rel_l2, attention_scale, attention_lse_abs):
        # The same sums in another order.
        assert_measured(metric(both, LEVELS).value, metric(plain, LEVELS).value, atol=0, rtol=1e-12)


@few
@given(seed=st.integers(0, 99))
def test_a_permuted_candidate_is_named_head_by_head(seed):
    order = np.random.default_rng(seed).permutation(4)
    ref = {f"p-{i}": drawn(seed=seed + i) for i in range(2)}
    cand = {
        prompt: {
            name: array[:, order] if name.startswith("prefill.kda.0.out") else array
            for name, array in held.items()
        }
        for prompt, held in ref.items()
    }
    pattern = attention_head_rel_l2(make_pair(ref, cand), LEVELS).pattern

    if (order == np.arange(4)).all():
        assert pattern is None
    else:
        assert pattern is not None
        assert ", ".join(f"{h}→{m}" for h, m in enumerate(order)) in pattern


@pytest.mark.parametrize("metric", RELATIVE)
@few
@given(seed=st.integers(0, 99))
def test_an_equal_prompt_more_never_raises_the_value(metric, seed):
    ref, cand = {"p-0": drawn(seed=seed)}, {"p-0": drawn(seed=seed + 100)}
    same = {"p-1": drawn(seed=seed + 200)}
    alone = metric(make_pair(ref, cand), LEVELS).value
    more = metric(make_pair({**ref, **same}, {**cand, **same}), LEVELS).value

    assert alone is not None
    assert more is not None
    assert more <= alone
