"""KDA: the chunked form against the recurrence, the gate, the convolution, and what padding may touch."""

import math

import numpy as np
import pytest
import torch

from tests.measured import assert_measured
from tests.unit.models.small import F32, F64, SMALL, WEIGHTS
from validate import oracle
from validate.models.kda import (
    KdaInputs,
    KdaState,
    chunk_delta_rule,
    kda_layer,
    lower_bound_log_decay,
    next_history,
    recurrent_delta_rule,
    scan_chunks,
    short_convolution,
)
from validate.models.model import layer_weights
from validate.models.trace import SILENT

EXACT = {"atol": 1e-12, "rtol": 1e-11}
LOWEST = -5.0


def drawn(*, tokens=37, dim=4, value=3, least=LOWEST, most=0.0, seed=0):
    """Random inputs of two heads with log decays in (least, most), and a random state."""
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    q, k = (normal(2, 2, tokens, dim) for _ in "qk")
    q, k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))
    share = torch.rand(2, 2, tokens, dim, generator=rng, dtype=torch.float64)
    inputs = KdaInputs(
        q * dim**-0.5,
        k,
        normal(2, 2, tokens, value),
        least + (most - least) * share,
        torch.rand(2, 2, tokens, generator=rng, dtype=torch.float64),
    )
    return inputs, normal(2, 2, dim, value)


def recurrence(inputs, state):
    """Outputs, and the state behind the last token."""
    out, states = recurrent_delta_rule(inputs, state)
    return out, states[:, -1]


def cut(inputs, part):
    return KdaInputs(*(x[:, :, part] for x in inputs))


def single(inputs):
    return KdaInputs(*(x.float() for x in inputs))


def error(actual, expected):
    """Greatest difference over the largest expected value; NaN stays NaN."""
    return float((actual.double() - expected).abs().max() / expected.abs().max())


def scalar(values):
    return torch.tensor(values, dtype=torch.float64).view(1, 1, -1, 1)


def test_two_tokens_by_hand():
    """Width 1, decay 1/2 at both tokens, S = 4 before.

    t1: S = 2, v - Sk = 3 - 2 = 1, S = 2 + 0.5 * 1 = 2.5, o = 2.5 * 2 = 5.
    t2: S = 1.25, k = 2: v - Sk = 4.5 - 2.5 = 2, S = 1.25 + 0.25 * 2 * 2 = 2.25, o = 2.25 * 1.
    """
    inputs = KdaInputs(
        scalar([2, 1]),
        scalar([1, 2]),
        scalar([3, 4.5]),
        scalar([-math.log(2)] * 2),
        scalar([0.5, 0.25]).squeeze(-1),
    )

    for out, state in (
        recurrence(inputs, scalar([4])),
        chunk_delta_rule(inputs, scalar([4]), chunk=2),
    ):
        assert_measured(out.flatten(), [5.0, 2.25], **EXACT)
        assert_measured(state.flatten(), [2.25], **EXACT)


@pytest.mark.parametrize("chunk", range(1, 17))
def test_every_chunk_size_is_the_recurrence(chunk):
    inputs, state = drawn()

    out, after = chunk_delta_rule(inputs, state, chunk=chunk)
    expected, expected_after = recurrence(inputs, state)

    assert_measured(out, expected, **EXACT)
    assert_measured(after, expected_after, **EXACT)


@pytest.mark.parametrize("tokens", [1, 2, 15, 16, 17, 32])
def test_tokens_that_do_not_fill_a_chunk(tokens):
    inputs, state = drawn(tokens=tokens)

    out, after = chunk_delta_rule(inputs, state, chunk=16)
    expected, expected_after = recurrence(inputs, state)

    assert out.shape == expected.shape
    assert_measured(out, expected, **EXACT)
    assert_measured(after, expected_after, **EXACT)


@pytest.mark.parametrize("split", [1, 5, 16, 36])
def test_the_state_hands_over_between_any_two_forms(split):
    inputs, state = drawn()
    head, tail = cut(inputs, slice(0, split)), cut(inputs, slice(split, None))
    expected, expected_after = recurrence(inputs, state)

    for first in (recurrence, chunked):
        for second in (recurrence, chunked):
            before, middle = first(head, state)
            rest, after = second(tail, middle)
            assert_measured(torch.cat([before, rest], dim=2), expected, **EXACT)
            assert_measured(after, expected_after, **EXACT)


def chunked(inputs, state):
    return chunk_delta_rule(inputs, state, chunk=8)


@pytest.mark.parametrize("dim", [16, 128], ids=["k3-nano", "k3"])
@pytest.mark.parametrize("chunk", [8, 16])
def test_sixteen_tokens_at_the_lower_bound_stay_accurate_in_float32(dim, chunk):
    """Log decay -5 in every channel: exponents reach 80 across a chunk, e^80 is 5e34.

    Measured against the recurrence in float64: 3e-7 (dim 128) of the largest value.
    """
    inputs, state = drawn(tokens=32, dim=dim, value=dim, most=LOWEST + 1e-4)

    out, after = chunk_delta_rule(single(inputs), state.float(), chunk=chunk)
    expected, expected_after = recurrence(inputs, state)

    assert torch.isfinite(out).all()
    assert error(out, expected) <= 2e-6
    assert error(after, expected_after) <= 2e-6


