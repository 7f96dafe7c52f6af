"""Every planted attention fault is caught by the quick sweep; no control is flagged."""

import pytest

from tests.unit.conformance.sweeping import clauses, settings_of, sweep
from validate.conformance.ops import lse_merge, mla_decode, mla_prefill
from validate.conformance.records import Effort
from validate.faults.operations_attention import CONTROLS, FAULTS

OPERATIONS = {
    module.OPERATION.contract.op: module.OPERATION
    for module in (lse_merge, mla_decode, mla_prefill)
}
QUICK = list(mla_decode.OPERATION.cases(Effort.QUICK, settings_of(mla_decode.OPERATION)))
EXPECTED = {
    ("mla_decode", "HD-04"): "finite",
    ("mla_decode", "VX-31"): "lse",
    ("mla_decode", "VX-32"): "finite",
    ("mla_decode", "QU-06"): "out",
    ("mla_prefill", "LC-08"): "out",
    ("mla_prefill", "TV-13"): "inputs-unchanged",
    ("lse_merge", "LC-02"): "out",
}
"""The clause that a fault breaks, where there is no second that may show it first."""


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{one.op}-{one.id}" for one in FAULTS])
def test_fault_is_caught(fault):
    operation = OPERATIONS[fault.op]
    # The hazards stand last in the sweep and are tried first.
    cases = list(operation.cases(Effort.QUICK, settings_of(operation, **fault.settings)))[::-1]
    found = sweep(operation, fault.make(), cases=cases, enough=1, **fault.settings)
    assert found, f"{fault.op} {fault.id}: no sweep point catches it"
    expected = EXPECTED.get((fault.op, fault.id))
    assert expected is None or expected in clauses(found)


@pytest.mark.parametrize("control", CONTROLS, ids=[f"{one.op}-{one.id}" for one in CONTROLS])
def test_control_is_not_flagged(control):
    operation = OPERATIONS[control.op]
    cases = list(operation.cases(Effort.QUICK, settings_of(operation)))[::4]
    assert sweep(operation, control.make(), cases=cases, **control.settings) == {}


def test_ids_are_unique_within_an_operation_and_there_are_enough():
    named = [(one.op, one.id) for one in FAULTS] + [(one.op, one.id) for one in CONTROLS]
    assert len(set(named)) == len(named)
    assert len(FAULTS) >= 12


def test_the_signature_of_a_fault_is_that_of_its_source():
    """HD-04 loses the last heads % 16; VX-02 spares row 0; HD-10 spares single queries."""
    by_id = {one.id: one for one in FAULTS if one.op == "mla_decode"}

    def all_of(name):
        wanted = [case for case in QUICK if case.axes["heads"] in (8, 12, 24, 48)][:8]
        return sweep(OPERATIONS["mla_decode"], by_id[name].make(), cases=wanted)

    hd_04 = all_of("HD-04")
    assert {case.split("-")[0] for case in hd_04} == {"H24"}
    assert all(b.wrong["head"] == tuple(range(16, 24)) for bs in hd_04.values() for b in bs)
    assert not any("-Q1,1-" in case for case in all_of("HD-10"))
    first = next(bs for case, bs in all_of("VX-02").items() if case.startswith("H12-Q1,1-"))
    assert all(breach.wrong["row"] == (1,) for breach in first if breach.wrong)
