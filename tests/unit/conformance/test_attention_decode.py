"""mla_decode: what its sweep holds, who passes it, and how a case is made smaller."""

import numpy as np
import pytest
import torch

from tests.measured import assert_measured
from tests.unit.conformance.sweeping import clauses, settings_of, sweep
from validate.conformance.engines.torch_attention import IMPLEMENTATIONS, eager_decode
from validate.conformance.engines.triton_attention import rows_of_requests
from validate.conformance.ops._decode_cases import HEADS, Point, _build
from validate.conformance.ops.mla_decode import OPERATION
from validate.conformance.records import Effort

OURS = [one for one in IMPLEMENTATIONS if one.op == "mla_decode"]
SETTINGS = settings_of(OPERATION)
CASES = list(OPERATION.cases(Effort.QUICK, SETTINGS))


@pytest.mark.parametrize("one", OURS, ids=[one.name for one in OURS])
def test_ours_pass_the_quick_sweep(one):
    # Variants share their code with torch:split or torch:blocked; the selftest runs every point.
    some = CASES if one.name in ("torch:eager", "torch:sdpa") else CASES[1::3]
    assert sweep(OPERATION, one.function, cases=some) == {}


def test_the_quick_sweep_holds_every_axis_value():
    def values(name):
        return {case.axes[name] for case in CASES}

    assert values("heads") >= set(HEADS)
    assert values("queries") == {"1", "2", "4", "8", "ragged"}
    assert values("batch") >= {1, 2, 3, 5}
    assert values("amplitude") == {1.0, 4.0, 16.0, 64.0}
    assert values("page") == {1, 16, 64}
    assert values("splits") >= {1, 2, 3, 4, 8, 16, 32, 64}
    assert values("latent") >= {16, 512}
    assert {0, 1} <= values("shortest")
    assert {63, 64, 65, 127, 128, 129, 255, 256, 257} <= {
        int(n) for case in CASES for n in case.inputs["lengths"]
    }
    assert {0.25, 0.3} <= values("kv_scale")
    assert values("source") == {"random", "captured"}
    assert len({case.id for case in CASES}) == len(CASES)


def test_slots_that_are_no_key_hold_nan():
    case = CASES[3]
    page, length = case.inputs["kv_cache"].shape[1], int(case.inputs["lengths"][0])
    cache, own = case.inputs["kv_cache"], case.inputs["block_table"][0]
    assert np.isfinite(cache[own[0]].astype(np.float64)).all()
    last = cache[own[length // page]]
    assert np.isfinite(last[: length % page].astype(np.float64)).all()
    assert np.isnan(last[length % page :].astype(np.float64)).all()
    assert np.isnan(cache[0].astype(np.float64)).all()


def test_far_pages_pass_what_a_narrow_integer_holds():
    (case,) = [case for case in CASES if case.axes["far"] and case.axes["page"] == 16]
    width = case.inputs["kv_cache"].shape[1] * case.inputs["kv_cache"].shape[2]
    used = case.inputs["block_table"][case.inputs["block_table"] > 0]
    assert used.min() * width > 2**15


def test_the_full_sweep_crosses_2_to_the_31():
    case = list(OPERATION.cases(Effort.FULL, SETTINGS))[-1]
    cache = case.inputs["kv_cache"]
    assert cache.size > 2**31
    used = case.inputs["block_table"][0][:5].astype(np.int64)
    assert (used * cache.shape[1] * cache.shape[2]).max() > 2**31


def test_k3_widths_are_512_and_64():
    for case in OPERATION.cases(Effort.QUICK, {**SETTINGS, "widths": "k3"}):
        assert case.inputs["q"].shape[2] == 576
        assert case.inputs["latent"] == 512


def test_one_key_gives_its_own_latent_and_its_score_as_lse():
    # Closed form: a single key has weight 1 and LSE = scale * q·k = 0.5 * (1*2 + 3*4).
    q = torch.tensor([[[1.0, 3.0]]])
    cache = torch.tensor([[[2.0, 4.0]]])
    one = torch.zeros((1, 1), dtype=torch.int32)
    starts = torch.tensor([0, 1], dtype=torch.int32)
    lengths = torch.tensor([1], dtype=torch.int32)
    for implementation in OURS:
        wide = q.expand(-1, 4, -1).contiguous()
        out, lse = implementation.function(wide, cache, one, starts, lengths, 1, 0.5, 1, 1.0)
        assert_measured(out[0, :, 0].numpy(), [2.0] * 4, atol=0, rtol=0)
        assert_measured(lse[0].numpy(), [7.0] * 4, atol=1e-6, rtol=0)


def test_rows_of_requests_gives_the_keys_of_each_query():
    # Two queries over five keys see 4 and 5; one query over none sees none.
    starts = torch.tensor([0, 2, 3, 4], dtype=torch.int32)
    lengths = torch.tensor([5, 0, 7], dtype=torch.int32)
    request, seen = rows_of_requests(starts, lengths)
    assert request.tolist() == [0, 0, 1, 2]
    assert seen.tolist() == [4, 5, 0, 7]


def test_a_slot_poisoned_with_a_finite_number_is_enough_for_a_kernel_that_says_so():
    from validate.faults.operations_decode import FAULTS

    (fault,) = [one for one in FAULTS if one.id == "VX-32"]
    assert clauses(sweep(OPERATION, fault.make())) == {"finite"}
    assert sweep(OPERATION, fault.make(), cases=_finite(), slots="finite", padding="values") == {}


def _finite():
    yield _build(Point(heads=12), "finite")


def test_repeats_that_differ_in_a_bit_are_a_breach_unless_declared():
    calls = []

    def drifts(*args, **kwargs):
        out, lse = eager_decode(*args, **kwargs)
        calls.append(1)
        return out, torch.nextafter(lse, torch.full_like(lse, torch.inf)) if len(calls) % 3 else lse

    found = sweep(OPERATION, drifts, cases=[CASES[3]], padding="values")
    assert clauses(found) == {"repeat"}
    assert sweep(OPERATION, drifts, cases=[CASES[3]], padding="values", repeat="values") == {}


def test_smaller_cases_are_smaller_and_still_judged():
    case = next(c for c in CASES if c.axes["batch"] == 3)
    small = list(OPERATION.shrink(case))
    assert {len(s.inputs["lengths"]) for s in small} >= {1, 2}
    assert {s.inputs["q"].shape[1] for s in small} >= {6}
    assert all(s.inputs["q"].shape[0] == s.inputs["query_starts"][-1] for s in small)
    assert sweep(OPERATION, eager_decode, cases=small) == {}
