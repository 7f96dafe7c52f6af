"""The whole model: against a second forward pass, and against itself run in other pieces."""

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.measured import assert_measured
from tests.unit.oracle.second_model import second_forward
from tests.unit.oracle.tiny import TINY, random_weights
from validate.errors import InputError
from validate.oracle import (
    LayerState,
    attention_layer,
    forward,
    forward_in_pieces,
    greedy,
    logits_of,
)
from validate.schema import ModelConfig

IDS = (3, 1, 4, 1, 5, 9, 2, 6, 18, 0, 16)
WEIGHTS = random_weights()
GOLDEN = Path(__file__).parents[3] / "golden" / "k3-nano" / "config.json"


def _same_as_second(token_ids, weights, config, *, rtol):
    ours = forward(token_ids, weights, config)
    other = second_forward(token_ids, weights, config)

    assert_measured(logits_of(ours.final, weights), other.logits, atol=1e-11, rtol=rtol)
    shares = iter(other.share)
    for i, trace in enumerate(ours.layers):
        assert_measured(trace.attn_in, other.attn_in[i], atol=1e-12, rtol=rtol)
        assert_measured(trace.out, other.out[i], atol=1e-12, rtol=rtol)
        assert_measured(trace.hidden, other.hidden[i], atol=1e-12, rtol=rtol)
        if trace.routing is not None:
            scattered = np.zeros((len(token_ids), config.experts))
            ids = trace.routing.ids.astype(np.int64)
            np.put_along_axis(scattered, ids, trace.routing.weights, axis=1)
            assert_measured(scattered, next(shares), atol=1e-13, rtol=rtol)
        state = ours.state[i]
        if i in config.mla_layers:
            assert trace.lse is not None
            assert state.kda is None
            assert state.conv is None
            assert_measured(trace.lse, other.lse[i], atol=1e-12, rtol=rtol)
            assert_measured(state.kv, other.kv[i], atol=1e-12, rtol=rtol)
        else:
            assert trace.lse is None
            assert state.kv is None
            assert_measured(state.kda, other.kda[i], atol=1e-12, rtol=rtol)
            assert_measured(state.conv, other.conv[i], atol=1e-12, rtol=rtol)
    assert next(shares, None) is None


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("block", [1, 2, 3, 7])
def test_forward_equals_the_second_forward(seed, block):
    config = TINY.model_copy(update={"attn_res_block": block})

    _same_as_second(IDS, random_weights(config, seed), config, rtol=1e-9)


def test_forward_equals_the_second_forward_at_k3_nano():
    """The committed configuration, random weights, 24 tokens."""
    config = ModelConfig.model_validate_json(GOLDEN.read_text(encoding="utf-8"))
    ids = np.random.default_rng(0).integers(0, 256, 24).tolist()

    _same_as_second(ids, random_weights(config, 3), config, rtol=1e-8)


def test_one_token():
    _same_as_second((7,), WEIGHTS, TINY, rtol=1e-10)


