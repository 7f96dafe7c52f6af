"""Attention inner loops: values by hand, parts without keys, merges against the whole."""

import math

import numpy as np
import pytest
import torch

from tests.measured import assert_measured
from validate.models.attention import Partial, attend, key_parts, merge_partials

EXACT = {"atol": 1e-14, "rtol": 1e-13}


def drawn(*, keys=7, queries=3, heads=2, shared=False, seed=0):
    """q, k, v and a causal mask whose last query sees all keys."""
    rng = torch.Generator().manual_seed(seed)
    shape = (2, keys, 1 if shared else heads)
    q, k, v = (
        torch.randn(*s, generator=rng, dtype=torch.float64)
        for s in ((2, queries, heads, 5), (*shape, 5), (*shape, 4))
    )
    last = torch.arange(queries) + keys - queries
    return q, k, v, (torch.arange(keys) <= last.unsqueeze(1)).expand(2, -1, -1)


def part_of(q, k, v, mask, part=slice(None), *, scale=0.5):
    return attend(
        q,
        k[:, part],
        v[:, part],
        mask[:, :, part],
        scale=scale,
        accumulate=q.dtype,
        round_weights=False,
    )


def one_query(scores, values, *, visible=None, dtype=torch.float64, round_weights=False):
    """One head, one query of width 1 that is 1: the keys are the scores."""
    k = torch.tensor(scores, dtype=dtype).view(1, -1, 1, 1)
    v = torch.tensor(values, dtype=dtype).view(1, len(scores), 1, -1)
    seen = [True] * len(scores) if visible is None else visible
    return attend(
        torch.ones(1, 1, 1, 1, dtype=dtype),
        k,
        v,
        torch.tensor(seen).view(1, 1, -1),
        scale=1.0,
        accumulate=torch.float32 if dtype is torch.bfloat16 else dtype,
        round_weights=round_weights,
    )


def test_two_keys_by_hand():
    """Scores 0 and ln 3: weights 1/4 and 3/4, sum of exponentials 4."""
    part = one_query([0.0, math.log(3)], [[8.0, 0.0], [0.0, 4.0]])

    assert_measured(part.out.flatten(), [2.0, 3.0], **EXACT)
    assert_measured(part.lse.flatten(), [math.log(4)], **EXACT)


def test_the_scale_multiplies_the_scores_and_the_mask_hides_keys():
    """Scores 0.5 * (2, 4, 1000) with the last key hidden: odds e between the first two."""
    q, k, v = torch.tensor([1.0]), torch.tensor([2.0, 4.0, 1000.0]), torch.tensor([0.0, 1.0, 9.0])
    part = attend(
        q.view(1, 1, 1, 1),
        k.view(1, 3, 1, 1),
        v.view(1, 3, 1, 1),
        torch.tensor([[[True, True, False]]]),
        scale=0.5,
        accumulate=torch.float32,
        round_weights=False,
    )

    assert_measured(part.out.flatten(), [math.e / (1 + math.e)], atol=0, rtol=1e-6)
    assert_measured(part.lse.flatten(), [2 + math.log(1 + 1 / math.e)], atol=0, rtol=1e-6)


def test_scores_beyond_the_range_of_exp_stay_finite():
    """Scores 1000 and 1000 - ln 3 in float32: e^1000 would overflow without the shift."""
    part = one_query([1000.0, 1000.0 - math.log(3)], [[4.0], [8.0]], dtype=torch.float32)

    assert_measured(part.out.flatten(), [5.0], atol=0, rtol=1e-4)
    assert_measured(part.lse.flatten(), [1000 + math.log(4 / 3)], atol=0, rtol=1e-6)


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(lambda q, k, v, mask: part_of(q, k, v, mask, slice(3, 3)), id="no-keys"),
        pytest.param(
            lambda q, k, v, mask: part_of(q, k, v, torch.zeros_like(mask)), id="none-visible"
        ),
    ],
)
def test_a_part_without_a_visible_key_is_zero_with_lse_minus_infinity(part):
    made = part(*drawn())

    assert torch.equal(made.out, torch.zeros_like(made.out))
    assert torch.equal(made.lse, torch.full_like(made.lse, -math.inf))


