"""Padded heads as relations."""

import numpy as np
import pytest

from validate.conformance.ops._heads import paddings, poison_for


def test_twelve_heads_go_to_sixteen_and_to_forty_eight():
    found = {p.rule: p for p in paddings(12)}
    assert {rule: p.count for rule, p in found.items()} == {
        "zero": 16, "garbage": 16, "tile": 16, "repeat": 48,
    }  # fmt: skip
    assert found["tile"].source[12:] == (0, 1, 2, 3)
    assert found["repeat"].source[:6] == (0, 0, 0, 0, 1, 1)
    assert found["repeat"].real == tuple(range(0, 48, 4))


@pytest.mark.parametrize("heads", [4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 100])
def test_every_padding_gives_the_real_heads_back(heads):
    q = np.random.default_rng(0).standard_normal((3, heads, 2)).astype(np.float32)
    for padding in paddings(heads):
        padded = padding.pad(q, axis=1, garbage=float("nan"))
        assert padded.shape == (3, padding.count, 2)
        assert (padding.unpad(padded) == q).all()
        extra = np.isnan(padded).any(axis=(0, 2)).sum()
        assert extra == (padding.count - heads if padding.rule == "garbage" else 0)


def test_nothing_is_above_the_largest_count():
    assert list(paddings(128)) == []


def test_a_rule_refuses_another_head_count():
    zero = next(iter(paddings(12)))
    with pytest.raises(ValueError, match="pad rule zero was made for 12 heads, the array has 5"):
        zero.pad(np.zeros((1, 5, 2), dtype=np.float32), axis=1, garbage=0.0)


def test_poison_is_nan_unless_the_contract_says_finite():
    assert np.isnan(poison_for(np.dtype(np.float32), "any"))
    assert poison_for(np.dtype(np.float32), "finite") == 1000.0
