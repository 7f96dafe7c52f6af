"""What must hold for every input: causality, hand-over, merging, shifts, padded heads."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.measured import assert_measured
from tests.unit.oracle.tiny import TINY, kda_inputs, mla_inputs, random_weights
from validate.oracle import (
    MlaWeights,
    Partial,
    causal_attention,
    forward,
    forward_in_pieces,
    kda,
    kda_chunk,
    lse_merge,
    mla,
    mla_absorbed,
    rms_norm,
    short_conv,
)

SEEDS = st.integers(0, 2**32 - 1)
QUICK = settings(max_examples=25, deadline=None, derandomize=True)
WIDTHS = {"nope": TINY.qk_nope_head_dim, "rope": TINY.qk_rope_head_dim, "eps": 1e-6}
WEIGHTS = random_weights(seed=11)
PER_TOKEN = ("q", "k", "v", "f", "b")


def partials(seed: int, count: int) -> list[Partial]:
    """Random parts; about a fifth of the rows of each saw no key, their output unwritten."""
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(count):
        out, lse = rng.standard_normal((3, 2, 4)), 5 * rng.standard_normal((3, 2))
        empty = rng.random((3, 2)) < 0.2
        out[empty], lse[empty] = np.nan, -np.inf
        parts.append(Partial(out=out, lse=lse))
    return parts


def assert_same_partial(actual: Partial, expected: Partial) -> None:
    """Equal up to rounding, with empty rows in the same places."""
    assert np.array_equal(np.isneginf(actual.lse), np.isneginf(expected.lse))
    assert_measured(actual.out, expected.out, atol=1e-13, rtol=1e-12)
    seen = np.isfinite(expected.lse)
    if seen.any():
        assert_measured(actual.lse[seen], expected.lse[seen], atol=1e-13, rtol=1e-12)


@QUICK
@given(seed=SEEDS, cut=st.integers(1, 7))
def test_later_tokens_do_not_move_earlier_rows_of_the_model(seed, cut):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, TINY.vocab_size, 8)
    other = ids.copy()
    other[cut:] = (ids[cut:] + 1) % TINY.vocab_size

    a, b = forward(ids.tolist(), WEIGHTS, TINY), forward(other.tolist(), WEIGHTS, TINY)

    for one, two in zip(a.layers, b.layers, strict=True):
        assert_measured(two.out[:cut], one.out[:cut], atol=1e-13, rtol=1e-12)
        assert_measured(two.hidden[:cut], one.hidden[:cut], atol=1e-13, rtol=1e-12)
    assert np.abs(a.final[cut] - b.final[cut]).max() > 1e-6


@pytest.mark.parametrize("derivation", [mla, mla_absorbed])
@QUICK
@given(seed=SEEDS, cut=st.integers(1, 5))
def test_mla_is_causal(derivation, seed, cut):
    x, weights, past = mla_inputs(seed)
    changed = x.copy()
    changed[cut:] = -x[cut:]

    a = derivation(x, MlaWeights(**weights), heads=3, past=past, **WIDTHS)
    b = derivation(changed, MlaWeights(**weights), heads=3, past=past, **WIDTHS)

    assert_measured(b.out[:cut], a.out[:cut], atol=1e-14, rtol=1e-12)
    assert_measured(b.lse[:cut], a.lse[:cut], atol=1e-14, rtol=1e-12)


@pytest.mark.parametrize("derivation", [kda, kda_chunk])
@QUICK
@given(seed=SEEDS, cut=st.integers(1, 10))
def test_kda_is_causal(derivation, seed, cut):
    inputs = kda_inputs(seed)
    changed = {name: array.copy() for name, array in inputs.items()}
    for name in PER_TOKEN:
        changed[name][cut:] += 1.0

    a, b = derivation(**inputs, lower_bound=-5.0), derivation(**changed, lower_bound=-5.0)

    assert_measured(b.out[:cut], a.out[:cut], atol=1e-13, rtol=1e-11)


@pytest.mark.parametrize("derivation", [kda, kda_chunk])
@QUICK
@given(seed=SEEDS, cut=st.integers(0, 11))
def test_kda_state_is_handed_over(derivation, seed, cut):
    """Prefill n, then m, equals n + m; n or m may be 0."""
    inputs = kda_inputs(seed)
    whole = derivation(**inputs, lower_bound=-5.0)

    first = derivation(**{**inputs, **{n: inputs[n][:cut] for n in PER_TOKEN}}, lower_bound=-5.0)
    rest = {**inputs, **{n: inputs[n][cut:] for n in PER_TOKEN}, "state": first.state}
    second = derivation(**rest, lower_bound=-5.0)

    joined = np.concatenate([first.out, second.out])
    assert_measured(joined, whole.out, atol=1e-12, rtol=1e-10)
    assert_measured(second.state, whole.state, atol=1e-12, rtol=1e-10)


@QUICK
@given(seed=SEEDS, cut=st.integers(0, 6))
def test_conv_state_is_handed_over(seed, cut):
    rng = np.random.default_rng(seed)
    x, weight = rng.standard_normal((6, 3)), rng.standard_normal((3, 4))
    whole = short_conv(x, weight)

    first = short_conv(x[:cut], weight)
    second = short_conv(x[cut:], weight, state=first.state)

    joined = np.concatenate([first.y, second.y])
    assert_measured(joined, whole.y, atol=1e-15, rtol=1e-13)
    assert np.array_equal(second.state, whole.state)


@QUICK
@given(seed=SEEDS, cuts=st.lists(st.integers(1, 8), max_size=4))
def test_model_state_is_handed_over(seed, cuts):
    ids = np.random.default_rng(seed).integers(0, TINY.vocab_size, 9).tolist()
    bounds = sorted({0, 9, *cuts})
    whole = forward(ids, WEIGHTS, TINY)

    lengths = np.diff(bounds).tolist()
    pieces = forward_in_pieces(ids, WEIGHTS, TINY, lengths=lengths)

    joined = np.concatenate([piece.final for piece in pieces])
    assert_measured(joined, whole.final, atol=1e-11, rtol=1e-9)


@QUICK
@given(seed=SEEDS, order=st.permutations(range(5)))
def test_merge_does_not_care_for_order(seed, order):
    parts = partials(seed, 5)

    assert_same_partial(lse_merge([parts[i] for i in order]), lse_merge(parts))


@QUICK
@given(seed=SEEDS, cut=st.integers(1, 4))
def test_merge_is_associative(seed, cut):
    parts = partials(seed, 5)

    nested = lse_merge([lse_merge(parts[:cut]), lse_merge(parts[cut:])])

    assert_same_partial(nested, lse_merge(parts))


@QUICK
@given(seed=SEEDS)
def test_merge_of_one_part_is_that_part(seed):
    (part,) = partials(seed, 1)

    merged = lse_merge([part])

    written = np.where(np.isneginf(part.lse)[..., None], 0.0, part.out)
    assert_same_partial(merged, Partial(out=written, lse=part.lse))


@QUICK
@given(seed=SEEDS, shift=st.floats(-700, 700))
def test_merge_moves_with_a_common_shift_of_the_lse(seed, shift):
    parts = partials(seed, 3)
    moved = [replace(part, lse=part.lse + shift) for part in parts]

    a, b = lse_merge(parts), lse_merge(moved)

    assert_measured(b.out, a.out, atol=1e-12, rtol=1e-10)
    seen = np.isfinite(a.lse)
    assert_measured(b.lse[seen] - shift, a.lse[seen], atol=1e-12, rtol=1e-10)


@QUICK
@given(seed=SEEDS, shift=st.floats(-500, 500))
def test_softmax_shift_moves_the_lse_alone(seed, shift):
    """A constant key channel against a constant query channel adds the same to every score."""
    rng = np.random.default_rng(seed)
    q, k = rng.standard_normal((4, 2, 3)), rng.standard_normal((6, 2, 3))
    v = rng.standard_normal((6, 2, 5))
    base = causal_attention(q, k, v, scale=0.5, first=2)

    q_more = np.concatenate([q, np.ones((4, 2, 1))], axis=2)
    k_more = np.concatenate([k, np.full((6, 2, 1), shift / 0.5)], axis=2)
    moved = causal_attention(q_more, k_more, v, scale=0.5, first=2)

    assert_measured(moved.out, base.out, atol=1e-11, rtol=1e-9)
    assert_measured(moved.lse - shift, base.lse, atol=1e-11, rtol=1e-9)


@QUICK
@given(seed=SEEDS, extra=st.integers(1, 4), tile=st.booleans())
def test_padded_heads_do_not_move_the_others(seed, extra, tile):
    """Zero or repeated heads beside the real ones, in q, k and v as the prefill kernels take them."""
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((n, 3, d)) for n, d in ((4, 5), (7, 5), (7, 6)))
    real = causal_attention(q, k, v, scale=0.4, first=3)

    def padded(x: np.ndarray) -> np.ndarray:
        more = np.tile(x, (1, 2, 1))[:, :extra] if tile else np.zeros((len(x), extra, x.shape[2]))
        return np.concatenate([x, more], axis=1)

    wide = causal_attention(padded(q), padded(k), padded(v), scale=0.4, first=3)

    assert_measured(wide.out[:, :3], real.out, atol=1e-15, rtol=1e-13)
    assert_measured(wide.lse[:, :3], real.lse, atol=1e-15, rtol=1e-13)


@QUICK
@given(seed=SEEDS)
def test_a_zero_query_head_reads_the_mean_and_the_log_count(seed):
    """The pad head of a decode kernel: all scores 0, so row i averages 4 + i + 1 values."""
    rng = np.random.default_rng(seed)
    k, v = rng.standard_normal((9, 1, 5)), rng.standard_normal((9, 1, 6))

    part = causal_attention(np.zeros((4, 1, 5)), k, v, scale=0.4, first=5)

    for i in range(4):
        assert_measured(part.out[i, 0], v[: 6 + i, 0].mean(axis=0), atol=1e-14, rtol=1e-12)
        assert_measured(part.lse[i], [np.log(6 + i)], atol=1e-15, rtol=1e-14)


@QUICK
@given(seed=SEEDS, factor=st.floats(1e-3, 1e3))
def test_rms_norm_does_not_see_the_scale(seed, factor):
    rng = np.random.default_rng(seed)
    x, weight = rng.standard_normal((3, 6)), rng.standard_normal(6)

    a, b = rms_norm(x, weight, eps=0.0), rms_norm(factor * x, weight, eps=0.0)

    assert_measured(b, a, atol=1e-14, rtol=1e-12)
