"""RMSNorm, sigmoid, SiTU, short convolution and attention residual: by hand, by limits, by twins."""

import numpy as np
import pytest

from tests.measured import assert_measured
from tests.unit.oracle.second import (
    conv_by_channel,
    logistic,
    mix_by_rows,
    norm_by_length,
    situ_by_exponentials,
)
from validate.oracle import attn_res, rms_norm, short_conv, sigmoid, situ, situ_mlp


def test_rms_norm_by_hand():
    """(1, 7): mean square 25; 25 + 11 = 36; divided by 6 and scaled by (3, 6)."""
    y = rms_norm(np.array([[1.0, 7.0]]), np.array([3.0, 6.0]), eps=11.0)

    assert_measured(y, [[0.5, 7.0]], atol=0.0, rtol=1e-15)


def test_rms_norm_of_zeros_is_zero():
    assert np.array_equal(rms_norm(np.zeros((2, 3)), np.ones(3), eps=1e-5), np.zeros((2, 3)))


@pytest.mark.parametrize("shape", [(4, 7), (2, 3, 5), (6,)])
def test_rms_norm_equals_norm_by_length(shape):
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal(shape), rng.standard_normal(shape[-1])

    y = rms_norm(x, weight, eps=1e-3)

    assert_measured(y, norm_by_length(x, weight, eps=1e-3), atol=1e-15, rtol=1e-12)


def test_sigmoid_by_hand_and_by_twin():
    """ln 3 gives 3/4; e^-40 survives at -40, where 1 - sigmoid(40) would not."""
    assert_measured(sigmoid(np.log([3.0, 1 / 3])), [0.75, 0.25], atol=0.0, rtol=1e-15)
    assert_measured(sigmoid(np.array([-40.0])), [np.exp(-40.0)], atol=0.0, rtol=1e-14)
    x = np.linspace(-30, 30, 101)
    assert_measured(sigmoid(x), logistic(x), atol=0.0, rtol=1e-13)


def test_situ_saturates_at_the_product_of_the_betas():
    """Large gate and up: 4 * 1 * 25; a large negative up: -100; a large negative gate: 0."""
    gate, up = np.array([700.0, 700.0, -700.0]), np.array([1e5, -1e5, 1e5])

    y = situ(gate, up, beta=4.0, linear_beta=25.0)

    assert_measured(y, [100.0, -100.0, 0.0], atol=1e-250, rtol=1e-14)


def test_situ_with_infinite_betas_is_swiglu():
    """tanh(z/b) b = z (1 - (z/b)^2/3 + ...): at b = 1e6 the correction is below 1e-11."""
    rng = np.random.default_rng(0)
    gate, up = 3 * rng.standard_normal(50), 3 * rng.standard_normal(50)

    y = situ(gate, up, beta=1e6, linear_beta=1e6)

    assert_measured(y, gate / (1 + np.exp(-gate)) * up, atol=0.0, rtol=1e-10)


def test_situ_by_hand_and_by_twin():
    """gate = 4 atanh(1/2) = 2 ln 3: tanh 1/2, sigmoid(2 ln 3) = 9/10; up = 25 atanh(3/5): tanh 3/5.

    4 * 0.5 * 0.9 * 25 * 0.6 = 27.
    """
    one = situ(
        np.array([2 * np.log(3.0)]), np.array([25 * np.log(2.0)]), beta=4.0, linear_beta=25.0
    )
    assert_measured(one, [27.0], atol=0.0, rtol=1e-14)

    rng = np.random.default_rng(1)
    gate, up = 5 * rng.standard_normal((6, 4)), 30 * rng.standard_normal((6, 4))
    y = situ(gate, up, beta=4.0, linear_beta=25.0)
    twin = situ_by_exponentials(gate, up, beta=4.0, linear_beta=25.0)
    assert_measured(y, twin, atol=0.0, rtol=1e-12)


