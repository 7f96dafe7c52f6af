"""Every planted fault of the linear operations is caught by the quick sweep; no control is flagged."""

import importlib

import pytest

from tests.unit.conformance.sweeping import clauses, settings_of, sweep
from validate.conformance.records import Effort
from validate.faults.operations_linear import CONTROLS, FAULTS

OPERATIONS = {
    op: importlib.import_module(f"validate.conformance.ops.{op}").OPERATION
    for op in {one.op for one in FAULTS} | {one.op for one in CONTROLS}
}
EXPECTED = {
    ("kda_chunk", "LA-07"): "finite",
    ("kda_chunk", "VX-52"): "finite",
    ("kda_recurrent", "VX-59"): "finite",
    ("attn_res", "ND-13"): "inputs-unchanged",
    ("attn_res", "VX-67"): "finite",
    ("moe_route", "MO-04"): "padding",
    ("moe_route", "MO-01"): "choice",
    ("moe_route", "VX-69"): "finite",
    ("moe_combine", "MO-04"): "finite",
    ("situ", "VX-72"): "finite",
}
"""The clause that a fault breaks, where its mechanism leaves no other."""


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{one.op}-{one.id}" for one in FAULTS])
def test_fault_is_caught(fault):
    operation = OPERATIONS[fault.op]
    expected = EXPECTED.get((fault.op, fault.id))
    found = sweep(operation, fault.make(), enough=None if expected else 1, **fault.settings)
    assert found, f"{fault.op} {fault.id}: no sweep point catches it"
    assert clauses(found) & {"returns", "shape", "dtype"} == set(), "it is broken, not wrong"
    assert expected is None or expected in clauses(found)


@pytest.mark.parametrize("control", CONTROLS, ids=[f"{one.op}-{one.id}" for one in CONTROLS])
def test_control_is_not_flagged(control):
    operation = OPERATIONS[control.op]
    cases = list(operation.cases(control.effort, settings_of(operation, **control.settings)))
    few = cases[::3] if control.op == "kda_chunk" else cases  # the whole sweep: the selftest
    assert sweep(operation, control.make(), cases=few, **control.settings) == {}


def test_ids_are_unique_within_an_operation_and_titles_say_something():
    named = [(one.op, one.id) for one in FAULTS] + [(one.op, one.id) for one in CONTROLS]
    assert len(set(named)) == len(named)
    assert len(FAULTS) >= 12
    assert all(len(one.title) > 10 and one.source for one in FAULTS)
    assert all(len(one.title) > 10 and one.source for one in CONTROLS)


@pytest.mark.parametrize(
    ("op", "id_", "clean"),
    [
        ("kda_chunk", "LA-11", lambda axes: axes["tokens"] <= 64),
        ("kda_chunk", "LA-14", lambda axes: axes["tokens"] <= 16),
        ("kda_chunk", "LA-10", lambda axes: axes["sequences"] == 1 and axes["probe"] == "plain"),
        ("moe_route", "MO-09", lambda axes: axes["scale"] == 1.0),
        ("moe_route", "MO-04", lambda axes: axes["padded"] == 0),
        ("rms_norm", "MO-11", lambda axes: axes["heads"] == 1),
        ("moe_combine", "MO-02", lambda axes: not axes["shared"]),
    ],
)
def test_a_fault_spares_what_its_source_says_it_spares(op, id_, clean):
    """A prompt within one chunk, a single sequence, a scale of 1: why such tests missed it."""
    operation = OPERATIONS[op]
    fault = next(one for one in FAULTS if (one.op, one.id) == (op, id_))
    cases = list(operation.cases(Effort.QUICK, settings_of(operation)))

    spared = [case for case in cases if clean(case.axes) and case.axes["poison"] == "none"]

    assert spared
    assert sweep(operation, fault.make(), cases=spared) == {}
