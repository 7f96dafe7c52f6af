"""The row-statistics kernel against hand-made rows, SciPy, and 60-digit arithmetic."""

import inspect
import math
import tracemalloc

import ml_dtypes
import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
import scipy.special

from tests.measured import assert_measured
from validate.errors import InputError
from validate.numerics import NO_TARGET, row_statistics

INF = math.inf


def rows(ref, cand, targets=None, **options):
    ref, cand = np.asarray(ref), np.asarray(cand)
    targets = np.full(len(ref), NO_TARGET) if targets is None else np.asarray(targets)
    return row_statistics(ref, cand, targets=targets, **options)


def exact_kl(ref, cand):
    """KL(ref || cand) of two rows of logits with 60 digits."""
    with mpmath.workdps(60):
        p = [mpmath.e ** mpmath.mpf(float(x)) for x in ref]
        q = [mpmath.e ** mpmath.mpf(float(x)) for x in cand]
        sum_p, sum_q = mpmath.fsum(p), mpmath.fsum(q)
        terms = [a / sum_p * mpmath.log(a * sum_q / (b * sum_p)) for a, b in zip(p, q, strict=True)]
        return float(mpmath.fsum(terms))


# p = (1/2, 1/4, 1/4), q = (1/4, 1/4, 1/2); in the second row the two change places with a uniform.
REF = np.log([[0.5, 0.25, 0.25], [1 / 3, 1 / 3, 1 / 3]])
CAND = np.log([[0.25, 0.25, 0.5], [0.5, 0.25, 0.25]])


def test_by_hand():
    found = rows(REF, CAND, targets=[2, 0])

    # Row 0: 1/2 ln 2 + 1/4 ln 1 + 1/4 ln 1/2 = 1/4 ln 2, the same both ways.
    # Row 1: 1/3 (ln 2/3 + 2 ln 4/3) forward; 1/2 ln 3/2 + 2/4 ln 3/4 backward.
    forward = (math.log(2 / 3) + 2 * math.log(4 / 3)) / 3
    backward = (math.log(3 / 2) + math.log(3 / 4)) / 2
    assert_measured(found.kl, [math.log(2) / 4, forward], atol=0, rtol=1e-14)
    assert_measured(found.kl_reverse, [math.log(2) / 4, backward], atol=0, rtol=1e-14)
    assert_measured(found.tvd, [0.25, 1 / 6], atol=0, rtol=1e-14)
    assert_measured(found.max_abs_dlogprob, [math.log(2), math.log(3 / 2)], atol=0, rtol=1e-14)
    assert found.max_abs_dlogprob_id.tolist() == [0, 0]
    assert_measured(found.nll_ref, [math.log(4), math.log(3)], atol=0, rtol=1e-14)
    assert_measured(found.nll_cand, [math.log(2), math.log(2)], atol=0, rtol=1e-14)
    assert_measured(found.dlogprob_target, [math.log(2), math.log(3 / 2)], atol=0, rtol=1e-14)
    assert_measured(found.ref_margin, [math.log(2), 0.0], atol=1e-15, rtol=1e-14)
    assert_measured(found.gap, [math.log(2), 0.0], atol=1e-15, rtol=1e-14)
    # Row 0: ln 2 becomes 0. Row 1: of three tied ids cand rates 0 highest, 1 by ln 2 lower.
    assert_measured(found.margin_shift, [-math.log(2), math.log(2)], atol=0, rtol=1e-14)
    assert found.top1_agree.tolist() == [False, True]
    assert found.ties_ref.tolist() == [1, 3]
    assert found.ties_cand.tolist() == [1, 1]
    assert found.argmax_ref.tolist() == [0, 0]
    assert found.argmax_cand.tolist() == [2, 0]
    assert found.mask_mismatch.tolist() == [0, 0]


def test_all_divergences_are_of_ref_against_cand():
    swapped = rows(CAND, REF)

    assert swapped.kl.tolist() == rows(REF, CAND).kl_reverse.tolist()