def test_situ_mlp_takes_gate_and_up_in_that_order():
    """Width 1: gate row saturates at 4 (sigmoid 1), up row is 25 * 0.6 = 15; down doubles: 120."""
    y = situ_mlp(
        np.ones((1, 1)),
        gate=np.array([[700.0]]),
        up=np.array([[25 * np.log(2.0)]]),
        down=np.array([[2.0]]),
        beta=4.0,
        linear_beta=25.0,
    )

    assert_measured(y, [[120.0]], atol=0.0, rtol=1e-14)


def test_short_conv_by_hand():
    """Kernel (8, 4, 2, 1), oldest first, state (1, 0, 0), inputs 1, 0.

    t = 0: 8*1 + 4*0 + 2*0 + 1*1 = 9; t = 1: 8*0 + 4*0 + 2*1 + 1*0 = 2. SiLU: z/(1 + e^-z).
    """
    conv = short_conv(
        np.array([[1.0], [0.0]]),
        np.array([[8.0, 4.0, 2.0, 1.0]]),
        state=np.array([[1.0, 0.0, 0.0]]),
    )

    expected = [9 / (1 + np.exp(-9.0)), 2 / (1 + np.exp(-2.0))]
    assert_measured(conv.y[:, 0], expected, atol=0.0, rtol=1e-15)
    assert conv.state.tolist() == [[0.0, 1.0, 0.0]]


@pytest.mark.parametrize("tokens", [0, 1, 2, 3, 4, 9])
@pytest.mark.parametrize("with_state", [False, True])
def test_short_conv_equals_numpy_convolve(tokens, with_state):
    rng = np.random.default_rng(tokens)
    x, weight = rng.standard_normal((tokens, 5)), rng.standard_normal((5, 4))
    state = rng.standard_normal((5, 3)) if with_state else None

    conv = short_conv(x, weight, state=state)
    y, last = conv_by_channel(x, weight, state=state)

    assert np.array_equal(conv.state, last)
    assert conv.y.shape == y.shape
    if tokens > 0:
        assert_measured(conv.y, y, atol=1e-15, rtol=1e-12)


def test_short_conv_state_is_no_view_of_the_input():
    x = np.arange(8.0).reshape(8, 1)

    conv = short_conv(x, np.ones((1, 4)))

    assert not np.shares_memory(conv.state, x)


def test_attn_res_by_hand():
    """Candidates (3, 4) and (-4, 3), eps 11.5: both have mean square 12.5, so both divide by sqrt 24.

    norm (sqrt 24, 1), proj (ln 3 / 7, 0): scores 3 ln 3/7 and -4 ln 3/7, apart by ln 3: 3/4 and 1/4.
    Mix of the raw: (9/4 - 1, 3 + 3/4) = (1.25, 3.75).
    """
    h = attn_res(
        [np.array([[3.0, 4.0]])],
        np.array([[-4.0, 3.0]]),
        norm=np.array([np.sqrt(24.0), 1.0]),
        proj=np.array([np.log(3.0) / 7.0, 0.0]),
        eps=11.5,
    )

    assert_measured(h, [[1.25, 3.75]], atol=0.0, rtol=1e-14)


def test_attn_res_with_an_empty_bank_is_the_prefix_to_the_bit():
    rng = np.random.default_rng(0)
    prefix = rng.standard_normal((5, 4))

    h = attn_res([], prefix, norm=np.ones(4), proj=rng.standard_normal(4), eps=1e-5)

    assert np.array_equal(h, prefix)


def test_attn_res_equals_mix_by_rows():
    rng = np.random.default_rng(1)
    *bank, prefix = rng.standard_normal((4, 6, 5))
    norm, proj = rng.standard_normal(5), rng.standard_normal(5)

    h = attn_res(bank, prefix, norm=norm, proj=proj, eps=1e-2)
    twin = mix_by_rows(bank, prefix, norm=norm, proj=proj, eps=1e-2)

    assert_measured(h, twin, atol=1e-14, rtol=1e-12)


def test_attn_res_does_not_overflow():
    """Scores of +-4000 apart: all weight on the first candidate."""
    h = attn_res(
        [np.array([[1.0]])], np.array([[-1.0]]), norm=np.ones(1), proj=np.array([4000.0]), eps=0.0
    )

    assert h.tolist() == [[1.0]]
