"""compare: order, floors, budgets, selections, and who is blamed."""

import math

import pytest

from tests.fakes import digest
from tests.unit.run.made import (
    CARD,
    GATES,
    METRICS,
    bounded,
    gate,
    outcomes,
    ratio,
    repeats,
    run,
    side,
    suite,
)
from tests.unit.run.test_deviations import FP8
from validate.errors import IncomparableError, InputError, SuiteError
from validate.schema.manifest import ArtifactFile, PathProof
from validate.schema.measurement import Measurement
from validate.schema.suite import GateSpec

RATIO = GateSpec(name="logits.err_ratio", kind="three_way")
MAX = GateSpec(name="logits.kl_max", kind="bound")


def test_a_clean_candidate_passes():
    """Every gate of the suite has a verdict, in the suite's order."""
    report = run(side("rocm", 0.2))

    assert report.verdict == "PASS"
    assert report.exit_code == 0
    assert outcomes(report) == dict.fromkeys([g.name for g in suite().gates], "PASS")
    assert gate(report, "yardstick.aa").measurement.n == 3
    assert gate(report, "yardstick.floor").measurement.n == 4


def test_numbers_reach_the_report():
    """Value, judged ratio, floor, limit, share and rerun line."""
    report = run(side("rocm", 0.2))
    bound, ratio_gate = gate(report, "logits.kl_p90"), gate(report, "logits.kl_p50")

    assert bound.measurement.value == pytest.approx(0.2)
    assert bound.judged == bound.measurement.value
    assert bound.alpha_share == 0.005
    assert bound.measurement.interval.low_level == 1 - 0.005
    assert bound.noise.value == pytest.approx(0.1)
    assert bound.limit.pointer == "t.toml#x"
    assert ratio_gate.judged == pytest.approx(2.0)
    assert bound.rerun == (
        "validate compare --suite suites/small.toml --ref cuda --cand rocm --only logits.kl_p90"
    )
    assert report.suite.power == 0.95
    assert report.suite.digest == suite().digest


def test_a_fault_fails():
    """Exit 1 and nothing else."""
    report = run(side("rocm", 3.0))

    assert report.exit_code == 1
    assert outcomes(report)["logits.kl_p90"] == "FAIL"
    assert outcomes(report)["state.kda_rel_l2"] == "FAIL"
    assert gate(report, "logits.kl_p90").reason.startswith("lower limit 2.7 nats at 99.5 % exceeds")


def test_a_capture_against_itself_is_exact_and_said_aloud():
    """Every difference is exactly 0."""
    ref = side("cuda")
    report = run(ref, ref=ref)

    assert report.exit_code == 0
    assert [gate(report, g.name).measurement.value for g in GATES] == [0.0, 0.0, 0.0]
    assert report.notes[0].startswith("ref and cand are one and the same capture (digest ")


def test_equal_bytes_under_another_name_are_said_aloud():
    """Their manifests differ, their content does not."""
    report = run(side("rocm", content="cuda"))

    assert "cand 'rocm' holds byte for byte what ref 'cuda' holds" in report.notes[0]


def test_equal_tensors_beside_rewritten_json_are_said_aloud():
    """Prompts written with other spaces change their file's digest, and no tensor."""
    ref, cand = side("cuda"), side("rocm", content="cuda")
    prompts = ArtifactFile(artifact="prompts", path="prompts.jsonl", bytes=1, sha256=digest("b"))
    files = (*cand.manifest.artifacts, prompts)
    cand.manifest = cand.manifest.model_copy(update={"artifacts": files})
    report = run(cand, ref=ref)

    assert (
        "cand 'rocm' holds byte for byte the tensors that ref 'cuda' holds (1 shards)"
        in (report.notes[0])
    )
    assert "and the same streams: what is measured on them differs by 0" in report.notes[0]
    assert not any("byte for byte" in note for note in run(side("rocm", 0.1)).notes)