@pytest.mark.parametrize("size", [1e-9, 1e-7, 1e-6, 1e-4, 1e-2, 0.3, 1.0, 5.0, 40.0])
def test_kl_against_sixty_digits(size):
    """From 1e-19 to 100 nats the relative error stays under 1e-11 (1e-12 nats: under 1e-13)."""
    rng = np.random.default_rng(11)
    ref = rng.normal(scale=3, size=(3, 100))
    cand = ref + size * rng.normal(size=ref.shape)

    found = rows(ref, cand)

    expected = [exact_kl(a, b) for a, b in zip(ref, cand, strict=True)]
    reverse = [exact_kl(b, a) for a, b in zip(ref, cand, strict=True)]
    rtol = 1e-13 if size >= 1e-6 else 1e-11
    assert_measured(found.kl, expected, atol=0, rtol=rtol)
    assert_measured(found.kl_reverse, reverse, atol=0, rtol=rtol)


def test_kl_of_one_picounit_keeps_its_digits():
    rng = np.random.default_rng(5)
    ref = rng.normal(scale=3, size=(1, 272))
    cand = ref + 1.5e-6 * rng.normal(size=ref.shape)

    found = rows(ref, cand)

    expected = exact_kl(ref[0], cand[0])
    assert 1e-13 < expected < 1e-11
    assert_measured(found.kl, [expected], atol=0, rtol=1e-12)


def test_rare_far_ids_do_not_spoil_a_tiny_kl():
    ref = np.linspace(0, 5, 64)[None]
    cand = ref.copy()
    ref[0, 0], cand[0, 0] = -25.0, -23.0  # one id of mass 1e-12 moves by two nats

    assert_measured(rows(ref, cand).kl, [exact_kl(ref[0], cand[0])], atol=0, rtol=1e-12)


