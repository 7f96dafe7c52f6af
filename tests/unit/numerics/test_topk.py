"""Bounds from top-k captures, against the full sum over the vocabulary and by hand."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import special

from tests.measured import assert_measured
from validate.errors import InputError
from validate.numerics import TopKRows, topk_bounds


def kept(logits, k, *, ids=None, minimum=True, top=True):
    """The k greatest logits of each row, or those of ``ids``, with float64 log-sum-exp and tail."""
    x = np.asarray(logits, dtype=np.float64)
    chosen = np.argsort(-x, axis=1, kind="stable")[:, :k] if ids is None else np.asarray(ids)
    values = np.take_along_axis(x, chosen, axis=1)
    lse = special.logsumexp(x, axis=1)
    left = np.ones(x.shape, dtype=bool)
    np.put_along_axis(left, chosen, values=False, axis=1)
    tail = np.where(left, np.exp(x - lse[:, None]), 0.0).sum(axis=1)
    return TopKRows(
        ids=chosen,
        logits=values,
        lse=lse,
        tail_mass=tail,
        row_min=x.min(axis=1) if minimum else None,
        top=top,
    )


def truth(a, b):
    """KL and TVD over the whole vocabulary, by SciPy."""
    p, q = special.softmax(a, axis=1), special.softmax(b, axis=1)
    return special.rel_entr(p, q).sum(axis=1), 0.5 * np.abs(p - q).sum(axis=1)


def test_by_hand():
    """p = (1/2, 1/4, 1/8, 1/8), q = (1/4, 1/2, 1/8, 1/8), k = 2: the same two ids on both sides.

    Shared: 1/2 ln 2 - 1/4 ln 2. Rest: 1/4 against 1/4. Upper: + 1/4 ln(1/4) + 1/4 ln 8, for the
    tail's ids are at most 1/4 under p and at least 1/8 under q.
    """
    p, q = np.log([[0.5, 0.25, 0.125, 0.125]]), np.log([[0.25, 0.5, 0.125, 0.125]])
    found = topk_bounds(kept(p, 2), kept(q, 2))

    assert_measured(found.kl_low, [0.25 * math.log(2)], atol=1e-15, rtol=0)
    assert_measured(found.kl_high, [0.5 * math.log(2)], atol=1e-15, rtol=0)
    assert_measured(found.tvd_low, [0.25], atol=1e-15, rtol=0)
    assert_measured(found.tvd_high, [0.5], atol=1e-15, rtol=0)


def test_ids_that_one_side_alone_kept():
    """p = (1/2, 1/4, 1/8, 1/8), q = (1/2, 1/8, 1/4, 1/8), k = 2: only id 0 is shared.

    Rest 1/2 against 1/2. Upper: 1/4 ln(1/4) for id 1, 1/4 ln(1/4) for p's tail, + 1/2 ln 8.
    """
    p, q = np.log([[0.5, 0.25, 0.125, 0.125]]), np.log([[0.5, 0.125, 0.25, 0.125]])
    found = topk_bounds(kept(p, 2), kept(q, 2))

    assert_measured(found.kl_low, [0.0], atol=1e-15, rtol=0)
    assert_measured(found.kl_high, [0.5 * math.log(2)], atol=1e-15, rtol=0)
    assert_measured(found.tvd_low, [0.0], atol=1e-15, rtol=0)
    assert_measured(found.tvd_high, [0.5], atol=1e-15, rtol=0)


LAW = settings(max_examples=60, deadline=None)
SIZES = st.tuples(st.integers(2, 40), st.integers(1, 40), st.integers(1, 40))


def draw(seed, vocab, scale, noise):
    rng = np.random.default_rng(seed)
    a = scale * rng.normal(size=(3, vocab))
    return a, a + noise * rng.normal(size=a.shape)


@LAW
@given(
    seed=st.integers(0, 2**16),
    sizes=SIZES,
    scale=st.sampled_from([0.1, 3.0, 30.0]),
    noise=st.sampled_from([1e-6, 0.1, 3.0, 60.0]),
)
def test_the_truth_lies_between_the_bounds(seed, sizes, scale, noise):
    """Whatever ids either side kept."""
    vocab, k, other = sizes
    a, b = draw(seed, vocab, scale, noise)
    found = topk_bounds(kept(a, min(k, vocab)), kept(b, min(other, vocab)))
    kl, tvd = truth(a, b)

    slack = 1e-12 * (1 + kl)
    assert (found.kl_low <= kl + slack).all()
    assert (kl <= found.kl_high + slack).all()
    assert (found.tvd_low <= tvd + 1e-12).all()
    assert (tvd <= found.tvd_high + 1e-12).all()
    assert (found.kl_low >= -1e-15).all()
    assert (found.tvd_high <= 1.0).all()


@LAW
@given(seed=st.integers(0, 2**16), vocab=st.integers(3, 40), k=st.integers(1, 39))
def test_more_ids_bring_the_bounds_closer_and_all_ids_make_them_one(seed, vocab, k):
    """With one shared id set: ref's first k."""
    a, b = draw(seed, vocab, 2.0, 0.5)
    order = np.argsort(-a, axis=1, kind="stable")
    k = min(k, vocab - 1)

    def at(n):
        return topk_bounds(kept(a, n, ids=order[:, :n]), kept(b, n, ids=order[:, :n]))

    few, more, every = at(k), at(k + 1), at(vocab)
    kl, tvd = truth(a, b)

    assert (few.kl_low <= more.kl_low + 1e-13).all()
    assert (few.tvd_low <= more.tvd_low + 1e-13).all()
    assert (more.tvd_high <= few.tvd_high + 1e-13).all()
    assert_measured(every.kl_low, kl, atol=1e-13, rtol=1e-10)
    assert_measured(every.kl_high, kl, atol=1e-13, rtol=1e-10)
    assert_measured(every.tvd_low, tvd, atol=1e-14, rtol=0)
    assert_measured(every.tvd_high, tvd, atol=1e-14, rtol=0)


