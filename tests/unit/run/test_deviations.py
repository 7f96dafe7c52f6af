"""compare under declared deviations: own budgets, shown sizes, nothing hidden."""

import pytest

from tests.unit.run.made import (
    GATES,
    METRICS,
    bounded,
    entry,
    gate,
    limits,
    repeats,
    run,
    side,
    suite,
)
from validate.run.sides import deviation_gaps
from validate.schema.deviations import DEVIATION_BRANCHES
from validate.schema.manifest import Deviation, PathProof
from validate.schema.paths import OPTION_BRANCHES

FP8 = Deviation(id="prefill-fp8", title="fp8 prefill, scale 1.0", expected="rel-L2 about 0.03")
BUDGET = {
    "deviation__prefill-fp8__logits__kl_p90__bfloat16": entry(4.0),
    "deviation__prefill-fp8__near_tie__bfloat16": entry(0.75),
}


def fp8(off=3.0, **how):
    """A candidate with fp8 prefill that says so."""
    proof = {
        "mla.prefill.padded.zero": 3,
        "mla.prefill.fp8.float8_e4m3fn": 3,
        "mla.decode.absorbed": 5,
        "mla.decode.pad.zero": 5,
        "lse_merge": 5,
        "kda.chunk": 6,
        "kda.recurrent": 6,
    }
    fields = {
        "options": {"prefill": "fp8"},
        "deviations": (FP8,),
        "path_proof": PathProof(path="rocm", branches=proof),
    }
    return side("rocm:prefill=fp8", off, **{**fields, **how})


def test_a_declared_deviation_is_judged_by_its_own_budget():
    """And its measured size is in the report."""
    report = run(fp8(), suite=suite(GATES[0]), limits=limits(**BUDGET))
    found = gate(report, "logits.kl_p90")

    assert (found.outcome, found.deviation, found.limit.value) == ("PASS", "prefill-fp8", 4.0)
    (deviation,) = report.deviations
    assert (deviation.id, deviation.expected) == ("prefill-fp8", "rel-L2 about 0.03")
    (size,) = deviation.sizes
    assert (size.gate, size.value, size.unit) == ("logits.kl_p90", 3.0, "nats")
    assert (size.limit, size.outcome) == (4.0, "PASS")


def test_an_undeclared_deviation_is_incomparable():
    """Its branch ran: the manifest kept it to itself. No budget, and nothing is judged."""
    report = run(fp8(deviations=()), suite=suite(GATES[0]), limits=limits(**BUDGET))

    assert report.exit_code == 4
    assert gate(report, "yardstick.path_proof").reason == (
        "path not proven: cand 'rocm:prefill=fp8' ran the branch mla.prefill.fp8.float8_e4m3fn: "
        "undeclared deviation prefill-fp8"
    )
    assert gate(report, "logits.kl_p90").outcome == "INCOMPARABLE"
    assert gate(report, "logits.kl_p90").deviation is None
    assert report.deviations == ()


def test_a_declaration_alone_buys_nothing():
    """A foreign capture that declares fp8 prefill and proves none: the missing branch is named."""
    proof = PathProof(path="vllm", branches={"flash": 3})
    report = run(
        side("vllm", 3.0, deviations=(FP8,), path_proof=proof),
        suite=suite(GATES[0]),
        limits=limits(**BUDGET),
    )

    assert report.exit_code == 4
    assert gate(report, "yardstick.path_proof").reason == (
        "path not proven: cand 'vllm' declares the deviation prefill-fp8, but its path proof lacks "
        "the branch mla.prefill.fp8.float8_e4m3fn that produces it"
    )
    found = gate(report, "logits.kl_p90")
    assert (found.outcome, found.deviation, found.limit.value) == ("INCOMPARABLE", None, 1.0)


def test_a_branch_that_ran_no_times_proves_nothing():
    """A count of 0 is in the proof of a path that has the branch and did not take it."""
    proof = PathProof(path="vllm", branches={"flash": 3, "mla.prefill.fp8.float8_e4m3fn": 0})

    assert deviation_gaps("cand", side("vllm", deviations=(FP8,), path_proof=proof)) == (
        (
            "cand 'vllm' declares the deviation prefill-fp8, but its path proof lacks the branch "
            "mla.prefill.fp8.float8_e4m3fn that produces it"
        ),
    )
    assert deviation_gaps("cand", side("vllm", path_proof=proof)) == ()


def test_a_kernel_may_prove_it_and_a_foreign_capture_may_have_it():
    """Branch or kernel, whatever the target is called."""
    proof = PathProof(path="vllm", branches={}, kernels={"mla.prefill.fp8.float8_e4m3fn": 3})
    report = run(
        side("vllm", 3.0, deviations=(FP8,), path_proof=proof),
        suite=suite(GATES[0]),
        limits=limits(**BUDGET),
    )

    assert gate(report, "yardstick.path_proof").outcome == "PASS"
    assert gate(report, "logits.kl_p90").deviation == "prefill-fp8"


def test_a_deviation_that_no_branch_proves_is_incomparable():
    """Fail closed: the message lists those that can be proven."""
    own = Deviation(id="a8w4", title="experts", expected="?")
    report = run(side("vllm", deviations=(own,)), suite=suite(GATES[0]))

    assert gate(report, "yardstick.path_proof").outcome == "INCOMPARABLE"
    assert (
        "declares the deviation a8w4, which no branch is known to prove (known: prefill-fp8, "
        "prefill-fp8-fnuz, state-bf16)"
    ) in gate(report, "yardstick.path_proof").reason


@pytest.mark.parametrize(("name", "branch"), list(DEVIATION_BRANCHES.items()))
def test_ref_too_must_declare_what_it_ran(name, branch):
    """And every deviation of the table has a branch that the paths count."""
    proof = PathProof(path="vllm", branches={branch: 1})
    held = Deviation(id=name, title="t", expected="e")

    assert deviation_gaps("ref", side("vllm", path_proof=proof)) == (
        f"ref 'vllm' ran the branch {branch}: undeclared deviation {name}",
    )
    assert deviation_gaps("ref", side("vllm", path_proof=proof, deviations=(held,))) == ()
    assert branch in OPTION_BRANCHES.values()


def test_a_deviation_without_budget_keeps_ordinary_limits():
    """It is listed with no sizes."""
    report = run(fp8(), suite=suite(GATES[0]))

    assert gate(report, "logits.kl_p90").outcome == "FAIL"
    assert report.deviations[0].sizes == ()


def test_settings_of_a_deviation_reach_its_pair_alone():
    """near_tie 0.75 for cand, 0.25 for ref and its repeats."""
    seen = []

    def spying(pair, levels):
        seen.append((pair.cand.label, pair.near_tie, pair.route_gap))
        return bounded(pair, levels)

    run(
        fp8(),
        suite=suite(GATES[0]),
        limits=limits(**BUDGET),
        metrics={**METRICS, "logits.kl_p90": spying},
        repeats=repeats(0.1),
    )

    assert seen == [
        ("cuda", 0.25, 0.01),
        ("cuda-repeat-0", 0.25, 0.01),
        ("rocm:prefill=fp8", 0.75, 0.01),
    ]
