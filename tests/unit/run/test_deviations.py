"""compare under declared deviations: own budgets, shown sizes, nothing hidden."""

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
from validate.schema.manifest import Deviation, PathProof

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


def test_an_undeclared_deviation_has_no_budget():
    """The same numbers fail."""
    report = run(fp8(deviations=()), suite=suite(GATES[0]), limits=limits(**BUDGET))

    assert gate(report, "logits.kl_p90").outcome == "FAIL"
    assert report.deviations == ()


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
