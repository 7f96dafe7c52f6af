"""Faults of graphs, scratch, races, hand-over and layouts: caught, and the two false alarms spared."""

import pytest

from tests.unit.conformance.sweeping import clauses, settings_of, sweep
from validate.conformance.records import Effort
from validate.conformance.registry import OPERATIONS
from validate.faults.operations_engine import CONTROLS, FAULTS

EXPECTED = {
    "ND-08": "batch",
    "ND-10": "repeats",
    "TV-15": "choice",
}
"""The clause that a fault breaks, where its mechanism leaves no other."""


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{one.op}-{one.id}" for one in FAULTS])
def test_fault_is_caught(fault):
    expected = EXPECTED.get(fault.id)
    found = sweep(OPERATIONS[fault.op], fault.make(), enough=1, **fault.settings)

    assert found, f"{fault.op} {fault.id}: no sweep point catches it"
    assert clauses(found) & {"returns", "shape", "dtype"} == set(), "it is broken, not wrong"
    assert expected is None or expected in clauses(found)


@pytest.mark.parametrize("control", CONTROLS, ids=[f"{one.op}-{one.id}" for one in CONTROLS])
def test_control_is_not_flagged(control):
    assert sweep(OPERATIONS[control.op], control.make(), **control.settings) == {}


@pytest.mark.parametrize(
    ("id_", "spared"),
    [
        ("HD-06", lambda axes: not axes["prefix"]),
        ("ND-06", lambda axes: axes["sequences"] in {1, 2, 4, 8} and axes["heads"] < 13),
        ("LC-06", lambda axes: axes["tokens"] < 4 and not axes["initial"]),
        ("ND-09", lambda axes: axes["rows"] <= 64),
        ("TV-15", lambda axes: axes["rows"] < 12),
        ("ND-05", lambda axes: axes.get("drafts") != 5),
    ],
)
def test_a_fault_spares_what_its_source_says_it_spares(id_, spared):
    """No prefix, a batch as large as its graph, other depths: why such tests missed it."""
    fault = next(one for one in FAULTS if one.id == id_)
    operation = OPERATIONS[fault.op]
    cases = [
        case
        for case in operation.cases(Effort.QUICK, settings_of(operation))
        if spared(case.axes) and case.axes.get("probe", "plain") == "plain"
    ]

    assert cases
    assert sweep(operation, fault.make(), cases=cases[:12]) == {}
