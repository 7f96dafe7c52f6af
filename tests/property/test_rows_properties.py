"""Laws that hold for all logits: identity, shifts, order of ids, signs, bounds."""

import numpy as np
import scipy.special
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from tests.measured import assert_measured
from validate.numerics import row_statistics

LOGITS = st.floats(-30, 30, width=32)
SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 12))


@st.composite
def matrices(draw, sides=2):
    shape = draw(SHAPES)
    return [draw(hnp.arrays(np.float64, shape, elements=LOGITS)) for _ in range(sides)]


def rows(ref, cand):
    return row_statistics(ref, cand, targets=np.zeros(len(ref), dtype=np.int64), top_k=3)


@settings(max_examples=60, deadline=None)
@given(matrices(sides=1))
def test_identity_is_exactly_zero(sides):
    found = rows(sides[0], sides[0].copy())

    assert not found.kl.any()
    assert not found.kl_reverse.any()
    assert not found.tvd.any()
    assert found.top1_agree.all()
    assert (found.topk_overlap == 1.0).all()


@settings(max_examples=60, deadline=None)
@given(matrices(), st.integers(-40, 40))
def test_a_shift_of_either_side_changes_nothing(sides, shift):
    ref, cand = sides
    before, after = rows(ref, cand), rows(ref, cand + shift)

    assert_measured(after.kl, before.kl, atol=1e-13, rtol=1e-11)
    assert_measured(after.tvd, before.tvd, atol=1e-13, rtol=1e-11)
    assert_measured(after.nll_cand, before.nll_cand, atol=1e-12, rtol=1e-11)


@settings(max_examples=60, deadline=None)
@given(matrices(), st.randoms(use_true_random=False))
def test_the_order_of_ids_changes_nothing(sides, random):
    ref, cand = sides
    order = list(range(ref.shape[1]))
    random.shuffle(order)
    before, after = rows(ref, cand), rows(ref[:, order], cand[:, order])

    assert_measured(after.kl, before.kl, atol=1e-15, rtol=1e-12)
    assert after.top1_agree.tolist() == before.top1_agree.tolist()
    assert after.gap.tolist() == before.gap.tolist()
    assert after.topk_overlap.tolist() == before.topk_overlap.tolist()


@settings(max_examples=60, deadline=None)
@given(matrices())
def test_swapped_sides_mirror(sides):
    ref, cand = sides
    one, other = rows(ref, cand), rows(cand, ref)

    assert_measured(one.kl, other.kl_reverse, atol=1e-15, rtol=1e-12)
    assert_measured(one.tvd, other.tvd, atol=1e-15, rtol=1e-12)
    assert one.topk_overlap.tolist() == other.topk_overlap.tolist()
    assert one.top1_agree.tolist() == other.top1_agree.tolist()
    assert_measured(one.dlogprob_target, -other.dlogprob_target, atol=1e-15, rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(matrices())
def test_bounds(sides):
    """Non-negative; Pinsker: TVD^2 <= KL / 2 (Cover and Thomas, lemma 11.6.1)."""
    found = rows(*sides)

    assert (found.kl >= 0).all()
    assert (found.kl_reverse >= 0).all()
    assert (found.tvd <= 1 + 1e-15).all()
    assert (found.tvd**2 <= found.kl / 2 + 1e-15).all()
    assert (found.kl <= found.max_abs_dlogprob + 1e-12).all()
    assert ((found.gap == 0) == found.top1_agree).all()


@settings(max_examples=60, deadline=None)
@given(matrices())
def test_kl_is_that_of_scipy(sides):
    ref, cand = sides
    p, q = scipy.special.softmax(ref, axis=1), scipy.special.softmax(cand, axis=1)

    expected = scipy.special.rel_entr(p, q).sum(axis=1)

    assert_measured(rows(ref, cand).kl, expected, atol=1e-13, rtol=1e-10)
