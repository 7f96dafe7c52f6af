"""MLA: by hand, decompressed against absorbed, attention core against loops, merge of parts."""

from itertools import pairwise

import numpy as np
import pytest

from tests.measured import assert_measured
from tests.unit.oracle.second import attend_by_loops, merge_by_sums
from tests.unit.oracle.tiny import TINY, mla_inputs
from validate.oracle import (
    MlaWeights,
    Partial,
    causal_attention,
    latent_attention,
    lse_merge,
    mla,
    mla_absorbed,
)

BOTH = pytest.mark.parametrize("derivation", [mla, mla_absorbed])
WIDTHS = {"heads": 3, "nope": TINY.qk_nope_head_dim, "rope": TINY.qk_rope_head_dim}


@BOTH
def test_two_tokens_by_hand(derivation):
    """One head, nope = rope = value = latent = q_lora = 1, hidden 2, eps 9; x = (4,0), (0,4).

    q: W_qa x = 4; 4 / sqrt(16 + 9) = 0.8; W_qb = (1.25, 2.5): q = (1, 2) for both tokens.
    Latent: 4 -> 0.8 for token 0, 0 -> 0 for token 1; W_kvb = (1.25, 10): k_nope 1 and 0, v 8 and 0.
    k_pe: 0 and 4 r. Scores of token 1, scale 1/sqrt 2: 1/sqrt 2 and 8 r/sqrt 2; with
    r = (1 + sqrt 2 ln 3)/8 they differ by ln 3: weights 1/4 and 3/4.
    out: 8 and 8/4 = 2. LSE: 1/sqrt 2, and 1/sqrt 2 + ln(1 + 3).
    Gate: g x = 0 and ln 3: 1/2 and 3/4; o = (1, 2): y = (4, 8) and (1.5, 3).
    """
    root = np.sqrt(2.0)
    result = derivation(
        np.array([[4.0, 0.0], [0.0, 4.0]]),
        MlaWeights(
            q_a=np.array([[1.0, 1.0]]),
            q_a_norm=np.array([1.0]),
            q_b=np.array([[1.25], [2.5]]),
            kv_a=np.array([[1.0, 0.0], [0.0, (1.0 + root * np.log(3.0)) / 8.0]]),
            kv_a_norm=np.array([1.0]),
            kv_b=np.array([[1.25], [10.0]]),
            g=np.array([[0.0, np.log(3.0) / 4.0]]),
            o=np.array([[1.0], [2.0]]),
        ),
        heads=1,
        nope=1,
        rope=1,
        eps=9.0,
    )

    assert_measured(result.out[:, 0, 0], [8.0, 2.0], atol=0.0, rtol=1e-14)
    assert_measured(result.lse[:, 0], [1 / root, 1 / root + np.log(4.0)], atol=0.0, rtol=1e-14)
    assert_measured(result.y, [[4.0, 8.0], [1.5, 3.0]], atol=0.0, rtol=1e-14)
    r = (1.0 + root * np.log(3.0)) / 2.0
    assert_measured(result.kv, [[0.8, 0.0], [0.0, r]], atol=1e-15, rtol=1e-14)


@pytest.mark.parametrize("eps", [1e-6, 1e-5])
@pytest.mark.parametrize("past", [None, 0, 4])
def test_decompressed_equals_absorbed(past, eps):
    x, weights, cache = mla_inputs(1, past=past or 0)
    given = None if past is None else cache

    full = mla(x, MlaWeights(**weights), **WIDTHS, eps=eps, past=given)
    absorbed = mla_absorbed(x, MlaWeights(**weights), **WIDTHS, eps=eps, past=given)

    for name in ("out", "lse", "y", "kv"):
        assert_measured(getattr(absorbed, name), getattr(full, name), atol=1e-13, rtol=1e-11)


@BOTH
def test_eps_of_the_inner_norms_counts(derivation):
    x, weights, _ = mla_inputs(1)

    ours = derivation(x, MlaWeights(**weights), **WIDTHS, eps=1e-6)
    other = derivation(x, MlaWeights(**weights), **WIDTHS, eps=1e-5)

    assert np.abs(ours.out - other.out).max() > 1e-2


@BOTH
def test_one_token_at_a_time_equals_all_at_once(derivation):
    x, weights, cache = mla_inputs(2)
    whole = derivation(x, MlaWeights(**weights), **WIDTHS, eps=1e-6, past=cache)

    kv, outs, lses = cache, [], []
    for row in x:
        step = derivation(row[None], MlaWeights(**weights), **WIDTHS, eps=1e-6, past=kv)
        kv = step.kv
        outs.append(step.out)
        lses.append(step.lse)

    assert_measured(np.concatenate(outs), whole.out, atol=1e-14, rtol=1e-12)
    assert_measured(np.concatenate(lses), whole.lse, atol=1e-14, rtol=1e-12)
    assert_measured(kv, whole.kv, atol=1e-15, rtol=1e-13)


def _qkv(seed=0, rows=5, tokens=9, heads=2, qk=4, value=3):
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((rows, heads, qk))
    return q, rng.standard_normal((tokens, heads, qk)), rng.standard_normal((tokens, heads, value))


@pytest.mark.parametrize("first", [-7, -2, 0, 4, 20])
def test_causal_attention_equals_loops(first):
    """Rows that see none, some and all of the keys."""
    q, k, v = _qkv()

    part = causal_attention(q, k, v, scale=0.5, first=first)
    out, lse = attend_by_loops(q, k, v, scale=0.5, first=first)

    assert_measured(part.out, out, atol=1e-14, rtol=1e-12)
    assert np.array_equal(np.isneginf(part.lse), np.isneginf(lse))
    seen = np.isfinite(lse)
    if seen.any():
        assert_measured(part.lse[seen], lse[seen], atol=1e-14, rtol=1e-12)


