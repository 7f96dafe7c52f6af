"""What the README promises, on the shipped goldens: the path itself, every fault, every pad.

Each case captures k3-nano on this machine's CPU (or takes the capture of an
unchanged source) and compares it with the reference recorded on a CUDA GPU.
"""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from validate.faults import FAULTS

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.golden, pytest.mark.slow]


LONG = pytest.mark.long
"""Each default capture takes more than a minute: `make test` makes few, the selftest all."""


@cache
def compared(cand: str) -> tuple[int, dict[str, Any]]:
    """Exit code and report of `validate compare --ref cuda --cand CAND`."""
    return compared_as("--ref", "cuda", "--cand", cand)


@cache
def compared_as(*sides: str) -> tuple[int, dict[str, Any]]:
    """Exit code and report of `validate compare` with these two sides."""
    command = [sys.executable, "-c", "from validate.cli import main; raise SystemExit(main())"]
    done = subprocess.run(
        [*command, "compare", *sides, "--format", "json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONWARNINGS": "default"},
    )
    assert done.stdout, done.stderr[-2000:]
    return done.returncode, json.loads(done.stdout)


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    """Outcome by gate."""
    return {gate["name"]: gate["outcome"] for gate in report["gates"]}


def test_the_reference_against_itself_differs_by_exactly_zero():
    """Ratios of errors are exactly 1; `inside cand` gates compare two forms of one side.

    So do the speculative gates: drawn streams are held to the same side's own rows.
    """
    code, report = compared("cuda")

    assert code == 0
    one_side = {"yardstick.ref_error", "state.prefill_decode", "state.chunked_oneshot"}
    one_side |= {"renorm.kept_mass", "renorm.sum_error", "renorm.value_error"}
    values = {g["name"]: g["measurement"]["value"] for g in report["gates"]}
    one_side |= {name for name in values if name.startswith("speculative.")}
    ratios = {name: v for name, v in values.items() if name.endswith("_ratio")}
    assert set(ratios.values()) == {1.0}
    assert {v for n, v in values.items() if n not in {*one_side, *ratios}} == {0.0}
    assert values["speculative.acceptance_delta"] == 0.0
    assert any("one and the same capture" in note for note in report["notes"])


@pytest.mark.parametrize(
    "cand",
    [
        *("cuda-repeat", "rocm"),
        *(pytest.param(f"rocm:pad={pad}", marks=LONG) for pad in ("zero", "tile", "repeat")),
    ],
)
def test_clean_candidates_pass(cand):
    """No gate is anything but PASS."""
    code, report = compared(cand)

    assert {n: o for n, o in outcomes(report).items() if o != "PASS"} == {}
    assert (code, report["verdict"]) == (0, "PASS")


def test_the_reference_names_its_card_and_the_candidate_says_emulated():
    """Evidence of both sides, and the floors."""
    _, report = compared("rocm")

    assert report["ref"]["evidence"] == "hardware"
    assert report["ref"]["provenance"]["hardware"] == "NVIDIA H200"
    assert report["ref"]["provenance"]["driver"] == "580.159.04"
    assert report["cand"]["evidence"] == "emulated"
    floors = {g["name"]: g["noise"] for g in report["gates"] if g["kind"] == "noise_ratio"}
    assert all(noise["repeats"] == 4 and noise["value"] > 0 for noise in floors.values())
    assert floors


PATTERNS = {
    "VX-01": "decode.mla.3.out: heads permuted (cand head h equals ref head m = h // 4",
    "LC-01": "decode.mla.3.out: all heads, only token rows >= 1 wrong (row 0 exact)",
    "VX-02": "decode.mla.3.out: all heads, only batch rows >= 1 wrong",
}
"""LC-01: position 0 sees one key, so there is nothing to merge. Faults of other areas have no heads."""


def whole_path(fault: str) -> bool:
    """A fault of cand that a default capture must show; those of drawn streams are the selftest's."""
    record = FAULTS[fault]
    drawn = all(gate.startswith("speculative.") for gate in record.gates)
    return record.where == "cand" and record.expect == "FAIL" and not drawn


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=LONG) for fault in sorted(filter(whole_path, FAULTS))],
)
def test_planted_faults_fail_by_the_gates_they_name_and_are_localised(fault):
    """Exit 1, FAIL by every gate of the record, and the heads or rows in words."""
    code, report = compared(f"rocm:fault={fault}")

    got = outcomes(report)
    assert (code, report["verdict"]) == (1, "FAIL")
    assert {name: got[name] for name in FAULTS[fault].gates if got[name] != "FAIL"} == {}
    measured = {g["name"]: g["measurement"] for g in report["gates"]}
    if fault in PATTERNS:
        assert measured["attention.head_rel_l2"]["pattern"].startswith(PATTERNS[fault])
    if "renorm.kept_set" in FAULTS[fault].gates:
        assert "the oracle" in measured["renorm.kept_set"]["worst"]["detail"]


@LONG
@pytest.mark.parametrize(
    "fault", sorted(fault for fault, record in FAULTS.items() if record.where == "ref")
)
def test_a_wrong_reference_blames_the_yardstick_and_not_the_candidate(fault):
    """Nothing FAILs; what is wrong with ref is named."""
    command = ["--ref", f"reference:fault={fault}", "--cand", "cuda-repeat"]
    code, report = compared_as(*command)

    assert (code, report["verdict"]) == (4, "INCOMPARABLE")
    assert "FAIL" not in outcomes(report).values()
    assert {outcomes(report)[gate] for gate in FAULTS[fault].gates} == {"INCOMPARABLE"}


@LONG
def test_declared_other_weights_fail():
    """The second seed is another model."""
    code, report = compared("rocm:weights=seed2")

    got = outcomes(report)
    assert (code, report["verdict"]) == (1, "FAIL")
    assert {got[n] for n in ("logits.kl_p90", "logits.top1_flips", "greedy.unexplained")} == {
        "FAIL"
    }


@LONG
def test_fp8_prefill_is_a_declared_deviation_with_its_size():
    """Judged by its own budget and listed with what was measured."""
    code, report = compared("rocm:prefill=fp8")

    assert code == 0
    (deviation,) = report["deviations"]
    assert deviation["id"] == "prefill-fp8"
    sized = [g for g in report["gates"] if g["deviation"] == "prefill-fp8"]
    assert {g["name"] for g in sized} >= {"attention.rel_l2", "attention.scale", "state.kda_rel_l2"}
    assert all(g["measurement"]["value"] > 0 for g in sized if g["kind"] == "noise_ratio")


@LONG
def test_silent_argmax_fails_the_speculative_gates_alone_and_says_so():
    """The worst bug of the domain: every greedy gate of the same run passes."""
    only = ("--only", "speculative,greedy")
    code, report = compared_as("--ref", "cuda", "--cand", "rocm:fault=SA-01", *only)

    got = outcomes(report)
    failed = {name for name, outcome in got.items() if outcome == "FAIL"}
    assert (code, report["verdict"]) == (1, "FAIL")
    assert failed >= {"speculative.uniform", "speculative.surprisal"}
    assert {name.partition(".")[0] for name in failed} == {"speculative"}
    assert {got[name] for name in got if name.startswith("greedy.")} == {"PASS"}
    (uniform,) = (g for g in report["gates"] if g["name"] == "speculative.uniform")
    assert uniform["measurement"]["pattern"].startswith("sampling is greedy")
