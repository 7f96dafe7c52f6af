"""What one side alone gives is computed once in all pairs that share it."""

import dataclasses

import numpy as np

from tests.fakes import FakeSide, make_pair
from tests.layers import prefill

SIDE = {"p-0": prefill({"kda.0.out": [[[6.0, 9.0]]]})}


def test_once_a_side_keeps_by_side_key_weights_and_config():
    calls = []

    def make(name):
        def made():
            calls.append(name)
            return name

        return made

    first = make_pair(FakeSide("cuda", SIDE), FakeSide("rocm", SIDE), weights={}, config={})
    other = dataclasses.replace(first, cand=first.ref, _cache={})

    assert first.once_a_side(first.ref, "k", make("ref")) == "ref"
    assert first.once_a_side(first.cand, "k", make("cand")) == "cand"
    assert other.once_a_side(other.cand, "k", make("never")) == "ref"
    assert other.once_a_side(other.ref, "l", make("another key")) == "another key"
    apart = dataclasses.replace(first, weights={"w": np.ones(1)})
    assert apart.once_a_side(apart.ref, "k", make("other weights")) == "other weights"
    assert calls == ["ref", "cand", "another key", "other weights"]


def test_pairs_that_share_nothing_compute_anew():
    first, second = make_pair(SIDE, SIDE), make_pair(SIDE, SIDE)
    first.once_a_side(first.ref, "k", lambda: 1)

    assert second.once_a_side(first.ref, "k", lambda: 2) == 2