@pytest.mark.parametrize("dim", [16, 128], ids=["k3-nano", "k3"])
def test_channels_that_keep_beside_channels_that_forget_in_float32(dim):
    """Decays from -5 to 0 side by side; measured up to 2.3e-6 (dim 16, the state)."""
    inputs, state = drawn(tokens=48, dim=dim, value=dim)

    out, after = chunk_delta_rule(single(inputs), state.float(), chunk=16)
    expected, expected_after = recurrence(inputs, state)

    assert error(out, expected) <= 1e-5
    assert error(after, expected_after) <= 1e-5


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("chunk", [8, 16])
def test_a_run_of_one_key_keeps_the_digits_of_float32(chunk, seed):
    """Same key, beta near 1, no decay (a run of one byte), against the float64 oracle.

    An inverse by powers of the matrix holds numbers up to C(15, 7) = 6435 that
    cancel: 1.4e-4 of the largest value. Forward substitution: measured 6e-7.
    """
    inputs, state = drawn(tokens=48, dim=16, value=16, seed=seed)
    same = inputs._replace(
        k=inputs.k[:, :, :1].expand_as(inputs.k),
        log_decay=torch.zeros_like(inputs.log_decay),
        beta=torch.full_like(inputs.beta, 0.999),
    )
    out, after = chunk_delta_rule(single(same), state.float(), chunk=chunk)

    for row in range(2):
        expected, expected_after = by_oracle(same, state, row)
        assert error(out[row], expected) <= 2e-6
        assert error(after[row], expected_after) <= 2e-6


def by_oracle(inputs, state, row):
    """The oracle's recurrence on unit keys and queries without decay: sigmoid(-1000) is 0."""
    q, k, v = (x[row].transpose(0, 1).numpy() for x in (inputs.q, inputs.k, inputs.v))
    beta = inputs.beta[row].T.numpy()
    made = oracle.kda(
        q=q,
        k=k,
        v=v,
        f=np.full(k.shape, -1000.0),
        b=np.log(beta / (1 - beta)),
        a_log=np.zeros(2),
        dt_bias=np.zeros(k.shape[1:]),
        lower_bound=LOWEST,
        state=state[row].numpy(),
        l2_eps=0.0,
    )
    return torch.from_numpy(made.out).transpose(0, 1), torch.from_numpy(made.state)


@pytest.mark.parametrize("form", [recurrence, chunked], ids=["recurrent", "chunk"])
def test_tokens_without_beta_and_decay_leave_the_state_bit_for_bit(form):
    inputs, state = drawn()
    still = inputs._replace(
        log_decay=torch.zeros_like(inputs.log_decay), beta=torch.zeros_like(inputs.beta)
    )

    out, after = form(still, state)

    assert torch.equal(after, state)
    assert_measured(out, torch.einsum("bhtk,bhkv->bhtv", inputs.q, state), **EXACT)


def test_beta_zero_only_decays():
    inputs, state = drawn(tokens=5)
    silent = inputs._replace(beta=torch.zeros_like(inputs.beta))

    _, after = chunk_delta_rule(silent, state, chunk=4)

    expected = state * inputs.log_decay.sum(2).exp().unsqueeze(-1)
    assert_measured(after, expected, **EXACT)


def test_beta_one_without_decay_stores_the_value_under_the_key():
    """The delta rule with beta 1: S^T k = v for the last key of unit length."""
    inputs, state = drawn(tokens=3)
    sure = inputs._replace(
        log_decay=torch.zeros_like(inputs.log_decay), beta=torch.ones_like(inputs.beta)
    )

    _, after = recurrence(sure, state)

    read = torch.einsum("bhkv,bhk->bhv", after, inputs.k[:, :, -1])
    assert_measured(read, inputs.v[:, :, -1], **EXACT)


def test_the_scan_is_the_recurrence_of_states():
    """S1 = 2*1 + 3 = 5, S2 = 10*5 + 1 = 51; the states before each chunk are 1 and 5."""
    transition, update = torch.tensor([2.0, 10.0]), torch.tensor([3.0, 1.0])

    before, last = scan_chunks(
        transition.view(1, 1, 2, 1, 1), update.view(1, 1, 2, 1, 1), torch.ones(1, 1, 1, 1)
    )

    assert before.flatten().tolist() == [1.0, 5.0]
    assert last.flatten().tolist() == [51.0]


