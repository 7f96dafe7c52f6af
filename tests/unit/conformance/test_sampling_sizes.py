"""Sizes that a kernel may get wrong alone: many rows, long kept sets, tails, coarse parameters.

Each mutant is our implementation with one size or one parameter mistaken; the points that
were made for these sizes have to see it, and see nothing in ours (the other tests).
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pytest
import torch

from tests.unit.conformance.sweeping import settings_of, sweep
from validate.conformance.engines import _torch_verify as verify
from validate.conformance.engines.torch_sampling import (
    divided,
    invert,
    per_row,
    sample,
    sorted_min_p,
    sorted_top_k,
    sorted_top_p,
)
from validate.conformance.ops._filter_cases import CROWD
from validate.conformance.records import Effort
from validate.conformance.registry import OPERATIONS

FILTERS: Mapping[str, Callable[..., Any]] = {
    "top_k_renorm_prob": lambda probs, top_k: sorted_top_k(probs, top_k).to(probs.dtype),
    "top_p_renorm_prob": lambda probs, top_p: sorted_top_p(probs, top_p).to(probs.dtype),
    "min_p": lambda probs, min_p: sorted_min_p(probs, min_p).to(probs.dtype),
}
VERIFIERS: Mapping[str, Callable[..., Any]] = {
    "verify_chain": verify.verify_chain,
    "verify_exact_match": verify.verify_exact_match,
    "verify_greedy": verify.verify_greedy,
    "verify_target_only": verify.verify_target_only,
}
PARAMETER = {"top_k_renorm_prob": "top_k", "top_p_renorm_prob": "top_p", "min_p": "min_p"}


def sized(case):
    """Is this a point of a size of its own?"""
    axes = case.axes
    rows = axes.get("rows", axes.get("batch"))
    return (
        rows == CROWD
        or axes["vocab"] in (2047, 2049, 8192, 32_001)
        or str(axes["kind"]).startswith(("gentle", "tail", "close"))
        or (axes["vocab"] == 163_840 and axes["kind"] == "edges")
    )


@cache
def points(op):
    operation = OPERATIONS[op]
    found = operation.cases(Effort.QUICK, settings_of(operation))
    return tuple(case for case in found if sized(case))


def seen(op, mutant, *, vocab=None):
    cases = (case for case in points(op) if vocab is None or case.axes["vocab"] == vocab)
    return bool(sweep(OPERATIONS[op], mutant, cases=cases, enough=1))


def modulo(size):
    """Rows from ``size`` on read what stands ``size`` rows earlier."""
    return lambda value: value[torch.arange(len(value), device=value.device) % size]


def first_beyond(size):
    """Rows from ``size`` on read row 0's parameter."""

    def mistaken(value):
        row = torch.arange(len(value), device=value.device)
        return value[torch.where(row < size, row, 0)]

    return mistaken


@pytest.mark.parametrize("op", FILTERS)
@pytest.mark.parametrize("size", [5, 8, 64, 128])
@pytest.mark.parametrize("mistake", [modulo, first_beyond])
def test_parameters_of_rows_from_some_row_on(op, size, mistake):
    change = mistake(size)

    def mutant(probs, **parameter):
        value = parameter[PARAMETER[op]]
        if isinstance(value, torch.Tensor) and len(value):
            value = change(value)
        return FILTERS[op](probs, value)

    assert seen(op, mutant)


@pytest.mark.parametrize("name", ["top_k", "top_p", "min_p", "uniforms"])
@pytest.mark.parametrize("size", [64])
def test_parameters_of_sampled_rows_from_some_row_on(name, size):
    def mutant(**inputs):
        return sample(**{**inputs, name: modulo(size)(inputs[name])})

    assert seen("sample", mutant)


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("verify_chain", "uniform_final"),
        ("verify_chain", "uniforms"),
        ("verify_chain", "draft_probs"),
        ("verify_target_only", "uniform_final"),
        ("verify_target_only", "uniforms"),
        ("verify_exact_match", "uniforms"),
        ("verify_greedy", "draft_len"),
    ],
)
@pytest.mark.parametrize("size", [64, 128])
def test_requests_from_some_row_on(op, name, size):
    def mutant(**inputs):
        return VERIFIERS[op](**{**inputs, name: modulo(size)(inputs[name])})

    assert seen(op, mutant)


def k_mutants():
    def near(k, vocab):
        return torch.where(k == vocab - 1, vocab, k)

    def wrapped(k, vocab):
        return torch.where((k > vocab) & (k < 2**30), k % vocab, k)

    def sixteen(k, vocab):
        return torch.where(k < 2**30, k & 0xFFFF, k).clamp(max=2**31 - 1)

    def largest(k, vocab):
        return torch.where(k == 2**31 - 1, 1, k)

    return [near, wrapped, sixteen, largest]