def test_keys_shared_by_all_heads_are_those_keys_repeated():
    q, k, v, mask = drawn(shared=True)

    shared = part_of(q, k, v, mask)
    repeated = part_of(q, k.expand(-1, -1, 2, -1), v.expand(-1, -1, 2, -1), mask)

    assert_measured(shared.out, repeated.out, **EXACT)
    assert_measured(shared.lse, repeated.lse, **EXACT)


def test_rounded_weights_meet_the_values_and_the_sum_stays_wide():
    """Weights 1 and e^-1 = 0.36788; in bfloat16 the second is 0.3671875 (47/128) for V alone.

    The two values are 0 and 1 + e^-1's own sum: out = 0.3671875 / 1.36788 * v.
    """
    part = one_query([0.0, -1.0], [[0.0], [1.0]], dtype=torch.bfloat16, round_weights=True)

    total = 1 + math.exp(-1)
    assert_measured(part.out.flatten(), [0.3671875 / total], atol=0, rtol=1e-6)
    assert_measured(part.lse.flatten(), [math.log(total)], atol=0, rtol=1e-6)


@pytest.mark.parametrize(
    ("keys", "splits", "expected"),
    [
        (6, 1, [(0, 6)]),
        (5, 3, [(0, 1), (1, 3), (3, 5)]),
        (1, 4, [(0, 0), (0, 0), (0, 0), (0, 1)]),
        (0, 2, [(0, 0), (0, 0)]),
    ],
)
def test_key_parts_by_hand(keys, splits, expected):
    assert [(p.start, p.stop) for p in key_parts(keys, splits)] == expected


@pytest.mark.parametrize("splits", [1, 2, 3, 4, 7, 20])
def test_merged_parts_are_the_whole(splits):
    q, k, v, mask = drawn()

    merged = merge_partials([part_of(q, k, v, mask, p) for p in key_parts(7, splits)])
    whole = part_of(q, k, v, mask)

    assert_measured(merged.out, whole.out, **EXACT)
    assert_measured(merged.lse, whole.lse, **EXACT)


def test_the_order_of_parts_does_not_matter():
    q, k, v, mask = drawn()
    parts = [part_of(q, k, v, mask, p) for p in key_parts(7, 3)]

    forth, back = merge_partials(parts), merge_partials(parts[::-1])

    assert_measured(back.out, forth.out, **EXACT)
    assert_measured(back.lse, forth.lse, **EXACT)


def test_merge_by_hand_in_base_e():
    """Sums of exponentials 1 and 3: weights 1/4 and 3/4."""
    parts = [
        Partial(torch.full((1, 1, 1, 1), value), torch.full((1, 1, 1), math.log(total)))
        for value, total in ((8.0, 1.0), (4.0, 3.0))
    ]

    merged = merge_partials(parts)

    assert_measured(merged.out.flatten(), [5.0], atol=0, rtol=1e-6)
    assert_measured(merged.lse.flatten(), [math.log(4)], atol=0, rtol=1e-6)


def test_parts_that_all_saw_nothing_merge_to_nothing_without_nan():
    q, k, v, mask = drawn()
    empty = [part_of(q, k, v, mask, slice(2, 2))] * 3

    merged = merge_partials(empty)

    assert torch.equal(merged.out, torch.zeros_like(merged.out))
    assert torch.equal(merged.lse, torch.full_like(merged.lse, -math.inf))


def test_a_part_that_saw_nothing_has_no_say():
    q, k, v, mask = drawn()
    whole = part_of(q, k, v, mask)

    merged = merge_partials([part_of(q, k, v, mask, slice(0, 0)), whole])

    assert torch.equal(merged.out, whole.out)
    assert torch.equal(merged.lse, whole.lse)


def test_nan_in_a_part_is_not_lost_in_the_merge():
    q, k, v, mask = drawn()
    part = part_of(q, k, v, mask)
    broken = Partial(part.out.clone(), part.lse.clone())
    broken.out[1, 0, 1] = math.nan

    merged = merge_partials([broken, part])

    where = torch.isnan(merged.out).any(-1)
    assert where[1, 0, 1]
    assert np.count_nonzero(where.numpy()) == 1