def test_scores_of_a_thousand_do_not_overflow():
    """Scores 2000 and 2000 - ln 3: weights 3/4 and 1/4, LSE 2000 + ln(4/3)."""
    q = np.ones((1, 1, 1))
    k = np.array([2000.0, 2000.0 - np.log(3.0)]).reshape(2, 1, 1)
    v = np.array([4.0, 8.0]).reshape(2, 1, 1)

    part = causal_attention(q, k, v, scale=1.0, first=1)

    assert_measured(part.out.ravel(), [5.0], atol=0.0, rtol=1e-12)
    assert_measured(part.lse.ravel(), [2000.0 + np.log(4.0 / 3.0)], atol=0.0, rtol=1e-15)


def test_attention_over_no_keys_is_empty():
    q, k, v = _qkv(tokens=0)

    part = causal_attention(q, k, v, scale=1.0, first=0)

    assert np.array_equal(part.out, np.zeros((5, 2, 3)))
    assert np.isneginf(part.lse).all()


@pytest.mark.parametrize("cuts", [[4], [1, 8], [0, 3, 3, 9], [2, 4, 6, 8]])
def test_split_and_merge_equals_the_whole(cuts):
    """Splits of the keys, some of them empty, some unseen by the first rows."""
    q, k, v = _qkv(3)
    bounds = [0, *cuts, 9]
    whole = causal_attention(q, k, v, scale=0.7, first=4)

    parts = [
        causal_attention(q, k[a:b], v[a:b], scale=0.7, first=4 - a) for a, b in pairwise(bounds)
    ]
    merged = lse_merge(parts)

    assert_measured(merged.out, whole.out, atol=1e-14, rtol=1e-12)
    assert_measured(merged.lse, whole.lse, atol=1e-14, rtol=1e-12)


def test_split_and_merge_of_latent_attention_equals_the_whole():
    rng = np.random.default_rng(5)
    q, kv = rng.standard_normal((4, 2, 7)), rng.standard_normal((10, 7))

    whole = latent_attention(q, kv, latent=5, scale=0.4, first=6)
    parts = [
        latent_attention(q, kv[a : a + 3], latent=5, scale=0.4, first=6 - a) for a in (0, 3, 6, 9)
    ]
    merged = lse_merge(parts)

    assert_measured(merged.out, whole.out, atol=1e-14, rtol=1e-12)
    assert_measured(merged.lse, whole.lse, atol=1e-14, rtol=1e-12)


def _partials(seed, count=4, empty=()):
    rng = np.random.default_rng(seed)
    outs = [rng.standard_normal((3, 2, 4)) for _ in range(count)]
    lses = [rng.standard_normal((3, 2)) for _ in range(count)]
    for i in empty:
        outs[i], lses[i] = np.full((3, 2, 4), np.nan), np.full((3, 2), -np.inf)
    return outs, lses


def test_merge_equals_sums_of_exponentials_and_skips_unwritten_parts():
    """An empty part's output is NaN, as a kernel may leave it; it counts for nothing."""
    outs, lses = _partials(1, empty=(0, 2))

    merged = lse_merge([Partial(out=o, lse=s) for o, s in zip(outs, lses, strict=True)])
    out, lse = merge_by_sums(outs, lses)

    assert_measured(merged.out, out, atol=1e-15, rtol=1e-13)
    assert_measured(merged.lse, lse, atol=1e-15, rtol=1e-13)


def test_merge_of_empty_parts_alone_is_empty():
    outs, lses = _partials(1, empty=(0, 1, 2, 3))

    merged = lse_merge([Partial(out=o, lse=s) for o, s in zip(outs, lses, strict=True)])

    assert np.array_equal(merged.out, np.zeros((3, 2, 4)))
    assert np.isneginf(merged.lse).all()


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_a_bad_lse_never_merges_into_a_number(poison):
    outs, lses = _partials(2)
    lses[1][0, 0] = poison

    merged = lse_merge([Partial(out=o, lse=s) for o, s in zip(outs, lses, strict=True)])

    assert np.isnan(merged.out[0, 0]).all()
    assert not np.isfinite(merged.lse[0, 0])
    assert np.isfinite(merged.out[1:]).all()


def test_a_nan_output_of_a_part_that_counts_is_kept():
    outs, lses = _partials(2)
    outs[1][0, 0, 0] = np.nan

    merged = lse_merge([Partial(out=o, lse=s) for o, s in zip(outs, lses, strict=True)])

    assert np.isnan(merged.out[0, 0, 0])


def test_merge_of_nothing_is_refused():
    with pytest.raises(ValueError, match=r"lse_merge: no parts to merge; give at least one"):
        lse_merge([])


def test_latent_attention_of_rows_before_the_first_key_is_empty():
    """Rows 0 and 1 belong to keys -2 and -1, which are elsewhere; row 2 sees key 0 alone."""
    q, kv = np.ones((3, 2, 3)), np.array([[2.0, 3.0, 5.0], [7.0, 11.0, 13.0]])

    part = latent_attention(q, kv, latent=2, scale=0.5, first=-2)

    assert part.out[:2].tolist() == [[[0.0, 0.0]] * 2] * 2
    assert np.isneginf(part.lse[:2]).all()
    assert_measured(part.out[2], [[2.0, 3.0]] * 2, atol=0, rtol=1e-15)
    assert_measured(part.lse[2], [5.0, 5.0], atol=0, rtol=1e-15)