@pytest.mark.parametrize("shift", [60.0, 800.0, 2000.0])
def test_exponentials_do_not_overflow(shift):
    # p = (1, 0), q = (1/2, 1/2) up to e^-shift: KL = ln 2, reverse = shift / 2 - ln 2.
    found = rows([[shift, 0.0]], [[0.0, 0.0]])

    # A normaliser of 2000 has a rounding error of 1e-13, which the far id can't cancel.
    assert_measured(found.kl, [math.log(2)], atol=0, rtol=2e-13)
    assert_measured(found.kl_reverse, [shift / 2 - math.log(2)], atol=0, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_against_scipy_for_every_dtype(dtype):
    rng = np.random.default_rng(2)
    ref = rng.normal(scale=4, size=(7, 500)).astype(dtype)
    cand = (ref.astype(np.float64) + 0.1 * rng.normal(size=ref.shape)).astype(dtype)
    targets = rng.integers(0, 500, size=7)

    found = rows(ref, cand, targets=targets)

    left = scipy.special.log_softmax(ref.astype(np.float64), axis=1)
    right = scipy.special.log_softmax(cand.astype(np.float64), axis=1)
    p, q = np.exp(left), np.exp(right)
    every = np.arange(7)
    assert_measured(found.kl, scipy.special.rel_entr(p, q).sum(axis=1), atol=1e-14, rtol=1e-10)
    assert_measured(
        found.kl_reverse, scipy.special.rel_entr(q, p).sum(axis=1), atol=1e-14, rtol=1e-10
    )
    assert_measured(found.tvd, 0.5 * np.abs(p - q).sum(axis=1), atol=1e-15, rtol=1e-12)
    assert_measured(
        found.max_abs_dlogprob, np.abs(left - right).max(axis=1), atol=1e-13, rtol=1e-12
    )
    assert_measured(found.nll_ref, -left[every, targets], atol=1e-14, rtol=1e-13)
    assert_measured(found.nll_cand, -right[every, targets], atol=1e-14, rtol=1e-13)
    difference = right[every, targets] - left[every, targets]
    assert_measured(found.dlogprob_target, difference, atol=1e-13, rtol=1e-12)
    ordered = np.sort(left, axis=1)
    assert_measured(found.ref_margin, ordered[:, -1] - ordered[:, -2], atol=1e-13, rtol=1e-12)


def test_kl_has_no_bias_where_its_series_ends():
    """|d| just below 1/2, where the series' last terms weigh most: one wrong by 1 in 156 shifts the mean
    of 400 rows by 9e-16, and rounding averages out to 2e-16."""
    x = np.linspace(-7.0, -5.0, 400)
    ref = np.stack([np.zeros(400), x], axis=1)
    cand = np.stack([np.zeros(400), x + 0.5], axis=1)

    found = rows(ref, cand)

    for kl, left, right in ((found.kl, ref, cand), (found.kl_reverse, cand, ref)):
        expected = np.array([exact_kl(a, b) for a, b in zip(left, right, strict=True)])
        assert abs(float(np.mean(kl / expected - 1.0))) < 5e-16


@pytest.mark.parametrize("size", [0.1, 0.6, 5.0, 29.5, 30.5, 31.5])
def test_kl_of_two_logits_that_change_places(size):
    """From (0, a) to (a, 0): both ways a (e^a - 1) / (e^a + 1) = a tanh(a / 2)."""
    found = rows([[0.0, size]], [[size, 0.0]])

    expected = [size * math.tanh(size / 2)]
    assert_measured(found.kl, expected, atol=0, rtol=1e-15)
    assert_measured(found.kl_reverse, expected, atol=0, rtol=1e-15)


def test_rounding_of_a_great_normaliser_cancels():
    """Cand's log-sum-exp of 2^30 is rounded by up to 1e-7. KL of (1/2, 1/2) against softmax(2, 0)
    is ln cosh 1 whatever is added to the logits."""
    found = rows([[0.0, 0.0]], [[2.0**30 + 2.0, 2.0**30]])

    assert_measured(found.kl, [math.log(math.cosh(1.0))], atol=0, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_identical_rows_are_exactly_zero(dtype):
    rng = np.random.default_rng(4)
    ref = rng.normal(scale=9, size=(50, 271)).astype(dtype)
    ref[3, 5] = -np.inf
    shifted = np.zeros(50 * 271 + 3, dtype=dtype)[3:].reshape(50, 271)  # another alignment
    shifted[:] = ref

    found = rows(ref, shifted, targets=np.full(50, 8))

    for name in ("kl", "kl_reverse", "tvd", "max_abs_dlogprob", "dlogprob_target", "gap"):
        assert getattr(found, name).tolist() == [0.0] * 50, name
    assert found.topk_overlap.tolist() == [1.0] * 50
    assert found.top1_agree.all()


def test_a_row_does_not_depend_on_its_block():
    rng = np.random.default_rng(6)
    ref = rng.normal(size=(5, 100_000)).astype(np.float32)
    cand = ref + np.float32(0.01) * rng.normal(size=ref.shape).astype(np.float32)

    together, alone = rows(ref, cand), rows(ref[4:], cand[4:])

    assert together.kl[4] == alone.kl[0]
    assert together.tvd[4] == alone.tvd[0]


def test_memory_is_bounded_at_a_large_vocabulary():
    """Twelve rows of 163,840 float32 are 7.9 MB a side; temporaries stay near 30 MB."""
    ref = np.zeros((12, 163_840), dtype=np.float32)
    cand = ref + np.arange(163_840, dtype=np.float32) * np.float32(1e-6)
    tracemalloc.start()

    found = rows(ref, cand)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.kl.shape == (12,)
    assert peak < 40e6


@pytest.mark.parametrize(("count", "vocab"), [(8, 65_536), (3, 262_145)])
def test_memory_is_that_of_one_block(count, vocab):
    """A block is 262,144 values, or one row if it is longer."""
    ref = np.zeros((count, vocab), dtype=np.float32)
    tracemalloc.start()

    found = rows(ref, ref)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.kl.tolist() == [0.0] * count
    assert peak < 30e6


class TestMasks:
    """-inf on both sides is dropped; on one side it is a mismatch."""

    def test_masked_on_both_sides_is_the_smaller_vocabulary(self):
        whole = rows(np.insert(REF, 1, -INF, axis=1), np.insert(CAND, 1, -INF, axis=1))
        cut = rows(REF, CAND)

        for name in ("kl", "kl_reverse", "tvd", "max_abs_dlogprob", "gap", "ref_margin"):
            assert_measured(getattr(whole, name), getattr(cut, name), atol=1e-16, rtol=1e-14)
        assert whole.mask_mismatch.tolist() == [0, 0]
        assert whole.topk_overlap.tolist() == [1.0, 1.0]

    def test_cand_masks_what_ref_gives_mass(self):
        found = rows([[0.0, 0.0]], [[0.0, -INF]])

        # q = (1, 0): KL(p||q) = inf, KL(q||p) = ln 2, TVD = 1/2.
        assert found.kl.tolist() == [INF]
        assert_measured(found.kl_reverse, [math.log(2)], atol=0, rtol=1e-15)
        assert found.tvd.tolist() == [0.5]
        assert found.max_abs_dlogprob.tolist() == [INF]
        assert found.max_abs_dlogprob_id.tolist() == [1]
        assert found.mask_mismatch.tolist() == [1]

    def test_ref_masks_what_cand_gives_mass(self):
        found = rows([[0.0, -INF]], [[0.0, 0.0]])

        assert_measured(found.kl, [math.log(2)], atol=0, rtol=1e-15)
        assert found.kl_reverse.tolist() == [INF]
        assert found.mask_mismatch.tolist() == [1]

    def test_a_masked_top_choice_of_cand_has_an_infinite_gap(self):
        found = rows([[1.0, 0.0, -INF]], [[0.0, 0.0, 2.0]])

        assert found.gap.tolist() == [INF]
        assert not found.top1_agree[0]

    def test_shift_of_the_margin(self):
        ref = [[2.0, 1.0, -INF], [2.0, -INF, -INF], [2.0, 1.0, 0.0], [2.0, 1.0, 0.0]]
        cand = [[1.0, 3.0, -INF], [9.0, -INF, -INF], [2.0, -INF, 0.0], [-INF, 1.0, 0.0]]

        assert rows(ref, cand).margin_shift.tolist() == [-3.0, 0.0, INF, -INF]

    def test_a_target_masked_on_both_sides_has_no_difference(self):
        found = rows([[0.0, -INF]], [[0.0, -INF]], targets=[1])

        assert found.nll_ref.tolist() == [INF]
        assert math.isnan(found.dlogprob_target[0])

    def test_ids_that_one_side_masks_count_in_the_overlap(self):
        """Ref has two ids for three places, cand three: two of the three are common."""
        found = rows([[1.0, 0.0, -INF]], [[1.0, 0.0, 0.5]], top_k=3)

        assert_measured(found.topk_overlap, [2 / 3], atol=0, rtol=1e-15)

    def test_one_id_left_has_an_infinite_margin(self):
        assert rows([[0.0, -INF]], [[0.0, -INF]]).ref_margin.tolist() == [INF]
        assert rows([[0.0]], [[3.0]]).ref_margin.tolist() == [INF]


class TestTies:
    """Top-1 and top-k do not depend on the order of equal logits."""

    def test_sets_of_maxima_intersect(self):
        found = rows([[2.0, 2.0, 0.0]], [[0.0, 2.0, 2.0]])

        assert found.top1_agree.tolist() == [True]
        assert (found.ties_ref.tolist(), found.ties_cand.tolist()) == ([2], [2])
        assert (found.argmax_ref.tolist(), found.argmax_cand.tolist()) == ([1], [1])
        assert found.gap.tolist() == [0.0]

    def test_of_tied_choices_the_one_that_ref_rates_highest_counts(self):
        found = rows([[3.0, 0.0, 1.0]], [[0.0, 5.0, 5.0]])

        assert found.argmax_cand.tolist() == [2]
        assert found.gap.tolist() == [2.0]
        assert not found.top1_agree[0]

    def test_tied_choices_that_ref_masks(self):
        found = rows([[3.0, -INF, -INF]], [[0.0, 5.0, 5.0]])

        assert found.argmax_cand.tolist() == [1]
        assert found.gap.tolist() == [INF]

    @pytest.mark.parametrize(
        ("ref", "cand", "top_k", "expected"),
        [
            ([4, 3, 2, 1], [4, 3, 1, 2], 2, 1.0),
            ([4, 3, 2, 1], [1, 2, 3, 4], 2, 0.0),
            ([4, 3, 2, 1], [4, 2, 3, 1], 2, 0.5),
            # Ref's second place is tied between 1, 2, 3; cand takes 3: an order exists that agrees.
            ([4, 2, 2, 2], [4, 1, 1, 3], 2, 1.0),
            # One place is left for ref's three tied ids, but cand surely has two of them.
            ([4, 2, 2, 2, 0], [0, 0, 3, 3, 0], 2, 0.5),
            # All tied on both sides.
            ([1, 1, 1, 1], [2, 2, 2, 2], 3, 1.0),
            # One place each, tied {1, 2} against {2, 3}: both can take 2.
            ([4, 2, 2, 0], [4, 0, 2, 2], 2, 1.0),
            # Ref has 5 and one of {0, 1, 2}, cand 0 and one of {1, 2, 3}: one id at most is common.
            ([2, 2, 2, 0, 0, 3], [3, 2, 2, 2, 0, 0], 2, 0.5),
            ([3, 2, 2, 2, 0, 0], [2, 2, 2, 0, 0, 3], 2, 0.5),
            ([1, 2, 3], [3, 2, 1], 50, 1.0),
        ],
    )
    def test_topk_overlap_by_hand(self, ref, cand, top_k, expected):
        found = rows([list(map(float, ref))], [list(map(float, cand))], top_k=top_k)

        assert found.topk_overlap.tolist() == [expected]


@pytest.mark.parametrize("top_k", [1, 2])
def test_the_margin_needs_no_wide_set(top_k):
    """Ref's logits 5 and 3: the margin is 2 whatever the sets compared; of one id each, id 0 is both's."""
    found = rows([[5.0, 3.0, 0.0]], [[4.0, 0.0, 3.0]], top_k=top_k)

    assert found.ref_margin.tolist() == [2.0]
    assert found.topk_overlap.tolist() == [1.0 / top_k]


def test_rows_without_target_have_no_nll():
    found = rows(REF, CAND, targets=[NO_TARGET, 1])

    assert np.isnan(found.nll_ref).tolist() == [True, False]
    assert np.isnan(found.dlogprob_target).tolist() == [True, False]


def test_no_rows_give_empty_fields():
    found = rows(np.zeros((0, 5)), np.zeros((0, 5)), targets=np.zeros(0, dtype=np.int64))

    assert found.kl.shape == found.top1_agree.shape == found.argmax_ref.shape == (0,)


def test_inputs_are_not_written_to():
    ref, cand = REF.copy(), CAND.copy()

    rows(ref, cand)

    assert np.array_equal(ref, REF)
    assert np.array_equal(cand, CAND)


class TestRefusals:
    """Messages name the side, the row and the id."""

    @pytest.mark.parametrize(
        ("ref", "cand", "message"),
        [
            ([[0.0, math.nan]], [[0.0, 0.0]], "ref row 0 is nan at id 1"),
            ([[0.0, 0.0]] * 2, [[0.0, 0.0], [0.0, INF]], "cand row 1 is inf at id 1"),
            ([[0.0, 0.0]], [[INF, 0.0]], "cand row 0 is inf at id 0"),
            ([[0.0, 0.0]], [[-INF, -INF]], "cand row 0 is -inf throughout"),
        ],
    )
    def test_values(self, ref, cand, message):
        with pytest.raises(InputError, match=message):
            rows(ref, cand)

    def test_the_row_is_counted_over_blocks(self):
        ref = np.zeros((3, 200_000), dtype=np.float32)
        cand = ref.copy()
        cand[2, 7] = np.nan

        with pytest.raises(InputError, match="cand row 2 is nan at id 7"):
            rows(ref, cand)

    def test_shapes(self):
        with pytest.raises(InputError, match=r"ref has shape \(2, 3\), cand \(1, 3\)"):
            inspect.unwrap(row_statistics)(REF, CAND[:1], targets=np.zeros(2, dtype=np.int64))

    @pytest.mark.parametrize("target", [-2, 3])
    def test_targets(self, target):
        with pytest.raises(InputError, match=f"target {target} of row 1 is outside .* 0..2"):
            rows(REF, CAND, targets=[0, target])

    def test_sizes(self):
        with pytest.raises(InputError, match="vocab=0 and top_k=10 must both be at least 1"):
            rows(np.zeros((1, 0)), np.zeros((1, 0)))
        with pytest.raises(InputError, match="vocab=3 and top_k=0 must both be at least 1"):
            rows(REF, CAND, top_k=0)