@pytest.mark.parametrize("change", k_mutants(), ids=lambda change: change.__name__)
def test_k_about_the_vocabulary_and_beyond(change):
    def mutant(probs, top_k):
        k = per_row(top_k, probs, torch.int64).squeeze(1)
        return FILTERS["top_k_renorm_prob"](probs, change(k, probs.shape[1]))

    assert seen("top_k_renorm_prob", mutant)


@pytest.mark.parametrize("op", FILTERS)
@pytest.mark.parametrize("only", [2049, 32_001])
def test_a_tail_beyond_whole_blocks_is_left_out(op, only):
    def mutant(probs, **parameter):
        out = FILTERS[op](probs, parameter[PARAMETER[op]])
        if probs.shape[1] == only:
            out[:, only // 1024 * 1024 :] = 0.0
            out = (out.float() / out.float().sum(1, keepdim=True)).to(probs.dtype)
        return out

    assert seen(op, mutant, vocab=only)


@pytest.mark.parametrize("op", ["top_p_renorm_prob", "min_p"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_parameter_held_in_half(op, dtype):
    def mutant(probs, **parameter):
        value = per_row(parameter[PARAMETER[op]], probs, torch.float32).squeeze(1)
        return FILTERS[op](probs, value.to(dtype).float())

    assert seen(op, mutant)


def test_small_p_is_raised():
    def mutant(probs, top_p):
        p = per_row(top_p, probs, torch.float32).squeeze(1)
        return FILTERS["top_p_renorm_prob"](probs, torch.where(p > 0, p.clamp(min=0.05), p))

    assert seen("top_p_renorm_prob", mutant)


@pytest.mark.parametrize("op", FILTERS)
@pytest.mark.parametrize("cap", [16_384])
def test_a_kept_set_is_capped(op, cap):
    def mutant(probs, **parameter):
        out = FILTERS[op](probs, parameter[PARAMETER[op]])
        k = torch.full((len(probs),), cap)
        return divided(probs.float(), (out > 0) & (sorted_top_k(probs, k) > 0)).to(probs.dtype)

    assert seen(op, mutant, vocab=32_001)


@pytest.mark.parametrize("cap", [100, 1000, 1024, 4096])
def test_sampled_k_is_capped(cap):
    def mutant(probs, top_k, top_p, min_p, uniforms):
        k = torch.where((top_k > cap) & (top_k < probs.shape[1]), cap, top_k)
        return sample(probs, k, top_p, min_p, uniforms=uniforms)

    assert seen("sample", mutant)


@pytest.mark.parametrize("last", [2**16 - 1, 2**17 - 1, 163_837, 163_838])
def test_sampled_ids_are_clamped(last):
    def mutant(**inputs):
        return sample(**inputs).clamp(max=last)

    assert seen("sample", mutant)


def test_a_coin_near_one_is_missed():
    def mutant(uniforms, **inputs):
        return sample(**inputs, uniforms=uniforms.clamp(max=0.87))

    assert seen("sample", mutant)


def without_last(weights, coins):
    weights = weights.clone()
    weights[:, -1] = 0.0
    return invert(weights, coins)


@pytest.mark.parametrize("op", ["verify_chain", "verify_exact_match", "verify_target_only"])
def test_last_target_id_is_left_out_of_the_draw(op, monkeypatch):
    monkeypatch.setattr(verify, "invert_last", without_last)
    assert seen(op, VERIFIERS[op])


def test_last_target_id_is_left_out_of_the_argmax():
    def mutant(draft_ids, target_logits, vocab, draft_len):
        return verify.verify_greedy(draft_ids, target_logits, vocab - 1, draft_len)

    assert seen("verify_greedy", mutant)


@pytest.mark.parametrize("op", VERIFIERS)
def test_five_drafts_count_as_four(op):
    def mutant(**inputs):
        five = inputs["draft_ids"].shape[1] == 5
        if not five:
            return VERIFIERS[op](**inputs)
        inputs["draft_ids"] = inputs["draft_ids"].clone()
        inputs["draft_ids"][:, 4] = (inputs["draft_ids"][:, 4] + 1) % 37
        return VERIFIERS[op](**inputs)

    assert seen(op, mutant)


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("verify_chain", "uniforms"),
        ("verify_chain", "uniform_final"),
        ("verify_chain", "draft_probs"),
        ("verify_target_only", "uniforms"),
        ("verify_target_only", "uniform_final"),
        ("verify_exact_match", "uniforms"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_coins_held_in_half(op, name, dtype):
    def mutant(**inputs):
        coarse = inputs[name].to(dtype).float().clamp(max=1 - 2**-24)
        return VERIFIERS[op](**{**inputs, name: coarse})

    assert seen(op, mutant)


@pytest.mark.parametrize("op", [*FILTERS, "sample", *VERIFIERS])
def test_there_are_points_of_these_sizes(op):
    assert any(case.axes.get("rows", case.axes.get("batch")) == CROWD for case in points(op))
