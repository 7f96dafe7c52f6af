"""Contracts of the verifiers: ours keep them, and what each clause says by hand."""

import numpy as np
import pytest

from tests.unit.conformance.sweeping import clauses, settings_of, sweep
from validate.conformance.engines.torch_sampling import IMPLEMENTATIONS
from validate.conformance.ops import (
    verify_chain,
    verify_exact_match,
    verify_greedy,
    verify_target_only,
)
from validate.conformance.ops.verify_chain import forced_by
from validate.conformance.records import Case, Effort

MODULES = (verify_chain, verify_target_only, verify_exact_match, verify_greedy)
BY_OP = {module.OPERATION.contract.op: module.OPERATION for module in MODULES}
CHAIN, GREEDY = BY_OP["verify_chain"], BY_OP["verify_greedy"]
OURS = [one for one in IMPLEMENTATIONS if one.op in BY_OP]


@pytest.mark.parametrize("one", OURS, ids=[f"{one.op}-{one.name}" for one in OURS])
def test_ours_keep_the_contract(one):
    assert sweep(BY_OP[one.op], one.function, **one.settings) == {}


def chain_case(u, final, *, kind="edges"):
    """q = (1/2, 1/4, 1/4, 0), p = (1/4, 0, 1/4, 1/2), bonus (1/2, 0, 1/4, 1/4); draft 0."""
    inputs = {
        "draft_ids": np.array([[0]]),
        "draft_probs": np.array([[[0.5, 0.25, 0.25, 0.0]]], np.float32),
        "target_probs": np.array([[[0.25, 0.0, 0.25, 0.5], [0.5, 0.0, 0.25, 0.25]]], np.float32),
        "uniforms": np.array([[u]], np.float32),
        "uniform_final": np.array([final], np.float32),
    }
    return Case(id="hand", axes={"kind": kind}, inputs=inputs)


def chain_breaches(case, accepted, ids):
    out = {"accepted": np.array([accepted]), "ids": np.array([ids])}
    return [b.clause for b in CHAIN.check(case, lambda _: out, settings_of(CHAIN))]


@pytest.mark.parametrize(
    ("u", "final", "accepted", "ids", "expected"),
    [
        (0.4, 0.0, 1, [0, 0], []),
        (0.4, 0.5, 1, [0, 2], []),  # the edge at 1/2 belongs to the next id with weight
        (0.4, 0.5, 1, [0, 0], ["draw"]),
        (0.4, 0.5, 1, [0, 1], ["support"]),
        (0.4, 0.0, 0, [0, -1], ["accepted"]),
        (0.5, 0.0, 0, [3, -1], []),  # 1/2 * 1/2 = 1/4 is not smaller: rejected
        (0.5, 0.0, 1, [0, 0], ["accepted"]),
        (0.5, 0.0, 0, [0, -1], ["support"]),  # the residual has id 3 alone
        (0.5, 0.0, 0, [3, 3], ["emitted"]),
        (0.4, 0.0, 1, [2, 0], ["emitted"]),
        (0.4, 0.0, 1, [0, 4], ["range"]),
        (0.4, 0.0, 2, [0, 0], ["accepted"]),
        (0.4, 0.0, -1, [0, 0], ["accepted"]),
    ],
)
def test_chain_by_hand(u, final, accepted, ids, expected):
    assert chain_breaches(chain_case(u, final), accepted, ids) == expected


def test_forced_decisions():
    """Equal and exact in float32 is not free; a rounding away is; a coin of 0 against 0 rejects."""
    near = 0.3 * float(np.float32(0.7))
    left = np.array([0.25, 0.2, 0.3, near, 0.0, 0.0])
    right = np.array([0.25, 0.3, 0.2, float(np.float32(near)), 0.0, 1e-30])
    assert forced_by(left, right).tolist() == [-1, 1, -1, 0, -1, 1]


def test_law_is_enumerated_and_sees_a_bonus_from_another_row():
    law = next(
        case for case in CHAIN.cases(Effort.QUICK, settings_of(CHAIN)) if case.axes["kind"] == "law"
    )
    ours = next(one for one in OURS if one.op == "verify_chain")
    swapped = law.inputs | {"target_probs": law.inputs["target_probs"][:, [0, 1, 0]]}

    def call(inputs):
        accepted, ids = ours.function(
            **{
                name: __import__("torch").from_numpy(value.copy())
                for name, value in swapped.items()
            }
        )
        return {"accepted": accepted.numpy(), "ids": ids.numpy()}

    breaches = CHAIN.check(law, call, settings_of(CHAIN))
    assert [breach.clause for breach in breaches] == ["law"]
    assert breaches[0].what.startswith("bonus id: ids")