def test_a_repeat_under_judgement_is_left_out_of_its_own_floor():
    """Four repeats, one of them judged: three make the floor."""
    held = repeats(0.1, 0.1, 0.1, 4.0)
    report = run(held[3], repeats=held)
    again = run(held[0], repeats=held)

    assert len(report.repeats) == 3
    assert gate(report, "logits.kl_p90").noise.values == pytest.approx((0.1, 0.1, 0.1))
    assert outcomes(report)["logits.kl_p90"] == "FAIL"
    assert any(
        "'cuda-repeat-3' is left out of the noise floor: it is under" in n for n in report.notes
    )
    assert gate(again, "logits.kl_p90").noise.values == pytest.approx((0.1, 0.1, 4.0))


def test_ref_and_doubles_are_no_repeats():
    """They would pull the floor down for nothing."""
    one, two, three = repeats(0.1, 0.1, 0.1)
    report = run(side("rocm", 0.2), repeats=[side("cuda"), one, one, two, three])

    assert len(report.repeats) == 3
    assert any("'cuda' is left out of the noise floor: it is ref itself" in n for n in report.notes)
    assert any("it is 'cuda-repeat-0' once more" in n for n in report.notes)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_repeats_are_inconclusive(count):
    """No floor, no noise_ratio verdict; bound gates do not need it."""
    report = run(side("rocm", 0.2), repeats=repeats(0.1, 0.1, 0.1)[:count])

    assert report.exit_code == 3
    assert outcomes(report)["yardstick.floor"] == "INCONCLUSIVE"
    assert outcomes(report)["logits.kl_p50"] == "INCONCLUSIVE"
    assert outcomes(report)["logits.kl_p90"] == "PASS"
    assert gate(report, "yardstick.floor").reason == (
        f"undefined: {count} repeats of ref, at least 3 needed (n = {count} repeats, 3 needed)"
    )


def test_a_repeat_that_does_not_match_is_told():
    """It is left out, with the reason; too few are left."""
    odd = side("cuda-repeat-9", prompts=("p-0",))
    report = run(side("rocm", 0.2), repeats=[*repeats(0.1, 0.1), odd])

    assert outcomes(report)["yardstick.floor"] == "INCONCLUSIVE"
    assert any("repeat 'cuda-repeat-9' is left out of the noise floor: " in n for n in report.notes)


def test_a_floor_of_zero_falls_back_to_unit_roundoff():
    """0.01 is 2.56 times 2**-8; the report says where the floor comes from."""
    report = run(side("rocm", 0.01), repeats=repeats(0.0, 0.0, 0.0))
    found = gate(report, "logits.kl_p50")

    assert found.noise.value == 2.0**-8
    assert found.noise.derived
    assert found.judged == pytest.approx(2.56)
    assert not gate(report, "logits.kl_p90").noise.derived


def test_unmatched_captures_raise_before_anything_is_measured():
    """Pair first, measure second."""
    seen: list[str] = []
    with pytest.raises(IncomparableError, match=r"only in cand|prompts"):
        run(side("rocm", prompts=("p-0",)), progress=seen.append)

    assert seen == ["matching ref and cand"]


def test_evidence_is_checked_before_the_pair():
    """Nothing is measured; the missing evidence is named."""
    strict = suite(evidence=("hardware",))
    report = run(side("rocm", prompts=("p-0",)), suite=strict)

    assert report.exit_code == 4
    assert set(outcomes(report).values()) == {"INCOMPARABLE"}
    assert all(found.measurement is None for found in report.gates)
    assert gate(report, "yardstick.aa").reason == (
        "missing evidence: cand 'rocm' is emulated, suite 'small' accepts hardware only; capture "
        "it on a ROCm device through AITER's kernels, counted in the path proof"
    )


def test_evidence_that_the_proof_does_not_carry_does_not_count():
    """A manifest may claim hardware; without an AITER kernel it is emulated."""
    device = CARD.model_copy(update={"device": "rocm", "hardware": "MI355X"})
    claim = side("rocm", 0.2, evidence="hardware", provenance=device)
    report = run(claim, suite=suite(evidence=("hardware",)))

    assert report.exit_code == 4
    assert "is emulated (its manifest claims hardware)" in gate(report, "yardstick.aa").reason
    assert report.cand.evidence == "emulated"


