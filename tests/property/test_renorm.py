"""Laws of top-k and top-p: of the float64 oracle, of the two forms in torch, of what judges them."""

import numpy as np
import torch
from hypothesis import given, settings, strategies as st

from tests.unit.metrics.renorm_made import LEVELS, artifact, made_pair, side
from validate.metrics import METRICS
from validate.models.renorm import renorm
from validate.oracle import top_k_kept, top_k_renorm_prob, top_p_kept, top_p_renorm_prob

few = settings(max_examples=40, deadline=None)
RULES = st.sampled_from(["all", "exactly_k"])


@st.composite
def cases(draw):
    """Rows with and without ties, peaked and flat, and parameters at their edges.

    The last row always has a token to remove, so that a filter is tested.
    """
    vocab = draw(st.integers(2, 40))
    rows = draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    logits = rng.normal(size=(rows, vocab)) * draw(st.sampled_from([0.0, 0.5, 3.0, 20.0]))
    if draw(st.booleans()):
        logits = np.round(logits)
    probs = torch.softmax(torch.tensor(logits, dtype=torch.float32), dim=1)
    k = rng.choice([-1, 0, 1, 2, 5, vocab - 1, vocab, vocab + 1, 2**30], rows)
    p = rng.choice([-0.5, 0.0, 1e-6, 0.3, 0.5, 0.9, 0.999, 1.0, 2.0], rows)
    peak = torch.full((1, vocab), 0.25 / (vocab - 1), dtype=torch.float32)
    peak[0, 0] = 0.75
    k, p = torch.tensor([*k, 1], dtype=torch.int32), torch.tensor([*p, 1], dtype=torch.float32)
    return torch.cat([probs, peak]), k, p


@few
@given(case=cases(), rule=RULES)
def test_either_form_in_torch_passes_every_metric(case, rule):
    """Clean engines of either rule are never blamed, whatever the parameters."""
    probs, k, p = case
    out = renorm(probs, k, p, rule=rule).numpy()
    held = artifact(probs.tolist(), [1] * len(k), [1.0] * len(k), out=out)
    held |= {"renorm.top_k": k.numpy(), "renorm.top_p": p.numpy()}
    sides = side("cuda", {"a": held}, rule), side("rocm", {"a": held}, rule)

    for name in ("kept_set", "nonfinite", "input_unchanged"):
        assert METRICS[f"renorm.{name}"](made_pair(*sides), LEVELS).value == 0.0, name
    for name in ("kept_mass", "sum_error", "value_error"):
        value = METRICS[f"renorm.{name}"](made_pair(*sides), LEVELS).value
        assert value is not None
        assert value <= (probs.shape[1] + 4) * 2**-24, name


@few
@given(case=cases(), rule=RULES, drop=st.integers(0, 10**6))
def test_one_entry_lost_or_gained_never_passes(case, rule, drop):
    """Outside the tie band a kept set has no neighbour that is right too."""
    probs, k, _ = case
    p = torch.ones(len(k))
    out = renorm(probs, k, p, rule=rule).numpy()
    row = drop % len(out)
    kept = np.flatnonzero(out[row] > 0)
    bent = out.copy()
    bent[row, kept[drop % len(kept)]] = 0
    held = artifact(probs.tolist(), [1] * len(k), [1.0] * len(k), out=bent)
    held |= {"renorm.top_k": k.numpy(), "renorm.top_p": p.numpy()}
    clean = dict(held) | {"renorm.out": out}
    pair = made_pair(side("cuda", {"a": clean}, rule), side("rocm", {"a": held}, rule))

    if probs[row, kept[drop % len(kept)]] >= np.finfo(np.float32).tiny:
        assert METRICS["renorm.kept_set"](pair, LEVELS).value == 1.0


@few
@given(case=cases(), rule=RULES)
def test_oracle_keeps_more_for_a_larger_k_or_p(case, rule):
    probs, k, p = case
    rows = probs.double().numpy()
    less, more = (top_k_kept(rows, np.maximum(k.numpy(), 1) + step, ties=rule) for step in (0, 1))
    assert not (less & ~more).any()
    less, more = (top_p_kept(rows, p.double().numpy() + step, ties=rule) for step in (0.0, 0.1))
    assert not (less & ~more).any()


@few
@given(case=cases(), rule=RULES, exponent=st.integers(-10, 10))
def test_oracle_ignores_a_common_power_of_two(case, rule, exponent):
    """k counts and p is relative, so scaling a row exactly changes nothing at all."""
    probs, k, p = case
    rows = probs.double().numpy()
    scaled = rows * 2.0**exponent
    assert np.array_equal(
        top_k_renorm_prob(scaled, k.numpy(), ties=rule),
        top_k_renorm_prob(rows, k.numpy(), ties=rule),
    )
    wide = p.double().numpy()
    assert np.array_equal(
        top_p_renorm_prob(scaled, wide, ties=rule), top_p_renorm_prob(rows, wide, ties=rule)
    )


@few
@given(case=cases())
def test_oracle_commutes_with_an_order_of_the_ids(case):
    """With all ties kept no id is preferred."""
    probs, k, _ = case
    rows, order = probs.double().numpy(), np.random.default_rng(1).permutation(probs.shape[1])
    turned = top_k_kept(rows[:, order], k.numpy(), ties="all")
    assert np.array_equal(turned, top_k_kept(rows, k.numpy(), ties="all")[:, order])
