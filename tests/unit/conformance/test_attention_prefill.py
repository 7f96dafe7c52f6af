"""mla_prefill: what its sweep holds, who passes it, and how a case is made smaller."""

import numpy as np
import pytest
import torch

from tests.measured import assert_measured
from tests.unit.conformance.sweeping import clauses, settings_of, sweep
from validate.conformance.engines.torch_attention import IMPLEMENTATIONS, eager_prefill
from validate.conformance.ops._decode_cases import HEADS
from validate.conformance.ops.mla_prefill import OPERATION
from validate.conformance.records import Effort

OURS = [one for one in IMPLEMENTATIONS if one.op == "mla_prefill"]
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
    assert values("queries") >= {"1", "2", "4", "8", "ragged"}
    assert values("batch") >= {1, 2, 3, 5}
    assert values("amplitude") == {1.0, 4.0, 16.0}
    assert values("dtype") == {"bfloat16", "float16", "float32", "float8_e4m3fn"}
    assert values("prefix") == values("causal") == values("scaled") == {False, True}
    assert values("source") == {"random", "captured"}
    assert len({case.id for case in CASES}) == len(CASES)
    assert all(case.inputs["q"].shape[2] != case.inputs["v"].shape[2] for case in CASES)


def test_rows_behind_the_last_key_hold_nan():
    for case in CASES:
        end = int(case.inputs["key_starts"][-1])
        for name in ("k", "v"):
            assert np.isnan(case.inputs[name][end:].astype(np.float64)).all()
            assert len(case.inputs[name]) > end


def test_grouped_heads_are_left_out_where_a_kernel_declares_equal_ones():
    kept = list(OPERATION.cases(Effort.QUICK, {**SETTINGS, "kv_heads": "equal"}))
    assert 0 < len(kept) < len(CASES)
    assert all(c.inputs["q"].shape[1] == c.inputs["k"].shape[1] for c in kept)


def test_k3_widths_are_192_and_128():
    for case in OPERATION.cases(Effort.QUICK, {**SETTINGS, "widths": "k3"}):
        assert case.inputs["q"].shape[2] == case.inputs["k"].shape[2] == 192
        assert case.inputs["v"].shape[2] == 128


def test_two_tokens_by_hand():
    # Row 0 sees key 0 alone; row 1 has scores 0 and ln 3: weights 1/4 and 3/4.
    ln3 = float(np.log(3.0))
    q = torch.ones(2, 4, 1)
    k = torch.tensor([0.0, ln3]).view(2, 1, 1).expand(2, 4, 1).contiguous()
    v = torch.tensor([[8.0], [4.0]]).view(2, 1, 1).expand(2, 4, 1).contiguous()
    starts = torch.tensor([0, 2], dtype=torch.int32)
    for implementation in OURS:
        out, lse = implementation.function(q, k, v, starts, starts, 1.0, True, 1.0, 1.0, 1.0)
        assert_measured(out[:, 0, 0].numpy(), [8.0, 5.0], atol=1e-5, rtol=0)
        assert_measured(lse[:, 0].exp().numpy(), [1.0, 4.0], atol=1e-5, rtol=0)


def test_keys_of_another_request_that_leak_are_a_breach_of_others():
    def leaks(q, k, v, query_starts, key_starts, *rest):
        out, lse = eager_prefill(q, k, v, query_starts, key_starts, *rest)
        return out + 0 * k[0].sum().to(out.dtype), lse

    assert clauses(sweep(OPERATION, _positional(leaks), cases=[CASES[0]])) == {"others", "heads"}


def _positional(function):
    names = (
        "q", "k", "v", "query_starts", "key_starts", "scale", "causal", "q_scale", "k_scale",
        "v_scale",
    )  # fmt: skip
    return lambda **given: function(*(given[name] for name in names))


def test_smaller_cases_are_smaller_and_still_judged():
    case = next(c for c in CASES if c.axes["batch"] == 5)
    small = list(OPERATION.shrink(case))
    assert {len(s.inputs["query_starts"]) - 1 for s in small} >= {2, 3}
    assert {s.inputs["q"].shape[1] for s in small} >= {4}
    assert sweep(OPERATION, eager_prefill, cases=small) == {}