def test_another_model_is_refused():
    """Limits hold for the model they were made for."""
    report = run(side("rocm", 0.2), suite=suite(model="llama"))

    assert report.exit_code == 4
    assert "is a capture of k3-nano, suite 'small' and its limits are for llama" in (
        gate(report, "yardstick.aa").reason
    )


def test_a_stale_golden_blocks():
    """Reasons known beforehand."""
    report = run(side("rocm", 0.2), blocked=["golden 'cuda' is stale"])

    assert report.exit_code == 4
    assert {found.reason for found in report.gates} == {"golden 'cuda' is stale"}


def test_a_faulty_reference_is_blamed():
    """Every other gate is INCOMPARABLE; what was measured is still shown."""
    report = run(side("rocm", 0.2), oracle=side("oracle", 2.5))

    assert report.exit_code == 4
    assert gate(report, "yardstick.ref_error").outcome == "INCOMPARABLE"
    assert gate(report, "yardstick.ref_error").reason.startswith(
        "REF_BLAMED: ref 'cuda' disagrees with the oracle: 2.5 nats exceeds the limit 2"
    )
    assert gate(report, "logits.kl_p90").outcome == "INCOMPARABLE"
    assert gate(report, "logits.kl_p90").reason.startswith("REF_BLAMED: ")
    assert gate(report, "logits.kl_p90").measurement.value == pytest.approx(0.2)


def test_no_oracle_is_inconclusive():
    """Nobody can say whether ref is right."""
    report = run(side("rocm", 0.2), oracle=None)

    assert report.exit_code == 3
    assert outcomes(report)["yardstick.ref_error"] == "INCONCLUSIVE"
    assert outcomes(report)["logits.kl_p90"] == "PASS"
    assert "the truth: no oracle capture took part" in report.not_tested


def test_an_unproven_path_is_incomparable_everywhere():
    """A PASS is refused if the candidate path did not run."""
    lazy = side("rocm", 0.2, path_proof=PathProof(path="rocm", branches={"kda.chunk": 1}))
    report = run(lazy)

    assert report.exit_code == 4
    reason = gate(report, "yardstick.path_proof").reason
    assert reason.startswith("path not proven: cand 'rocm' lacks the branch mla.decode.absorbed; ")
    assert gate(report, "logits.kl_p90").outcome == "INCOMPARABLE"
    assert gate(report, "logits.kl_p90").reason.startswith("path not proven: ")


def test_an_inexact_metric_makes_the_yardstick_unfit():
    """A/A must be 0."""

    def drifting(pair, levels):
        found = bounded(pair, levels)
        return Measurement(
            metric=found.metric,
            value=0.5,
            unit="nats",
            n=2,
            n_of="prompts",
            interval=found.interval,
        )

    report = run(side("rocm", 0.2), metrics={**METRICS, "logits.kl_p90": drifting})

    assert report.exit_code == 4
    assert gate(report, "yardstick.aa").reason == (
        "ref against itself is not exact: logits.kl_p90 measures 0.5 there (1 gates where exactly "
        "0 gates is demanded (n = 3 gates)), so ref or the metric is at fault"
    )
    assert set(outcomes(report).values()) >= {"INCOMPARABLE"}


def test_a_ratio_of_errors_is_one_on_self():
    """ref against ref is exactly as far from the oracle as ref."""
    report = run(side("rocm", 0.2), suite=suite(RATIO))

    assert report.exit_code == 0
    assert gate(report, "yardstick.aa").measurement.value == 0
    assert gate(report, "logits.err_ratio").judged == pytest.approx(0.8)


def test_inside_gates_say_nothing_on_self():
    """A difference within cand need not be 0 on ref against ref."""
    inside = GateSpec(name="state.kda_rel_l2", kind="bound", inside_cand=True)

    def within(pair, levels):
        return Measurement(metric="x", value=0.3, unit="rel-L2", n=1, n_of="prompts")

    report = run(
        side("rocm", 0.2), suite=suite(inside, MAX), metrics={**METRICS, "state.kda_rel_l2": within}
    )

    assert report.exit_code == 0
    assert gate(report, "yardstick.aa").measurement.n == 1