@pytest.mark.parametrize("lengths", [[1] * 11, [5, 1, 1, 1, 1, 1, 1], [4, 4, 3], [10, 1]])
def test_pieces_equal_one_shot(lengths):
    """Decode, prefill then decode, chunks, and a last chunk of one."""
    whole = forward(IDS, WEIGHTS, TINY)

    pieces = forward_in_pieces(IDS, WEIGHTS, TINY, lengths=lengths)

    assert [len(piece.final) for piece in pieces] == lengths
    joined = np.concatenate([piece.final for piece in pieces])
    assert_measured(joined, whole.final, atol=1e-12, rtol=1e-10)
    for i in range(TINY.layers):
        hidden = np.concatenate([piece.layers[i].hidden for piece in pieces])
        assert_measured(hidden, whole.layers[i].hidden, atol=1e-12, rtol=1e-10)
        for name in ("kda", "conv", "kv"):
            once, last = getattr(whole.state[i], name), getattr(pieces[-1].state[i], name)
            assert (once is None) == (last is None)
            if once is not None:
                assert_measured(last, once, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("lengths", [[11, 0], [5, 5], []])
def test_pieces_that_do_not_fit_are_refused(lengths):
    with pytest.raises(InputError, match=r"oracle: (pieces of \d+ tokens|token ids \[\])"):
        forward_in_pieces(IDS, WEIGHTS, TINY, lengths=lengths)


@pytest.mark.parametrize("ids", [(), (19,), (0, -1)])
def test_bad_token_ids_are_refused(ids):
    match = r"oracle: token ids \[.*\]: the forward pass of tiny takes one or more ids in 0\.\.18"
    with pytest.raises(InputError, match=match.replace(r"\]:", r"\] \(\d in all\):")):
        forward(ids, WEIGHTS, TINY)


def test_greedy_is_the_argmax_of_the_teacher_forced_logits():
    """Decoding token by token against one prefill over prompt and stream."""
    stream = greedy(IDS[:4], WEIGHTS, TINY, steps=9)

    forced = forward([*IDS[:4], *stream.token_ids[:-1]], WEIGHTS, TINY)
    logits = logits_of(forced.final[3:], WEIGHTS)
    assert len(stream.token_ids) == len(stream.logprobs) == 9
    assert np.argmax(logits, axis=1).tolist() == list(stream.token_ids)
    expected = np.max(logits, axis=1) - np.log(np.sum(np.exp(logits), axis=1))
    assert_measured(stream.logprobs, expected, atol=1e-11, rtol=1e-10)


def test_greedy_takes_the_lowest_id_at_a_tie():
    """An lm_head of zeros makes all logits equal: id 0, log-probability -ln 19."""
    weights = {**WEIGHTS, "lm_head.weight": np.zeros((19, 10))}

    stream = greedy((5,), weights, TINY, steps=2)

    assert stream.token_ids == (0, 0)
    assert_measured(stream.logprobs, [-np.log(19.0)] * 2, atol=0.0, rtol=1e-14)


def test_attention_layer_on_captured_inputs_is_the_layer_itself():
    whole = forward(IDS, WEIGHTS, TINY)

    for i, trace in enumerate(whole.layers):
        again = attention_layer(trace.attn_in, WEIGHTS, TINY, i)
        assert np.array_equal(again.out, trace.out)
        if trace.lse is None:
            assert again.lse is None
        else:
            assert_measured(again.lse, trace.lse, atol=0.0, rtol=0.0)


@pytest.mark.parametrize("layer", [0, 1])
def test_attention_layer_continues_from_a_state(layer):
    x = forward(IDS, WEIGHTS, TINY).layers[layer].attn_in
    whole = attention_layer(x, WEIGHTS, TINY, layer)

    head = attention_layer(x[:5], WEIGHTS, TINY, layer)
    tail = attention_layer(x[5:], WEIGHTS, TINY, layer, state=head.state)

    assert_measured(np.concatenate([head.out, tail.out]), whole.out, atol=1e-13, rtol=1e-11)
    assert_measured(np.concatenate([head.y, tail.y]), whole.y, atol=1e-13, rtol=1e-11)


def test_attention_layer_widens_captured_dtypes_exactly():
    x = forward(IDS, WEIGHTS, TINY).layers[1].attn_in.astype(np.float32)

    given = attention_layer(x, WEIGHTS, TINY, 1)
    wide = attention_layer(x.astype(np.float64), WEIGHTS, TINY, 1)

    assert np.array_equal(given.out, wide.out)
    assert given.out.dtype == np.float64


@pytest.mark.parametrize("layer", [-1, 5])
def test_attention_layer_refuses_a_layer_outside_the_model(layer):
    with pytest.raises(InputError, match=rf"layer {layer} is outside 0\.\.4 of tiny"):
        attention_layer(np.zeros((1, 10)), WEIGHTS, TINY, layer)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_attention_layer_refuses_non_finite_rows(poison):
    x = np.zeros((3, 10))
    x[2, 4] = poison

    match = r"layer 0 input holds 1 NaN or infinite values, first at row 2 channel 4"
    with pytest.raises(InputError, match=match):
        attention_layer(x, WEIGHTS, TINY, 0, state=LayerState())


def test_greedy_runs_one_prefill_and_a_step_for_every_token_but_the_last(monkeypatch):
    seen = []

    def counted(ids, *args, **kwargs):
        seen.append(len(ids))
        return forward(ids, *args, **kwargs)

    monkeypatch.setattr(sys.modules[greedy.__module__], "forward", counted)
    greedy([3, 1, 4], WEIGHTS, TINY, steps=4)

    assert seen == [3, 1, 1, 1]


def test_attention_layer_names_the_first_of_several_non_finite_values():
    x = np.zeros((3, TINY.hidden_size))
    x[1, 2] = x[2, 0] = np.nan

    match = r"layer 1 input holds 2 NaN or infinite values, first at row 1 channel 2"
    with pytest.raises(InputError, match=match):
        attention_layer(x, WEIGHTS, TINY, 1)
