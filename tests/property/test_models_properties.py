"""What must hold for every input of the torch model: any rows, any cut, any padding, any split."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from tests.measured import assert_measured
from tests.unit.models.small import F64, SMALL, real, rocm, run_decode, run_prefill, state_arrays
from validate.models import PathOptions
from validate.models.attention import Partial, attend, merge_partials
from validate.models.heads import ACCEPTED_HEADS, pad_heads, padded_count, unpad_heads
from validate.models.kda import KdaInputs, chunk_delta_rule, recurrent_delta_rule
from validate.models.moe import route
from validate.models.ops import linear

SLOW = settings(max_examples=12, deadline=None, derandomize=True)
QUICK = settings(max_examples=60, deadline=None, derandomize=True)
CLOSE = {"atol": 1e-11, "rtol": 1e-9}

SEEDS = st.integers(0, 2**32 - 1)
IDS = st.integers(0, SMALL.vocab_size - 1)
RAGGED = st.lists(st.lists(IDS, min_size=1, max_size=9), min_size=1, max_size=3)
REFERENCE = st.builds(
    lambda splits, chunk: PathOptions(dtype=torch.float64, splits=splits, kda_chunk=chunk),
    st.integers(1, 5),
    st.integers(1, 16),
)
ROCM = st.builds(
    lambda prefill, decode, splits, chunk: rocm(
        prefill_pad=prefill, decode_pad=decode, splits=splits, kda_chunk=chunk
    ),
    st.sampled_from(["zero", "tile"]),
    st.sampled_from(["zero", "tile", "repeat"]),
    st.integers(1, 5),
    st.integers(1, 16),
)
PADDABLE = [
    (heads, rule, min(counts))
    for heads in range(1, 129)
    for rule in ("zero", "tile", "repeat")
    if (counts := [n for n in ACCEPTED_HEADS if n >= heads and (rule != "repeat" or not n % heads)])
]
"""Head count, rule, and the count it is padded to."""


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@SLOW
@given(rows=RAGGED, options=st.one_of(REFERENCE, ROCM), chunk=st.integers(0, 5), data=st.data())
def test_any_form_of_any_rows_is_the_reference_in_one_shot(rows, options, chunk, data):
    cuts = [data.draw(st.integers(1, len(row))) for row in rows]
    logits, state = run_prefill(rows)

    first, half = run_prefill(
        [row[:c] for row, c in zip(rows, cuts, strict=True)], options, chunk=chunk
    )
    made = [first[b, :c] for b, c in enumerate(cuts)]
    rest = [row[c:] for row, c in zip(rows, cuts, strict=True)]
    if any(rest):
        later, half = run_decode(rest, half, options)
        made = [torch.cat([m, later[b, : len(rest[b])]]) for b, m in enumerate(made)]

    assert_measured(torch.cat(made), real(logits, rows), **CLOSE)
    for b, row in enumerate(rows):
        ours, theirs = (state_arrays(s, b, len(row)) for s in (half, state))
        for name in theirs:
            assert_measured(ours[name], theirs[name], **CLOSE)


@SLOW
@given(
    row=st.lists(IDS, min_size=2, max_size=9), options=st.one_of(REFERENCE, ROCM), data=st.data()
)
def test_later_tokens_do_not_move_earlier_rows(row, options, data):
    cut = data.draw(st.integers(1, len(row) - 1))
    other = [*row[:cut], *((t + 1) % SMALL.vocab_size for t in row[cut:])]

    before, after = run_prefill([row], options)[0], run_prefill([other], options)[0]

    assert_measured(after[0, :cut], before[0, :cut], **CLOSE)
    assert not torch.equal(after[0, cut:], before[0, cut:])


@SLOW
@given(rows=RAGGED, options=st.one_of(REFERENCE, ROCM), seed=SEEDS)
def test_the_order_of_rows_in_a_batch_does_not_matter(rows, options, seed):
    order = np.random.default_rng(seed).permutation(len(rows)).tolist()

    straight = run_prefill(rows, options)[0]
    mixed = run_prefill([rows[i] for i in order], options)[0]

    for place, i in enumerate(order):
        assert_measured(mixed[place, : len(rows[i])], straight[i, : len(rows[i])], **CLOSE)


@QUICK
@given(
    seed=SEEDS,
    tokens=st.integers(1, 40),
    chunk=st.integers(1, 16),
    floor=st.floats(-5.0, 0.0),
    silent=st.floats(0.0, 1.0),
)
def test_chunks_are_the_recurrence_for_any_decay(seed, tokens, chunk, floor, silent):
    """A share ``silent`` of the tokens is padding: no beta, no decay."""
    rng = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(1, 2, tokens, 5, generator=rng, dtype=torch.float64) for _ in "qkv")
    k = k / k.norm(dim=-1, keepdim=True)
    on = torch.rand(1, 2, tokens, generator=rng, dtype=torch.float64) >= silent
    decay = floor * torch.rand(1, 2, tokens, 5, generator=rng, dtype=torch.float64)
    beta = torch.rand(1, 2, tokens, generator=rng, dtype=torch.float64)
    inputs = KdaInputs(q, k, v, decay * on.unsqueeze(-1), beta * on)
    state = torch.randn(1, 2, 5, 5, generator=rng, dtype=torch.float64)

    out, after = chunk_delta_rule(inputs, state, chunk=chunk)
    expected, every = recurrent_delta_rule(inputs, state)
    expected_after = every[:, -1]

    assert_measured(out, expected, atol=1e-10, rtol=1e-9)
    assert_measured(after, expected_after, atol=1e-10, rtol=1e-9)


def parts(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bounds: Sequence[int]) -> list[Partial]:
    return [
        attend(
            q,
            k[:, a:b],
            v[:, a:b],
            mask[:, :, a:b],
            scale=1.0,
            accumulate=torch.float64,
            round_weights=False,
        )
        for a, b in pairwise(bounds)
    ]


@QUICK
@given(
    seed=SEEDS,
    keys=st.integers(1, 9),
    cuts=st.lists(st.integers(0, 9), max_size=5),
    size=st.floats(0.1, 300.0),
)
def test_any_cut_of_the_keys_merges_to_the_whole(seed, keys, cuts, size):
    """Scores up to hundreds; parts may be empty or hidden from some queries."""
    q, k, v = (
        normal(seed, 2, 3, 2, 4) * size,
        normal(seed + 1, 2, keys, 2, 4),
        normal(seed + 2, 2, keys, 2, 3),
    )
    seen = normal(seed + 3, 2, 3, keys) > 0
    bounds = [0, *sorted(min(c, keys) for c in cuts), keys]

    (whole,) = parts(q, k, v, seen, [0, keys])
    merged = merge_partials(parts(q, k, v, seen, bounds))

    some = seen.any(-1)
    assert_measured(merged.out, whole.out, **CLOSE)
    assert torch.equal(merged.lse == -math.inf, (~some).unsqueeze(-1).expand_as(merged.lse))
    if some.any():
        assert_measured(merged.lse[some], whole.lse[some], **CLOSE)


@QUICK
@given(seed=SEEDS, case=st.sampled_from(PADDABLE))
def test_every_head_count_that_can_be_padded_comes_back(seed, case):
    heads, rule, count = case
    x = normal(seed, 2, heads, 2)

    padded = pad_heads(x, rule)

    assert padded.shape[-2] == padded_count(heads, rule) == count
    assert torch.equal(unpad_heads(padded, heads, rule, axis=-2), x)
    assert torch.equal(unpad_heads(padded[..., 1], heads, rule, axis=-1), x[..., 1])


@QUICK
@given(seed=SEEDS, experts=st.integers(1, 40), data=st.data())
def test_routing_takes_the_best_and_shares_sum_to_one(seed, experts, data):
    """Few distinct scores, so that ties are common: no expert left out beats one taken."""
    k = data.draw(st.integers(1, experts))
    config = SMALL.model_copy(update={"experts": experts, "experts_per_token": k})
    rng = np.random.default_rng(seed)
    weights = {
        "router.weight": torch.eye(experts, dtype=torch.float64),
        "correction_bias": torch.from_numpy(rng.integers(0, 2, experts) * 0.25),
    }
    x = torch.from_numpy(rng.integers(-2, 3, (4, experts)).astype(np.float64))

    routing = route(x, weights, config=config, options=F64)

    for scores, ids in zip(routing.scores.tolist(), routing.ids.tolist(), strict=True):
        assert ids == sorted(range(experts), key=lambda e: (-scores[e], e))[:k]
    assert_measured(routing.weights.sum(-1), np.ones(4), atol=1e-12, rtol=0)


@QUICK
@given(seed=SEEDS, rows=st.integers(1, 9), width=st.integers(1, 40), out=st.integers(1, 9))
def test_a_bfloat16_product_is_one_rounding_of_the_exact_one(seed, rows, width, out):
    """Integers up to 99: products and float32 sums are exact."""
    rng = np.random.default_rng(seed)
    x, w = (
        torch.from_numpy(rng.integers(-99, 100, s)).to(torch.bfloat16)
        for s in ((rows, width), (out, width))
    )

    exact = x.double() @ w.double().T

    assert torch.equal(linear(x, w.float()), exact.to(torch.bfloat16))
