"""lse_merge: what its sweep holds and who passes it."""

import numpy as np
import torch

from tests.measured import assert_measured
from tests.unit.conformance.sweeping import clauses, settings_of, sweep
from validate.conformance.engines.torch_attention import eager_merge
from validate.conformance.ops._decode_cases import HEADS
from validate.conformance.ops.lse_merge import OPERATION
from validate.conformance.records import Effort

CASES = list(OPERATION.cases(Effort.QUICK, settings_of(OPERATION)))


def test_ours_passes_the_quick_sweep():
    assert sweep(OPERATION, eager_merge) == {}


def test_the_quick_sweep_holds_every_axis_value():
    assert {case.axes["heads"] for case in CASES} >= set(HEADS)
    assert {case.axes["rows"] for case in CASES} >= {1, 2, 3, 5}
    assert {case.axes["parts"] for case in CASES} >= {1, 2, 3, 8, 16}
    assert {case.axes["empty"] for case in CASES} == {"none", "some", "row"}
    assert {case.axes["level"] for case in CASES} >= {-900.0, 900.0}


def test_weights_one_and_three_of_four_by_hand():
    outs = torch.tensor([8.0, 4.0]).view(2, 1, 1, 1)
    lses = torch.tensor([0.0, float(np.log(3.0))]).view(2, 1, 1)
    out, lse = eager_merge(outs, lses)
    assert_measured(out.item(), 5.0, atol=1e-6, rtol=0)
    assert_measured(lse.exp().item(), 4.0, atol=1e-6, rtol=0)


def test_a_nan_lse_that_becomes_a_number_is_a_breach():
    def cleans(outs, lses):
        return eager_merge(outs, lses.masked_fill(lses.isnan(), 0.0))

    assert clauses(sweep(OPERATION, cleans)) == {"nan"}


def test_a_merge_without_the_shift_overflows():
    def plain(outs, lses):
        weights = lses.exp()
        counted = outs.float().masked_fill((lses == -torch.inf).unsqueeze(-1), 0.0)
        total = weights.sum(0)
        out = (weights.unsqueeze(-1) * counted).sum(0) / total.masked_fill(total == 0, 1.0)[
            ..., None
        ]
        return out.to(outs.dtype), total.log()

    found = sweep(OPERATION, plain)
    assert any("lse900" in case for case in found)
    assert any("lse-900" in case for case in found)
    assert not any("lse5+-1-" in case for case in found)


def test_smaller_cases_are_still_judged():
    case = next(c for c in CASES if c.axes["parts"] == 8)
    small = list(OPERATION.shrink(case))
    assert {s.inputs["outs"].shape[0] for s in small} >= {4, 8}
    assert sweep(OPERATION, eager_merge, cases=small) == {}