def test_an_unexpected_error_of_a_metric_passes_through():
    """It is no verdict."""

    def broken(pair, levels):
        raise ZeroDivisionError("a fault of ours")

    with pytest.raises(ZeroDivisionError, match="a fault of ours"):
        run(side("rocm", 0.2), metrics={**METRICS, "logits.kl_p90": broken})


def test_undefined_measurements_keep_their_kind():
    """No data is INCONCLUSIVE, unlike things are INCOMPARABLE."""

    def undefined(pair, levels, kind="no_data"):
        return Measurement(
            metric="x",
            value=None,
            unit="",
            n=0,
            n_of="prompts",
            why_undefined="none",
            undefined_kind=kind,
        )

    def unlike(pair, levels):
        return undefined(pair, levels, "unlike")

    few = run(side("rocm"), suite=suite(MAX), metrics={**METRICS, "logits.kl_max": undefined})
    odd = run(side("rocm"), suite=suite(MAX), metrics={**METRICS, "logits.kl_max": unlike})

    assert outcomes(few)["logits.kl_max"] == "INCONCLUSIVE"
    assert outcomes(few)["yardstick.aa"] == "INCONCLUSIVE"
    assert outcomes(odd)["logits.kl_max"] == "INCOMPARABLE"
    assert gate(few, "logits.kl_max").measurement.why_undefined == "none"


def test_a_nan_is_a_fail_and_null_in_the_report():
    """Strict JSON has no NaN."""

    def broken(pair, levels):
        value = 0.0 if pair.cand is pair.ref else math.nan
        return Measurement(
            metric="x", value=value, unit="nats", n=1, n_of="prompts", breakdown={"max": value}
        )

    report = run(
        side("rocm"), suite=suite(GATES[2]), metrics={**METRICS, "state.kda_rel_l2": broken}
    )
    found = gate(report, "state.kda_rel_l2")

    assert found.outcome == "FAIL"
    assert found.measurement.value is None
    assert found.measurement.why_undefined == (
        "the measured value is nan, which JSON has no number for"
    )
    assert found.measurement.breakdown == {"max": None}
    assert found.noise.why_undefined == "4 of 4 repeats measure nan"
    assert found.noise.values == ()


def test_only_does_not_change_a_verdict():
    """Shares stay those of the whole suite."""
    whole = run(side("rocm", 0.2))
    part = run(side("rocm", 0.2), only=["logits"])

    assert outcomes(part) == {k: v for k, v in outcomes(whole).items() if not k.startswith("state")}
    for name in ("logits.kl_p90", "logits.kl_p50"):
        assert gate(part, name) == gate(whole, name)
    assert "gates left out of this run: state.kda_rel_l2" in part.not_tested


def test_skip_leaves_out_and_says_so():
    """The yardstick stays."""
    report = run(side("rocm", 0.2), skip=["logits"])

    assert "logits.kl_p90" not in outcomes(report)
    assert "gates left out of this run: logits.kl_p90, logits.kl_p50" in report.not_tested


def test_nothing_left_is_an_error():
    """Never a pass."""
    with pytest.raises(SuiteError, match=r"no gate of suites/small\.toml is left to judge"):
        run(side("rocm", 0.2), skip=["logits", "state"])


def test_prompts_can_be_chosen():
    """And the report and the rerun line say so."""
    report = run(side("rocm", 0.2), prompts=["p-1"])

    assert gate(report, "logits.kl_p90").measurement.n == 1
    assert "only 1 of 2 prompts were compared: p-1" in report.notes
    assert gate(report, "logits.kl_p90").rerun.endswith("--prompt p-1 --only logits.kl_p90")
    with pytest.raises(
        InputError, match=r"--prompt p-11: neither side holds .*; did you mean 'p-1'"
    ):
        run(side("rocm", 0.2), prompts=["p-11"])


def test_missing_limits_are_refused_before_work():
    """With every name."""
    with pytest.raises(SuiteError, match="6 of 6 limits"):
        run(side("rocm", 0.2, dtype="float32"), ref=side("cuda", dtype="float32"))