def test_log_decay_by_hand():
    """sigmoid(0) = 1/2 and, with rate exp(ln 2) = 2 on f + dt = ln 3 / 2, sigmoid(ln 3) = 3/4."""
    f = torch.tensor([0.0, math.log(3)], dtype=torch.float64).view(1, 1, 1, 2)
    dt_bias = torch.tensor([0.0, -math.log(3) / 2], dtype=torch.float64)

    log_decay = lower_bound_log_decay(f, torch.tensor([math.log(2)]), dt_bias, bound=-5.0)

    assert_measured(log_decay.flatten(), [-2.5, -3.75], atol=0, rtol=1e-6)


def test_log_decay_stays_between_the_bound_and_zero():
    f = torch.tensor([-1e30, -40.0, 0.0, 40.0, 1e30]).view(1, 1, 1, 5)

    log_decay = lower_bound_log_decay(f, torch.zeros(1), torch.zeros(5), bound=-5.0).flatten()

    assert log_decay[0] == 0.0
    assert log_decay[-1] == -5.0
    assert (log_decay.diff() <= 0).all()


def test_convolution_by_hand():
    """Taps 1, 10, 100, 1000 from the oldest to the current input; silu(x) = x for large x."""
    weight = torch.tensor([[1.0, 10.0, 100.0, 1000.0]], dtype=torch.float64)
    history = torch.tensor([[[2.0, 3.0, 4.0]]], dtype=torch.float64)

    out = short_convolution(scalar([5, 6]).view(1, 2, 1), history, weight)

    assert_measured(out.flatten(), [5432.0, 6543.0], atol=0, rtol=1e-12)


def test_convolution_ends_in_silu():
    """silu(ln 3) = ln 3 * 3/4; a sum of -ln 3 gives -ln 3 / 4."""
    weight = torch.tensor([[0.0, 0.0, 0.0, 1.0]], dtype=torch.float64)
    x = scalar([math.log(3), -math.log(3)]).view(1, 2, 1)

    out = short_convolution(x, torch.zeros(1, 1, 3, dtype=torch.float64), weight)

    assert_measured(out.flatten(), [0.75 * math.log(3), -0.25 * math.log(3)], **EXACT)


@pytest.mark.parametrize(
    ("length", "expected"),
    [(0, [1, 2, 3]), (1, [2, 3, 4]), (2, [3, 4, 5]), (3, [4, 5, 6]), (4, [5, 6, 7])],
)
def test_history_is_the_last_three_real_inputs(length, expected):
    """Inputs 1, 2, 3 before and 4, 5, 6, 7 now, of which ``length`` are real."""
    history = torch.tensor([[[1.0, 2.0, 3.0]]])
    x = torch.tensor([[[4.0], [5.0], [6.0], [7.0]]])

    after = next_history(x, history, torch.tensor([length]))

    assert after.flatten().tolist() == expected


def run_layer(x, lengths, state, *, options=F64, decode=False):
    dtype = options.dtype
    return kda_layer(
        x.to(dtype),
        state,
        torch.tensor(lengths),
        layer_weights({n: w.to(dtype) for n, w in WEIGHTS.items()}, "layers.2.kda."),
        config=SMALL,
        options=options,
        decode=decode,
        place="x",
        trace=SILENT,
    )


def layer_state(rows, *, options=F64):
    rng = torch.Generator().manual_seed(3)
    dim, heads = SMALL.kda_head_dim, SMALL.heads
    return KdaState(
        torch.randn(rows, heads, dim, dim, generator=rng, dtype=torch.float64).to(options.dtype),
        torch.randn(rows, 3, heads * dim, 3, generator=rng, dtype=torch.float64).to(options.dtype),
    )


@pytest.mark.parametrize("decode", [False, True], ids=["chunk", "recurrent"])
def test_padding_tokens_leave_both_states_untouched(decode):
    """Row 0 has no real token, row 1 has two of five: what stands in the rest is 1e6."""
    x = torch.randn(2, 5, SMALL.hidden_size, dtype=torch.float64, generator=torch.Generator())
    filled = x.clone()
    filled[0] = 1e6
    filled[1, 2:] = -1e6
    before = layer_state(2)

    _, after = run_layer(filled, [0, 2], before, decode=decode)
    _, alone = run_layer(x[1:, :2], [2], KdaState(*(s[1:] for s in before)), decode=decode)

    assert torch.equal(after.recurrent[0], before.recurrent[0])
    assert torch.equal(after.conv[0], before.conv[0])
    assert_measured(after.recurrent[1], alone.recurrent[0], **EXACT)
    assert_measured(after.conv[1], alone.conv[0], **EXACT)


def test_keys_without_length_stay_finite():
    """All-zero rows: the norm's eps keeps 0 / 0 away."""
    x = torch.zeros(1, 3, SMALL.hidden_size)
    empty = KdaState(*(torch.zeros_like(s) for s in layer_state(1, options=F32)))

    out, after = run_layer(x, [3], empty, options=F32)

    assert torch.equal(out, torch.zeros_like(out))
    assert torch.equal(after.recurrent, torch.zeros_like(after.recurrent))
