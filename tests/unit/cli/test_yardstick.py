"""Is the yardstick fit to judge by? Each check from the command line to the exit code.

On the tiny model of ``test_whole_way``: equal captures, too few repeats, a path that does not prove
what its name promises, deviations that are declared or proven alone, and a reference that is wrong.
"""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.test_whole_way import compared, outcomes, settle, without_streams
from validate.capture.digest import manifest_seal
from validate.cli import main
from validate.models import load_weights

pytestmark = pytest.mark.slow

FP8 = {"id": "prefill-fp8", "title": "fp8 prefill", "expected": "2^-4 an element"}
BRANCH = "mla.prefill.fp8.float8_e4m3fn"
LOGITS = ("--only", "logits")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Goldens, and captures of the ROCm path with and without float8 prefill."""
    folder = tmp_path_factory.mktemp("yardstick")
    settle(folder)
    with contextlib.chdir(folder):
        assert main(["golden", "record", "--device", "cpu"]) == 0
        assert main(["capture", "--target", "rocm", "--out", "rocm"]) == 0
        assert main(["capture", "--target", "rocm:prefill=fp8", "--out", "fp8"]) == 0
        yield folder


def copied(place: Path, source: str, name: str, change: Callable[[dict[str, Any]], Any]) -> str:
    """A copy of a capture with another manifest, sealed anew; gives it as a target."""
    shutil.copytree(place / source, place / name)
    file = place / name / "manifest.json"
    content = json.loads(file.read_bytes())
    change(content)
    content["digest"] = manifest_seal(content)
    file.write_text(json.dumps(content))
    return f"./{name}"


def reason(report: dict[str, Any], name: str) -> str:
    return str(next(gate["reason"] for gate in report["gates"] if gate["name"] == name))


def test_a_capture_against_itself_is_exactly_zero_and_said_aloud(place, capsys):
    _, report = compared(capsys, "--ref", "cuda", "--cand", "cuda", *LOGITS)
    values = {g["name"]: g["measurement"]["value"] for g in report["gates"]}

    assert outcomes(report)["yardstick.aa"] == "PASS"
    assert {values[n] for n in values if n.startswith("logits.") and "ratio" not in n} == {0.0}
    assert values["logits.err_ratio"] == 1.0
    assert report["notes"][0].startswith("ref and cand are one and the same capture (digest ")


def test_the_same_bytes_under_another_name_are_said_aloud(place, capsys):
    same = copied(place, "golden/k3-nano/cuda", "again", lambda m: None)
    other = copied(
        place, "golden/k3-nano/cuda", "renamed", lambda m: m["options"].update({"note": "moved"})
    )
    _, twice = compared(capsys, "--ref", "cuda", "--cand", same, *LOGITS)
    _, moved = compared(capsys, "--ref", "cuda", "--cand", other, *LOGITS)

    assert "one and the same capture" in twice["notes"][0] or "byte for byte" in twice["notes"][0]
    assert "holds byte for byte what ref 'cuda' holds" in moved["notes"][0]


def test_two_repeats_are_no_floor(place, capsys):
    """INCONCLUSIVE with the number needed, and so is every gate that divides by the floor."""
    away = [place / "golden/k3-nano" / f"cuda-repeat-{n}" for n in (3, 4)]
    for folder in away:
        folder.rename(folder.with_name(f"_{folder.name}"))
    try:
        code, report = compared(capsys, "--ref", "cuda", "--cand", "./rocm", *LOGITS)
    finally:
        for folder in away:
            folder.with_name(f"_{folder.name}").rename(folder)

    assert code == 3
    assert outcomes(report)["yardstick.floor"] == "INCONCLUSIVE"
    assert "2 repeats of ref, at least 3 needed" in reason(report, "yardstick.floor")
    assert outcomes(report)["logits.kl_p50"] == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("role", "source", "branch"),
    [
        ("cand", "rocm", "mla.decode.absorbed"),
        ("ref", "golden/k3-nano/cuda", "mla.decode.decompressed"),
    ],
)
def test_a_side_that_does_not_prove_its_path_is_incomparable(place, capsys, role, source, branch):
    unproven = copied(
        place, source, f"unproven-{role}", lambda m: m["path_proof"]["branches"].pop(branch)
    )
    sides = {"ref": "cuda", "cand": "./rocm", role: unproven}
    code, report = compared(capsys, "--ref", sides["ref"], "--cand", sides["cand"], *LOGITS)

    assert (code, report["verdict"]) == (4, "INCOMPARABLE")
    assert reason(report, "yardstick.path_proof").startswith(f"path not proven: {role} '")
    assert f"lacks the branch {branch}" in reason(report, "yardstick.path_proof")
    assert {o for n, o in outcomes(report).items() if n.startswith("logits.")} == {"INCOMPARABLE"}


def test_a_deviation_needs_its_branch_and_a_branch_its_declaration(place, capsys):
    """Declared and proven: judged. One of the two alone: exit 4 and the name of what is missing."""
    declared = copied(place, "rocm", "declared", lambda m: m.update(deviations=[FP8]))
    silent = copied(place, "fp8", "silent", lambda m: m.update(deviations=[]))
    _, both = compared(capsys, "--ref", "cuda", "--cand", "./fp8", *LOGITS)
    first, lacking = compared(capsys, "--ref", "cuda", "--cand", declared, *LOGITS)
    second, hidden = compared(capsys, "--ref", "cuda", "--cand", silent, *LOGITS)

    assert outcomes(both)["yardstick.path_proof"] == "PASS"
    assert [one["id"] for one in both["deviations"]] == ["prefill-fp8"]
    assert (first, second) == (4, 4)
    assert (
        f"declares the deviation prefill-fp8, but its path proof lacks the branch {BRANCH}"
        in reason(lacking, "yardstick.path_proof")
    )
    assert f"ran the branch {BRANCH}: undeclared deviation prefill-fp8" in reason(
        hidden, "yardstick.path_proof"
    )


def test_a_wrong_reference_is_blamed_and_not_the_candidate(place, capsys, monkeypatch):
    """The head of the reference path is 20 times too large where it is loaded: REF_BLAMED, exit 4."""

    def louder(*given: Any, **named: Any) -> Any:
        held = dict(load_weights(*given, **named))
        return held | {"lm_head.weight": 20 * held["lm_head.weight"]}

    with monkeypatch.context() as patch:
        patch.setattr("validate.capture.backends.torch_paths.load_weights", louder)
        assert main(["capture", "--target", "reference", "--out", "wrong"]) == 0
    limits = place / "golden/tolerances.toml"
    text = limits.read_text("utf-8")
    head = "[yardstick.ref_error.bfloat16]\nvalue = "
    limits.write_text(text.replace(f"{head}50.0", f"{head}0.001"), "utf-8")
    try:
        code, report = compared(capsys, "--ref", "./wrong", "--cand", "./rocm", *LOGITS)
        _, right = compared(capsys, "--ref", "cuda", "--cand", "./rocm", *LOGITS)
    finally:
        limits.write_text(text, "utf-8")

    assert (code, report["verdict"]) == (4, "INCOMPARABLE")
    assert reason(report, "yardstick.ref_error").startswith("REF_BLAMED: ref './wrong' disagrees")
    assert reason(report, "logits.kl_max").startswith("REF_BLAMED: ")
    assert outcomes(right)["yardstick.ref_error"] == "PASS"


def test_a_release_names_the_missing_evidence_of_each_side(place, capsys):
    """Both sides ran on this CPU; every gate says what to capture instead."""
    (place / "suites/release.toml").write_text(without_streams("release"), "utf-8")
    code, report = compared(
        capsys, "--suite", "suites/release.toml", "--ref", "cuda", "--cand", "./rocm"
    )

    assert (code, report["verdict"]) == (4, "INCOMPARABLE")
    assert set(outcomes(report).values()) == {"INCOMPARABLE"}
    told = reason(report, "logits.kl_max")
    assert "missing evidence: ref 'cuda' is emulated, suite 'release' accepts hardware only" in told
    assert "missing evidence: cand './rocm' is emulated" in told
    assert "capture it on a ROCm device through AITER's kernels" in told


def test_one_area_alone_gives_the_verdicts_of_the_full_run(place, capsys):
    _, full = compared(capsys, "--ref", "cuda", "--cand", "./rocm")
    _, part = compared(capsys, "--ref", "cuda", "--cand", "./rocm", *LOGITS)
    whole = {gate["name"]: gate for gate in full["gates"]}
    logits = [gate for gate in part["gates"] if gate["name"].startswith("logits.")]

    assert logits
    for gate in logits:
        assert gate == whole[gate["name"]]
