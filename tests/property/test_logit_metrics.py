"""Laws of the logits and greedy metrics: identity, order of prompts, shifts, strict JSON."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.fakes import FakeSide, make_pair, with_positions
from tests.logit_cases import LEVELS
from tests.measured import assert_measured
from validate.metrics import METRICS

NAMES = sorted(name for name in METRICS if name.startswith(("logits.", "greedy.")))
LAW = settings(max_examples=5, deadline=None)


def sides(seed, prompts, vocab=7, size=0.3):
    """Oracle, ref and cand logits with teacher-forced stream rows, and their greedy streams."""
    rng = np.random.default_rng(seed)
    truth = {
        f"p-{i}": rng.normal(scale=3, size=(int(rng.integers(2, 6)), vocab)) for i in range(prompts)
    }
    made = []
    for _ in range(2):
        tensors = with_positions({p: x + size * rng.normal(size=x.shape) for p, x in truth.items()})
        for p, x in truth.items():
            tensors[p]["stream.logits"] = x + size * rng.normal(size=x.shape)
        made.append(tensors)
    streams = [
        {p: [int(i) for i in t["stream.logits"].argmax(axis=1)] for p, t in tensors.items()}
        for tensors in made
    ]
    return with_positions(truth), made, streams


def pair_of(seed, prompts, *, order=None, shift=0.0, same=False):
    oracle, (ref, cand), (ref_streams, cand_streams) = sides(seed, prompts)
    if same:
        cand, cand_streams = ref, ref_streams
    names = list(ref) if order is None else [list(ref)[i] for i in order]
    moved = {
        p: {n: a + shift if n.endswith("logits") else a for n, a in cand[p].items()} for p in names
    }
    return make_pair(
        {p: ref[p] for p in names},
        moved,
        oracle=oracle,
        ref_streams=ref_streams,
        cand_streams=cand_streams,
        near_tie=0.5,
        repeats=(FakeSide("repeat", {p: ref[p] for p in names}, streams=ref_streams),),
    )


@pytest.mark.parametrize("name", NAMES)
@LAW
@given(seed=st.integers(0, 2**16), prompts=st.integers(1, 4))
def test_a_side_against_itself_is_exact(name, seed, prompts):
    found = METRICS[name](pair_of(seed, prompts, same=True), LEVELS)

    assert found.value == (1.0 if name == "logits.err_ratio" else 0.0)


@pytest.mark.parametrize("name", NAMES)
@LAW
@given(seed=st.integers(0, 2**16), order=st.permutations(range(4)))
def test_the_order_of_prompts_changes_nothing(name, seed, order):
    one, other = (
        METRICS[name](pair_of(seed, 4, order=given_order), LEVELS) for given_order in (None, order)
    )

    if one.value is None:
        assert (other.value, other.why_undefined) == (None, one.why_undefined)
    else:
        assert_measured(other.value, one.value, atol=1e-15, rtol=1e-12)
    assert (one.n, one.n_needed) == (other.n, other.n_needed)


@pytest.mark.parametrize("name", NAMES)
@LAW
@given(seed=st.integers(0, 2**16), shift=st.sampled_from([-40.0, 8.0]))
def test_a_shift_of_all_logits_changes_nothing(name, seed, shift):
    one, other = (METRICS[name](pair_of(seed, 3, shift=by), LEVELS) for by in (0.0, shift))

    if one.value is None:
        assert (other.value, other.why_undefined) == (None, one.why_undefined)
    else:
        assert_measured(other.value, one.value, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("name", NAMES)
@LAW
@given(seed=st.integers(0, 2**16), prompts=st.integers(1, 4))
def test_every_number_goes_into_strict_json(name, seed, prompts):
    found = METRICS[name](pair_of(seed, prompts), LEVELS)

    assert json.dumps(asdict(found), allow_nan=False)
    assert found.metric == name


@pytest.mark.parametrize("name", NAMES)
@LAW
@given(seed=st.integers(0, 2**16))
def test_limits_lie_around_the_value(name, seed):
    found = METRICS[name](pair_of(seed, 4), LEVELS)
    interval = found.interval

    if interval is not None and found.value is not None:
        assert interval.low is None or interval.low <= found.value * (1 + 1e-12)
        assert interval.high is None or found.value <= interval.high * (1 + 1e-12)