@LAW
@given(seed=st.integers(0, 2**16), vocab=st.integers(2, 40), k=st.integers(1, 39))
def test_ids_that_the_other_side_chose(seed, vocab, k):
    """Cand's first k on both sides: likelier ids of ref may be left out."""
    a, b = draw(seed, vocab, 3.0, 3.0)
    ids = np.argsort(-b, axis=1, kind="stable")[:, : min(k, vocab)]
    found = topk_bounds(kept(a, k, ids=ids, top=False), kept(b, k, ids=ids))
    kl, tvd = truth(a, b)

    slack = 1e-12 * (1 + kl)
    assert (found.kl_low <= kl + slack).all()
    assert (kl <= found.kl_high + slack).all()
    assert (found.tvd_low <= tvd + 1e-12).all()
    assert (tvd <= found.tvd_high + 1e-12).all()


def test_rests_of_other_size():
    """p = (1/2, 1/2), q = (9/10, 1/10), id 0 kept: TVD is 0.4 whether or not id 1 is one id."""
    p, q = np.log([[0.5, 0.5]]), np.log([[0.9, 0.1]])
    found = topk_bounds(kept(p, 1), kept(q, 1))

    assert_measured(found.tvd_low, [0.4], atol=1e-15, rtol=0)
    assert_measured(found.kl_low, truth(p, q)[0], atol=1e-15, rtol=0)


def test_one_likely_id_left_out():
    """p = (0.1, 0.9), q = (0.5, 0.5), id 0 kept: 0.1 ln 0.2 + 0.9 ln 0.9 + 0.9 ln 2 = 0.3681."""
    p, q = np.log([[0.1, 0.9]]), np.log([[0.5, 0.5]])
    found = topk_bounds(kept(p, 1, ids=[[0]], top=False), kept(q, 1, ids=[[0]]))

    assert_measured(found.kl_high, [0.3681], atol=5e-5, rtol=0)


def test_rows_are_taken_for_the_likeliest_ids_unless_told_otherwise():
    """Uniform over four ids, one kept: the others have 1/4 each at most, so KL(p || p) is 0 at most.

    If likelier ids may have been left out: 3/4 ln(3/4) + 3/4 ln 4 = 3/4 ln 3.
    """
    side = TopKRows(
        ids=np.array([[2]]),
        logits=np.zeros((1, 1)),
        lse=np.log([4.0]),
        tail_mass=np.array([0.75]),
        row_min=np.zeros(1),
    )

    assert_measured(topk_bounds(side, side).kl_high, [0.0], atol=1e-15, rtol=0)
    other = dataclasses.replace(side, top=False)
    assert_measured(topk_bounds(other, side).kl_high, [0.75 * math.log(3)], atol=0, rtol=1e-15)


def test_a_tail_may_be_all_there_is():
    """The kept id has e^-20, and the tail is 1 to seven digits: nothing is known to differ."""
    side = TopKRows(
        ids=np.array([[3]]),
        logits=np.array([[-20.0]]),
        lse=np.zeros(1),
        tail_mass=np.ones(1),
        top=False,
    )

    found = topk_bounds(side, side)

    assert (found.kl_low.tolist(), found.tvd_low.tolist()) == ([0.0], [0.0])
    assert found.tvd_high.tolist() == [1.0]


def test_equal_rows_have_exactly_zero_lower_bounds():
    a, _ = draw(1, 50, 3.0, 0.0)
    found = topk_bounds(kept(a, 5), kept(a, 5))

    assert (found.kl_low == 0.0).all()
    assert (found.tvd_low == 0.0).all()


def test_a_small_difference_keeps_its_digits():
    """Two ids, logits apart by 1e-6: KL is d^2 / 8 to second order."""
    a, b = np.array([[0.0, 0.0]]), np.array([[1e-6, 0.0]])
    found = topk_bounds(kept(a, 2), kept(b, 2))

    assert_measured(found.kl_low, [1.25e-13], atol=0, rtol=1e-6)


