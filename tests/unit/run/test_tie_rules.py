"""Two sides that declare other tie rules are told apart in the notes, and nowhere else."""

import pytest

from tests.unit.run.made import REFERENCE, ROCM, run, side
from validate.schema.manifest import PathProof

DIFFER = (
    "top-k and top-p treat ties otherwise, as declared: ref all, cand exactly_k; "
    "each side is judged by its own rule"
)


def declared(target, rule):
    branches = ROCM if target == "rocm" else REFERENCE
    proof = PathProof(
        path="rocm" if target == "rocm" else "reference",
        branches=branches if rule is None else {**branches, f"renorm.{rule}": 1},
    )
    options = {} if rule is None else {"renorm": rule}
    return side(target, path_proof=proof, options=options)


@pytest.mark.parametrize(
    ("ref", "cand", "told"),
    [
        ("all", "exactly_k", True),
        ("all", "all", False),
        (None, "exactly_k", False),
        (None, None, False),
    ],
)
def test_differing_rules_are_a_note_and_no_gap(ref, cand, told):
    report = run(declared("rocm", cand), ref=declared("cuda", ref))

    assert (DIFFER in report.notes) is told
    proof = next(gate for gate in report.gates if gate.name == "yardstick.path_proof")
    assert proof.measurement is not None
    assert proof.measurement.value == 0.0


def test_a_declared_rule_must_have_run():
    cand = side("rocm", options={"renorm": "exactly_k"})
    proof = next(g for g in run(cand).gates if g.name == "yardstick.path_proof")

    assert "lacks the branch renorm.exactly_k" in str(proof.reason)
