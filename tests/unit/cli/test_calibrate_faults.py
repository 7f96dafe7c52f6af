"""Which gates tell a planted fault's value beside their limit."""

import pytest

from validate.cli.calibrate import _beyond
from validate.schema.report import GateReport, LimitReport
from validate.schema.verdict import Outcome


def gate(outcome, judged, limit=1.0):
    return GateReport.model_construct(  # no validation: what the rule looks at alone
        name="greedy.flips_per_1000",
        outcome=Outcome(outcome),
        kind="bound",
        alpha_share=0.0,
        measurement=None,
        judged=judged,
        limit=None
        if limit is None
        else LimitReport(value=limit, source="measured", pointer="t.toml#x"),
        noise=None,
        reason=None,
        rerun="again",
        deviation=None,
        waiver=None,
    )


@pytest.mark.parametrize(
    ("outcome", "judged", "limit", "told"),
    [
        ("FAIL", 1.5, 1.0, True),
        ("FAIL", 1.0, 1.0, False),
        ("FAIL", 0.5, 1.0, False),
        ("FAIL", None, 1.0, False),
        ("FAIL", 1.5, None, False),
        ("INCONCLUSIVE", 1.5, 1.0, False),
        ("PASS", 0.5, 1.0, False),
    ],
)
def test_a_gate_tells_a_fault_that_it_catches_by_its_value(outcome, judged, limit, told):
    """A three_way gate may FAIL by its worst row, its ratio well inside."""
    assert _beyond(gate(outcome, judged, limit)) is told