def test_a_rest_that_underflowed_is_no_proof_of_a_mask():
    """Cand's other id has e^-800: 0 in float64, yet KL is 400 and not inf."""
    a, b = np.array([[0.0, 0.0]]), np.array([[0.0, -800.0]])
    found = topk_bounds(kept(a, 1), kept(b, 1))
    kl = 0.5 * math.log(0.5) + 0.5 * (math.log(0.5) + 800.0)

    assert 300 < found.kl_low[0] <= kl <= found.kl_high[0] + 1e-9


def test_without_cands_row_minimum_there_is_no_upper_bound():
    """Ref's does not help; TVD stays bounded, and where nothing was left out so does KL."""
    a, b = draw(2, 20, 2.0, 0.3)
    open_end = topk_bounds(kept(a, 5), kept(b, 5, minimum=False))
    whole = topk_bounds(kept(a, 20, minimum=False), kept(b, 20, minimum=False))

    assert np.isposinf(open_end.kl_high).all()
    assert np.isfinite(open_end.kl_low).all()
    assert (open_end.tvd_high < 1.0).all()
    assert np.isfinite(topk_bounds(kept(a, 5, minimum=False), kept(b, 5)).kl_high).all()
    assert_measured(whole.kl_high, truth(a, b)[0], atol=1e-13, rtol=1e-10)


def test_an_id_that_cand_masks():
    a, b = np.array([[0.0, 0.0, 0.0]]), np.array([[0.0, 0.0, -np.inf]])
    found = topk_bounds(kept(a, 3), kept(b, 3))
    turned = topk_bounds(kept(b, 3), kept(a, 3))

    assert np.isposinf([found.kl_low[0], found.kl_high[0]]).all()
    assert_measured(turned.kl_low, [math.log(1.5)], atol=1e-15, rtol=0)
    assert_measured(turned.kl_high, [math.log(1.5)], atol=1e-15, rtol=0)


def test_no_shared_id():
    """k = 1, other ids: nothing is known but that both rests are 1 - less is never claimed."""
    p, q = np.log([[0.7, 0.2, 0.1]]), np.log([[0.2, 0.7, 0.1]])
    found = topk_bounds(kept(p, 1), kept(q, 1))

    assert_measured(found.kl_low, [0.0], atol=1e-15, rtol=0)
    assert_measured(found.tvd_high, [1.0], atol=1e-15, rtol=0)
    assert found.kl_high[0] >= truth(p, q)[0][0]


def test_no_rows():
    none = kept(np.zeros((1, 3)), 2)
    parts = ("ids", "logits", "lse", "tail_mass", "row_min")
    none = dataclasses.replace(none, **{name: getattr(none, name)[:0] for name in parts})

    assert topk_bounds(none, none).kl_low.shape == (0,)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"ids": np.array([[1, 1]])}, "cand row 0 holds an id twice"),
        ({"tail_mass": np.array([1.5])}, r"cand row 0 has a tail outside \[0, 1\]"),
        ({"logits": np.array([[0.0, math.nan]])}, r"cand row 0 holds NaN or \+inf"),
        ({"tail_mass": np.array([-0.1])}, r"cand row 0 has a tail outside \[0, 1\]"),
        ({"tail_mass": np.array([math.nan])}, r"cand row 0 has a tail outside \[0, 1\]"),
        ({"row_min": np.array([0.5])}, "cand row 0 has a row minimum above a kept logit"),
        ({"row_min": np.array([math.nan])}, "cand row 0 has a row minimum above a kept logit"),
        ({"lse": np.array([9.0])}, "cand row 0 keeps mass that is not 1 with its tail"),
        ({"lse": np.array([0.0, 0.0])}, r"cand has ids \(1, 2\), logits \(1, 2\) and per-row values"),
        ({"logits": np.zeros((1, 3))}, r"wanted \(rows, k\) twice"),
        ({"ids": np.zeros((1, 0), dtype=np.int64), "logits": np.zeros((1, 0))}, "k >= 1"),
    ],
)  # fmt: skip
def test_refused(change, why):
    good = kept(np.zeros((1, 3)), 2)

    with pytest.raises(InputError, match=why):
        topk_bounds(good, dataclasses.replace(good, **change))


def test_a_later_row_that_holds_an_id_twice_is_named():
    """Neither of the equal ids is the row's smallest."""
    good = kept(np.zeros((3, 4)), 3)
    bad = dataclasses.replace(good, ids=np.array([[0, 1, 2], [1, 2, 3], [3, 0, 3]]))

    with pytest.raises(InputError, match="cand row 2 holds an id twice"):
        topk_bounds(good, bad)


def test_other_rows_are_refused():
    with pytest.raises(InputError, match="ref has 1 rows, cand 2"):
        topk_bounds(kept(np.zeros((1, 3)), 2), kept(np.zeros((2, 3)), 2))
