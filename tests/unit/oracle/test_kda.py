"""KDA: by hand, recurrent against chunked, gate limits, hand-over of the state."""

import time

import numpy as np
import pytest

from tests.measured import assert_measured
from tests.unit.oracle.tiny import kda_inputs
from validate.oracle import kda, kda_chunk, l2_norm, lower_bound_gate

BOTH = pytest.mark.parametrize("derivation", [kda, kda_chunk])


@BOTH
def test_two_tokens_by_hand(derivation):
    """One head, two key and two value channels, l2_eps 11, L = -4 ln 2, A_log = ln 2.

    Norms: |(3,4)|^2 + 11 = |(0,5)|^2 + 11 = |(5,0)|^2 + 11 = 36, so all divide by 6.
    Decay: f + dt_bias = (0, ln 3 / 2); times exp(A_log) = 2: (0, ln 3); sigmoid (1/2, 3/4);
    g = (-2 ln 2, -3 ln 2); decay (1/4, 1/8).
    Token 0: k = (1/2, 2/3), beta = 1/2, v = (6, 12), S = 0 before:
      S = 1/2 k v^T = [[1.5, 3], [2, 4]]; q = (0, 5/6)/sqrt 2; o = (5/3, 10/3)/sqrt 2.
    Token 1: decayed S = [[.375, .75], [.25, .5]]; k = (5/6, 0); S^T k = (.3125, .625);
      v = (1.3125, 2.625), so v - S^T k = (1, 2); beta = 3/4; update [[.625, 1.25], [0, 0]];
      S = [[1, 2], [.25, .5]]; q = (5/6, 0)/sqrt 2; o = (5/6, 5/3)/sqrt 2.
    """
    result = derivation(
        q=np.array([[[0.0, 5.0]], [[5.0, 0.0]]]),
        k=np.array([[[3.0, 4.0]], [[5.0, 0.0]]]),
        v=np.array([[[6.0, 12.0]], [[1.3125, 2.625]]]),
        f=np.array([[[1.0, 2.0]], [[1.0, 2.0]]]),
        dt_bias=np.array([[-1.0, np.log(3.0) / 2 - 2.0]]),
        a_log=np.log([2.0]),
        b=np.array([[0.0], [np.log(3.0)]]),
        lower_bound=-4.0 * np.log(2.0),
        l2_eps=11.0,
    )

    root = np.sqrt(2.0)
    expected = np.array([[[5 / 3, 10 / 3]], [[5 / 6, 5 / 3]]]) / root
    assert_measured(result.out, expected, atol=0.0, rtol=1e-14)
    assert_measured(result.state, [[[1.0, 2.0], [0.25, 0.5]]], atol=0.0, rtol=1e-14)


@pytest.mark.parametrize("chunk", [1, 2, 4, 11, 16])
@pytest.mark.parametrize("seed", [0, 1])
def test_recurrent_equals_chunked(seed, chunk):
    inputs = kda_inputs(seed)

    once = kda(**inputs, lower_bound=-5.0)
    by_chunks = kda_chunk(**inputs, lower_bound=-5.0, chunk=chunk)

    assert_measured(by_chunks.out, once.out, atol=1e-13, rtol=1e-11)
    assert_measured(by_chunks.state, once.state, atol=1e-13, rtol=1e-11)


def test_recurrent_equals_chunked_without_a_state_at_k3_head_width():
    inputs = kda_inputs(3, tokens=70, heads=2, key=128, value=128)
    del inputs["state"]

    once = kda(**inputs, lower_bound=-5.0)
    by_chunks = kda_chunk(**inputs, lower_bound=-5.0, chunk=64)

    assert_measured(by_chunks.out, once.out, atol=1e-13, rtol=1e-10)
    assert_measured(by_chunks.state, once.state, atol=1e-13, rtol=1e-10)


@BOTH
def test_prefill_in_two_parts_hands_the_state_over(derivation):
    inputs = kda_inputs(2)
    whole = derivation(**inputs, lower_bound=-5.0)
    per_token = ("q", "k", "v", "f", "b")
    head = {**inputs, **{name: inputs[name][:7] for name in per_token}}
    tail = {**inputs, **{name: inputs[name][7:] for name in per_token}}

    first = derivation(**head, lower_bound=-5.0)
    second = derivation(**{**tail, "state": first.state}, lower_bound=-5.0)

    joined = np.concatenate([first.out, second.out])
    assert_measured(joined, whole.out, atol=1e-14, rtol=1e-12)
    assert_measured(second.state, whole.state, atol=1e-14, rtol=1e-12)


@BOTH
def test_no_tokens_give_the_state_back_as_a_copy(derivation):
    inputs = kda_inputs(2, tokens=0)

    result = derivation(**inputs, lower_bound=-5.0)

    assert result.out.shape == (0, 2, 4)
    assert np.array_equal(result.state, inputs["state"])
    assert not np.shares_memory(result.state, inputs["state"])


@BOTH
def test_inputs_are_left_alone(derivation):
    inputs = kda_inputs(4)
    before = {name: array.copy() for name, array in inputs.items()}

    derivation(**inputs, lower_bound=-5.0)

    assert all(np.array_equal(inputs[name], before[name]) for name in inputs)


@BOTH
def test_beta_zero_and_no_decay_keep_the_state(derivation):
    """b = -800 gives beta 0, f = -800 gives a decay of 1: nothing is written, nothing fades."""
    inputs = kda_inputs(5)
    inputs["b"] = np.full_like(inputs["b"], -800.0)
    inputs["f"] = np.full_like(inputs["f"], -800.0)
    inputs["a_log"] = np.zeros(2)

    result = derivation(**inputs, lower_bound=-5.0)

    assert_measured(result.state, inputs["state"], atol=0.0, rtol=1e-15)


@BOTH
def test_beta_one_without_decay_writes_the_value_under_the_key(derivation):
    """The delta rule with beta 1 and a unit key: afterwards the key recalls exactly its value."""
    inputs = kda_inputs(6, tokens=1)
    inputs["k"] = np.tile(np.array([0.6, 0.0, 0.8, 0.0, 0.0]), (1, 2, 1))
    inputs["q"] = inputs["k"]
    inputs["b"] = np.full((1, 2), 800.0)
    inputs["f"] = np.full_like(inputs["f"], -800.0)

    result = derivation(**inputs, lower_bound=-5.0, l2_eps=0.0)

    assert_measured(result.out * np.sqrt(5.0), inputs["v"], atol=1e-13, rtol=1e-13)


def test_lower_bound_gate_limits():
    """At -inf the decay is off (g = 0), at 0 it is L/2, at +inf it is L."""
    f = np.array([-900.0, 0.0, 900.0]).reshape(3, 1, 1)

    g = lower_bound_gate(f, a_log=np.zeros(1), dt_bias=np.zeros((1, 1)), lower_bound=-5.0)

    assert g.ravel().tolist() == [0.0, -2.5, -5.0]


def test_l2_norm_puts_eps_inside_the_root():
    """|(3,4)|^2 + 11 = 36."""
    y = l2_norm(np.array([[3.0, 4.0], [0.0, 0.0]]), eps=11.0)

    assert y.tolist() == [[0.5, 4.0 / 6.0], [0.0, 0.0]]


@pytest.mark.benchmark
def test_512_tokens_through_six_layers_of_k3_nano_in_time():
    inputs = kda_inputs(7, tokens=512, heads=12, key=16, value=16)

    start = time.perf_counter()
    for _ in range(6):
        kda(**inputs, lower_bound=-5.0)

    assert time.perf_counter() - start <= 1.5