def test_each_pair_is_made_once_and_shared_by_all_metrics():
    """One cache a pair: what is computed for one gate is there for the next."""
    made, used = [], []

    def counting(pair, levels):
        pair.once("costly", lambda: made.append(pair.cand.label))
        used.append(pair.cand.label)
        return bounded(pair, levels)

    run(
        side("rocm", 0.2),
        metrics={**METRICS, "logits.kl_p90": counting, "logits.kl_p50": counting},
    )

    assert len(used) == 2 * len(made)
    assert len(set(made)) == len(made) == 6


def test_notes_tell_what_a_reader_must_know():
    """Faults, other weights, deviations of ref."""
    cand = side("rocm:fault=VX-01", 0.2, fault="VX-01", declared_weights=True)
    ref = side("cuda", deviations=(FP8,))
    report = run(cand, ref=ref)

    assert "cand carries the planted fault VX-01" in report.notes
    assert "cand declares other weights: seed1" in report.notes
    assert "ref itself declares deviations: prefill-fp8" in report.notes
    assert report.cand.fault == "VX-01"


@pytest.mark.parametrize(
    ("fault", "tokens", "told"),
    [
        (
            "SP-07",
            "80",
            "512 tokens a stream, and the capture holds 80: add tokens=512 to the target",
        ),
        (
            "SP-07",
            "511",
            "512 tokens a stream, and the capture holds 511: add tokens=512 to the target",
        ),
        ("SP-07", "512", None),
        ("SP-09", "80", None),
        ("SP-02", "32", "every prompt of the suite: validate selftest --only-fault SP-02"),
        ("LC-07", "80", "prompts of 1,000 tokens: validate selftest --only-fault LC-07"),
    ],
)
def test_a_fault_that_the_sample_is_too_small_for_says_so(fault, tokens, told):
    """A PASS there is no miss: the fault shows on more."""
    cand = side("rocm", 0.2, fault=fault, options={"tokens": tokens})
    note = next(n for n in run(cand).notes if f"planted fault {fault}" in n)

    if told is None:
        assert note == f"cand carries the planted fault {fault}"
    else:
        assert note.startswith(f"cand carries the planted fault {fault}, which shows ")
        assert note.endswith(told)


def test_reused_captures_are_marked():
    """By role."""
    report = run(side("rocm", 0.2), reused=["cand"])

    assert (report.ref.reused, report.cand.reused) == (False, True)


def test_what_was_not_tested_is_told():
    """Areas without gates, and kernels that never ran on their device."""
    report = run(side("rocm", 0.2))

    assert report.not_tested == (
        "areas this suite has no gate for: attention, greedy, speculative, renorm, evals",
        "logprobs of the greedy streams: captured, and no metric reads them",
        "the kernels of cand on its real device: the evidence is emulated",
    )


def test_the_command_line_can_be_given():
    """Labels with spaces are quoted otherwise."""
    given = run(side("rocm", 0.2), command="validate compare --cand x")
    quoted = run(side("runs/my rocm", 0.2, path_proof=PathProof(path="x", branches={"a": 1})))

    assert gate(given, "logits.kl_p90").rerun == "validate compare --cand x --only logits.kl_p90"
    assert "--cand 'runs/my rocm' --only" in gate(quoted, "logits.kl_p90").rerun


def test_an_undefined_repeat_is_told():
    """A floor that lost its repeats says why."""

    def shy(pair, levels):
        if pair.cand.label.startswith("cuda-repeat"):
            return Measurement(
                metric="x", value=None, unit="", n=0, n_of="prompts", why_undefined="no tensors"
            )
        return bounded(pair, levels)

    report = run(side("rocm", 0.2), metrics={**METRICS, "logits.kl_p50": shy})

    assert gate(report, "logits.kl_p50").noise.why_undefined == (
        "0 repeats of ref, at least 3 needed; 4 of 4 undefined: no tensors"
    )
    assert gate(report, "yardstick.floor").reason.startswith(
        "undefined: 1 floors are not measured; logits.kl_p50: 0 repeats of ref"
    )


def test_the_oracle_takes_part_in_ratios():
    """Without it there is no ratio."""
    report = run(side("rocm", 0.2), suite=suite(RATIO), oracle=None)

    assert outcomes(report)["logits.err_ratio"] == "INCONCLUSIVE"
    assert METRICS["logits.err_ratio"] is ratio
