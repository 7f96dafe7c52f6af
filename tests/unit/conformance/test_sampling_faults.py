"""Every planted fault of filters, draws, verifiers and formats is caught; no control is flagged."""

import pytest

from tests.unit.conformance.sweeping import clauses, settings_of, sweep
from validate.conformance.registry import OPERATIONS
from validate.faults.operations_sampling import CONTROLS, FAULTS

EXPECTED = {
    ("top_k_renorm_prob", "SA-04"): "kept-set",
    ("top_k_renorm_prob", "SA-08"): "kept-set",
    ("top_k_renorm_prob", "SA-09"): "kept-set",
    ("top_p_renorm_prob", "SA-02"): "returns",
    ("top_p_renorm_prob", "SA-06"): "kept-set",
    ("top_p_renorm_prob", "SA-14"): "kept-set",
    ("top_k_renorm_prob", "VX-120"): "kept-set",
    ("top_p_renorm_prob", "VX-121"): "kept-set",
    ("sample", "VX-122"): "draw",
    ("verify_chain", "VX-123"): "draw",
    ("min_p", "VX-80"): "inputs-unchanged",
    ("sample", "SA-05"): "draw",
    ("sample", "SA-12"): "draw",
    ("sample", "SA-13"): "replay",
    ("sample", "SA-15"): "draw",
    ("sample", "VX-81"): "law",
    ("sample", "VX-82"): "independent",
    ("verify_chain", "SA-01"): "law",
    ("verify_chain", "SP-09"): "accepted",
    ("verify_chain", "VX-83"): "support",
    ("verify_chain", "VX-84"): "law",
    ("verify_chain", "VX-85"): "law",
    ("verify_chain", "VX-86"): "accepted",
    ("verify_exact_match", "SP-07"): "law",
    ("verify_greedy", "SP-10"): "argmax",
    ("verify_greedy", "SA-10"): "range",
    ("verify_target_only", "VX-87"): "law",
    ("verify_target_only", "VX-88"): "accepted",
    ("float8_e4m3fnuz", "QU-01"): "scale",
    ("float8_e4m3fn", "QU-02"): "encoded",
    ("float8_e4m3fn", "QU-03"): "scale",
    ("float8_e4m3fn", "QU-08"): "encoded",
    ("float8_e4m3fn", "QU-12"): "decoded",
    ("mxfp4", "QU-09"): "elements",
    ("mxfp4", "QU-10"): "elements",
    ("mxfp4", "QU-11"): "decoded",
}
"""A clause that each fault breaks, by its public signature."""


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{one.op}-{one.id}" for one in FAULTS])
def test_fault_is_caught_by_the_clause_of_its_signature(fault):
    """The sweep goes on until that clause is broken; the selftest counts every point."""
    operation, make = OPERATIONS[fault.op], fault.make()
    for case in operation.cases(fault.effort, settings_of(operation, **fault.settings)):
        found = sweep(operation, make, cases=[case], **fault.settings)
        if EXPECTED[fault.op, fault.id] in clauses(found):
            return
    pytest.fail(f"{EXPECTED[fault.op, fault.id]} is broken at no sweep point")


@pytest.mark.parametrize("control", CONTROLS, ids=[f"{one.op}-{one.id}" for one in CONTROLS])
def test_control_is_not_flagged(control):
    assert sweep(OPERATIONS[control.op], control.make(), **control.settings) == {}


def test_ids_are_unique_within_an_operation_and_every_operation_has_a_fault():
    named = [(one.op, one.id) for one in FAULTS] + [(one.op, one.id) for one in CONTROLS]
    assert len(set(named)) == len(named)
    assert {one.op for one in FAULTS} == {one.op for one in CONTROLS} | {
        "top_p_renorm_prob",
        "min_p",
        "verify_target_only",
        "float8_e4m3fnuz",
    }


def test_fnuz_read_as_fn_is_told_as_a_factor_of_two():
    """QU-01: alpha = 2.00 on values, the sign that a cosine cannot see."""
    fault = next(one for one in FAULTS if one.id == "QU-01")
    found = sweep(OPERATIONS[fault.op], fault.make())
    assert all("is 2 times what it has to be" in bs[0].what for bs in found.values())


def test_scratch_overrun_needs_a_row_without_top_k():
    """SA-04: rows of k <= 50 alone are exact."""
    fault = next(one for one in FAULTS if one.id == "SA-04")
    found = sweep(OPERATIONS[fault.op], fault.make(), ties="exactly_k")
    assert not any(case.endswith(("-2,5,7", "-all 4")) for case in found)
    assert any(case.endswith("-50,V,8") for case in found)