def test_crowd_of_one_seed_is_judged_by_chi_square():
    """random=call_seed: coins of the implementation's own; ours with a generator keeps the law."""
    import torch

    ours = next(one for one in OURS if one.op == "verify_chain").function

    def seeded(draft_ids, draft_probs, target_probs, seed):
        generator = torch.Generator().manual_seed(seed)
        u = torch.rand(draft_ids.shape, generator=generator)
        final = torch.rand(len(draft_ids), generator=generator)
        return ours(draft_ids, draft_probs, target_probs, u, final)

    def same_coin(draft_ids, draft_probs, target_probs, seed):
        generator = torch.Generator().manual_seed(seed)
        u = torch.rand(draft_ids.shape, generator=generator)
        return ours(draft_ids, draft_probs, target_probs, u, u[:, 0].contiguous())

    assert sweep(CHAIN, seeded, random="call_seed") == {}
    # The final coin is the first: given a rejection it is large, and the draw is not its law.
    assert "law" in clauses(sweep(CHAIN, same_coin, random="call_seed"))


def greedy_case(**changed):
    logits = np.full((1, 3, 6), -9.0, np.float32)
    logits[0, [0, 1, 2], [3, 1, 2]] = -1.0
    logits[0, 2, 3] = -1.0  # a tie in the last row
    logits[:, :, 4:] = 0.0
    inputs = {
        "draft_ids": np.array([[3, 1]]),
        "target_logits": logits,
        "vocab": 4,
        "draft_len": np.array([2]),
    }
    return Case(id="hand", axes={}, inputs=inputs | changed)


@pytest.mark.parametrize(
    ("accepted", "ids", "ties", "expected"),
    [
        (2, [3, 1, 2], "lowest", []),
        (2, [3, 1, 3], "lowest", ["ties"]),
        (2, [3, 1, 3], "any", []),
        (2, [3, 1, 0], "any", ["argmax"]),
        (2, [3, 1, 4], "any", ["range"]),  # a padding column
        (1, [3, 1, -1], "any", ["accepted"]),  # the draft is the argmax
        (3, [3, 1, 2], "any", ["accepted"]),
    ],
)
def test_greedy_by_hand(accepted, ids, ties, expected):
    out = {"accepted": np.array([accepted]), "ids": np.array([ids])}
    breaches = GREEDY.check(greedy_case(), lambda _: out, settings_of(GREEDY, ties=ties))
    assert [breach.clause for breach in breaches] == expected


def test_greedy_stops_at_the_length():
    out = {"accepted": np.array([1]), "ids": np.array([[3, 1, -1]])}
    case = greedy_case(draft_len=np.array([1]))
    assert GREEDY.check(case, lambda _: out, settings_of(GREEDY)) == ()


def test_target_only_accepts_at_equality():
    operation = BY_OP["verify_target_only"]
    edges = next(iter(operation.cases(Effort.QUICK, settings_of(operation))))
    assert edges.axes["kind"] == "edges"
    # request 0: u = p = 1/4; request 1: one float32 step more
    assert edges.inputs["uniforms"][:2, 0].tolist() == [
        0.25,
        float(np.nextafter(np.float32(0.25), 1)),
    ]


@pytest.mark.parametrize("operation", BY_OP.values(), ids=BY_OP)
def test_a_request_of_nan_moves_no_other_and_stays_in_range(operation):
    settings = settings_of(operation)
    cases = [
        case
        for case in operation.cases(Effort.QUICK, settings)
        if case.axes["hazard"] == "nan-request"
    ]
    assert cases
    ours = next(one for one in OURS if one.op == operation.contract.op)

    def beyond(**inputs):
        accepted, ids = ours.function(**inputs)
        name = "target_logits" if "target_logits" in inputs else "target_probs"
        damaged = inputs[name][:, 0, :1].isnan().squeeze(1)
        ids[damaged, accepted[damaged]] = 10**6  # what a NaN row once gave: id = vocab
        return accepted, ids

    assert clauses(sweep(operation, beyond, cases=cases)) == {"range"}


@pytest.mark.parametrize("operation", BY_OP.values(), ids=BY_OP)
def test_ids_of_sweep_points_are_unique_and_shrinking_keeps_requests_whole(operation):
    cases = list(operation.cases(Effort.QUICK, settings_of(operation)))
    assert len({case.id for case in cases}) == len(cases)
    several = next(
        case for case in cases if len(case.inputs["draft_ids"]) == 3 and case.axes["kind"] != "law"
    )
    smaller = list(operation.shrink(several))
    assert {len(one.inputs["draft_ids"]) for one in smaller} == {1, 2}
