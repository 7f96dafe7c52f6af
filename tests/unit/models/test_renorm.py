"""Top-k and top-p of the two paths against the float64 oracle, and their faults."""

import numpy as np
import pytest
import torch

from tests.measured import assert_measured
from validate.models.renorm import renorm, top_k_renorm_prob, top_p_renorm_prob
from validate.oracle import (
    top_k_kept,
    top_k_renorm_prob as oracle_top_k,
    top_p_renorm_prob as oracle_top_p,
)

VOCAB = 64
K = [1, 3, 64, 2**30, 0, 7, 20, 5]
P = [1.0, 0.9, 0.8, 1.0, 0.7, 0.0, 0.95, 0.3]


def rows(seed=0, *, ties=False):
    logits = np.random.default_rng(seed).normal(size=(len(K), VOCAB)) * 2
    if ties:
        logits = np.round(logits * 2) / 2
    return torch.softmax(torch.tensor(logits, dtype=torch.float32), dim=1)


def parameters():
    return torch.tensor(K, dtype=torch.int32), torch.tensor(P, dtype=torch.float32)


def expected(probs, *, rule):
    within = oracle_top_k(probs.double().numpy(), K, ties=rule)
    return oracle_top_p(
        within, np.asarray(P, np.float32).astype(np.float64), ties=rule, mass="absolute"
    )


@pytest.mark.parametrize("rule", ["all", "exactly_k"])
@pytest.mark.parametrize("seed", range(5))
def test_both_rules_agree_with_the_oracle(rule, seed):
    probs = rows(seed)
    out = renorm(probs, *parameters(), rule=rule)
    assert out.dtype is torch.float32
    # Two sums of 64 float32 and two divisions: 2 * 66 * 2^-24 = 7.9e-6.
    assert_measured(out.double().numpy(), expected(probs, rule=rule), atol=1e-7, rtol=8e-6)


def test_ties_are_kept_or_cut():
    probs = torch.tensor([[0.1, 0.3, 0.3, 0.3]])
    two = torch.tensor([2])
    assert int((top_k_renorm_prob(probs, two, rule="all") > 0).sum()) == 3
    assert int((top_k_renorm_prob(probs, two, rule="exactly_k") > 0).sum()) == 2
    half = torch.tensor([0.5])
    assert int((top_p_renorm_prob(probs, half, rule="all") > 0).sum()) == 3
    assert int((top_p_renorm_prob(probs, half, rule="exactly_k") > 0).sum()) == 2


@pytest.mark.parametrize("rule", ["all", "exactly_k"])
def test_kept_sets_with_many_ties(rule):
    probs = rows(3, ties=True)
    kept = top_k_renorm_prob(probs, parameters()[0], rule=rule).numpy() > 0
    wanted = top_k_kept(probs.double().numpy(), K, ties=rule)
    assert kept.sum(1).tolist() == wanted.sum(1).tolist()
    if rule == "all":
        assert np.array_equal(kept, wanted)


@pytest.mark.parametrize("rule", ["all", "exactly_k"])
def test_edges(rule):
    zero = torch.zeros((2, 5))
    k, p = torch.tensor([2, 9]), torch.tensor([0.5, 1.0])
    assert not renorm(zero, k, p, rule=rule).any()
    assert renorm(torch.zeros((0, 5)), k[:0], p[:0], rule=rule).shape == (0, 5)
    row = torch.tensor([[0.5, 0.3, 0.2]])
    for top_p in (0.0, -1.0):
        out = top_p_renorm_prob(row, torch.tensor([top_p]), rule=rule)
        assert out.tolist() == [[1.0, 0.0, 0.0]]
    out = top_k_renorm_prob(row, torch.tensor([-3]), rule=rule)
    assert out.tolist() == [[1.0, 0.0, 0.0]]
    nan = torch.tensor([[0.5, float("nan"), 0.2]])
    assert torch.isnan(renorm(nan, k[:1], p[:1], rule=rule)).any()


@pytest.mark.parametrize("rule", ["all", "exactly_k"])
def test_inputs_are_not_written(rule):
    probs, (k, p) = rows(1), parameters()
    before = probs.clone(), k.clone(), p.clone()
    renorm(probs, k, p, rule=rule)
    assert all(torch.equal(a, b) for a, b in zip(before, (probs, k, p), strict=True))


def test_every_row_is_what_it_is_alone():
    probs, (k, p) = rows(2), parameters()
    for rule in ("all", "exactly_k"):
        whole = renorm(probs, k, p, rule=rule)
        order = torch.tensor([5, 1, 7, 0, 3, 2, 6, 4])
        assert torch.equal(renorm(probs[order], k[order], p[order], rule=rule), whole[order])


def test_scratch_with_the_wrong_stride_spoils_only_mixed_batches():
    probs = torch.cat([rows(4), rows(5)], dim=1) / 2
    k = torch.tensor([128, 5, 7, 3, 9, 4, 2, 6])
    clean = top_k_renorm_prob(probs, k, rule="exactly_k")
    faulty = top_k_renorm_prob(probs, k, rule="exactly_k", fault="SA-04")
    assert [i for i in range(8) if not torch.equal(clean[i], faulty[i])] == [1, 2]  # 128 of 50
    alone = top_k_renorm_prob(probs[1:], k[1:], rule="exactly_k", fault="SA-04")
    assert torch.equal(alone, clean[1:])


def test_mass_before_the_division_keeps_more():
    """sglang#36173: .35, .25, .20, .05 of sum .85; p = .82 keeps 3 after the division, else 4."""
    probs = torch.tensor([[0.35, 0.25, 0.20, 0.051, 0.05, 0.05, 0.049]])
    k, p = torch.tensor([4]), torch.tensor([0.82])
    kept = [
        int((renorm(probs, k, p, rule="exactly_k", fault=fault) > 0).sum())
        for fault in (None, "SA-05")
    ]
    assert kept == [3, 4]
    one = torch.tensor([1.0])  # a single filter hides it
    assert torch.equal(
        renorm(probs, k, one, rule="exactly_k", fault="SA-05"),
        renorm(probs, k, one, rule="exactly_k"),
    )
