"""Evals of a capture that holds no prompts, by the suite of a whole capture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.lm_eval_folders import choice_samples, text_samples, write_folder
from tests.unit.metrics.evals_made import beside
from tests.unit.run.made import ROCM, manifest, side
from validate.capture.importers import open_lm_eval
from validate.errors import IncomparableError
from validate.report import render_console
from validate.run import compare
from validate.run.evals_alone import evals_alone
from validate.run.sides import proof_gaps
from validate.schema.manifest import PathProof
from validate.schema.report import Report
from validate.suite import load_limits, load_suite, select_gates

ROOT = Path(__file__).parents[3]
SUITE = load_suite(ROOT / "suites/default.toml")
LIMITS = load_limits(ROOT / SUITE.limits)
N = 600


def held(
    target: str, folder: Path, *, noise: float = 0.0, prompts: Sequence[str] = (), **how: Any
) -> Any:
    """A capture of ``target`` with 600 choices and 600 answers."""
    tasks = {
        "arc": choice_samples(N, seed=1, noise=noise, noise_seed=len(target)),
        "sums": text_samples([1] * N, filters=["none"], beside=beside),
    }
    made: Any = side(target, prompts=prompts, **how)
    if not prompts:  # its one artifact is told apart by the target's name
        made.manifest = manifest(target, **how)
    made.evals = open_lm_eval(write_folder(folder / target, tasks), label=target).evals
    return made


@pytest.fixture
def ref(tmp_path: Path) -> Any:
    return held("cuda", tmp_path, prompts=("p-0", "p-1"))


def judged(ref: Any, cand: Any, folder: Path, *, only: Sequence[str] = ("evals",)) -> Report:
    names = [f"cuda-repeat-{n}" for n in (2, 3, 4)]
    repeats = [held(n, folder, noise=0.003 * (at + 1)) for at, n in enumerate(names)]
    return compare(ref=ref, cand=cand, suite=SUITE, limits=LIMITS, repeats=repeats, only=only)


def test_evals_alone_pass_by_the_limits_of_the_suite_and_say_so(tmp_path: Path, ref: Any) -> None:
    """What needs prompts is named, not dropped; floor and path proofs are looked at as ever."""
    report = judged(ref, held("rocm", tmp_path, noise=0.01), tmp_path)

    assert report.verdict == "PASS"
    assert report.notes[0] == (
        "evals are judged alone, for cand 'rocm' holds no prompts: the sides have 2 tasks in common; "
        f"limits and shares of alpha are those of {SUITE.path}"
    )
    assert "yardstick.ref_error, attention.nonfinite" in report.not_tested[0]
    assert report.not_tested[1] == (
        "ref's own error against the oracle (yardstick.ref_error): it is measured on prompts, of "
        "which cand 'rocm' holds none"
    )
    assert [g.name for g in report.gates if g.name.startswith("yardstick")] == [
        "yardstick.aa",
        "yardstick.floor",
        "yardstick.path_proof",
    ]


def test_shares_of_alpha_are_those_of_the_whole_suite(tmp_path: Path, ref: Any) -> None:
    """``--only`` never changes a verdict: 0.01 split by weight over every gate of the suite."""
    report = judged(ref, held("rocm", tmp_path, noise=0.01), tmp_path)
    total = sum(gate.weight for gate in SUITE.gates)

    shares = {gate.name: gate.alpha_share for gate in report.gates}
    assert shares["evals.score_drop"] == SUITE.alpha * 1 / total


@pytest.mark.parametrize("only", [(), ("logits",), ("evals", "logits"), ("yardstick",)])
def test_whatever_needs_prompts_is_refused(tmp_path: Path, ref: Any, only: tuple[str, ...]) -> None:
    """Only a run of evals alone does without prompts."""
    with pytest.raises(IncomparableError, match="cand holds no prompts"):
        judged(ref, held("rocm", tmp_path), tmp_path, only=only)


def test_unlike_prompts_of_two_whole_captures_are_refused(tmp_path: Path, ref: Any) -> None:
    """Prompts that differ say that the sides were not made for one comparison."""
    with pytest.raises(IncomparableError, match="share 1 of 2 prompts"):
        judged(ref, held("rocm", tmp_path, prompts=("p-0",)), tmp_path)


def test_other_weights_are_refused(tmp_path: Path, ref: Any) -> None:
    """Identity is looked at without prompts too."""
    cand = held("rocm", tmp_path)
    model = cand.manifest.model.model_copy(update={"weights_digest": "f" * 64})
    cand.manifest = cand.manifest.model_copy(update={"model": model})

    with pytest.raises(IncomparableError, match="hold other weights, which no target declared"):
        judged(ref, cand, tmp_path)


def test_side_without_evals_is_no_pass(tmp_path: Path) -> None:
    """Neither prompts nor evals in common: nothing was measured."""
    ref = side("cuda")
    report = judged(ref, held("rocm", tmp_path), tmp_path)

    assert report.verdict == "INCONCLUSIVE"
    reasons = {gate.name: str(gate.reason) for gate in report.gates}
    assert "no evals in ref 'cuda'; next: validate eval" in reasons["evals.setup"]


def test_unproven_path_is_refused_without_prompts_too(tmp_path: Path, ref: Any) -> None:
    """A branch that is missing is missing, but for options that only drawn streams take."""
    proof = PathProof(path="rocm", branches={**ROCM, "lse_merge": 0})
    report = judged(ref, held("rocm", tmp_path, path_proof=proof), tmp_path)

    assert report.verdict == "INCOMPARABLE"
    assert any("lacks the branch lse_merge" in str(gate.reason) for gate in report.gates)


@pytest.mark.parametrize(("prompts", "gaps"), [((), 0), (("p-0",), 1)])
def test_evals_neither_draw_nor_draft(prompts: tuple[str, ...], gaps: int) -> None:
    """``renorm`` promises a branch of sampling, which a capture of evals alone never runs."""
    made = side("rocm", prompts=prompts, options={"renorm": "exactly_k"})

    assert len(proof_gaps("cand", made)) == gaps


def test_a_suite_of_evals_alone_needs_no_such_rule(ref: Any, tmp_path: Path) -> None:
    """It asks for no prompts to begin with."""
    suite = load_suite(ROOT / "suites/evals.toml")

    assert evals_alone(ref, held("rocm", tmp_path), suite=suite, gates=select_gates(suite)) is None


def test_console_shows_scores_flips_and_the_smallest_drop_seen(tmp_path: Path, ref: Any) -> None:
    """600 right answers on both sides: with nothing lost, five lost items are the first that tell;
    P(Bin(600, p) >= 5) = 0.8 at p = 0.01117."""
    text = render_console(judged(ref, held("rocm", tmp_path, noise=0.01), tmp_path))

    row = next(line for line in text.splitlines() if line.startswith("|sums"))
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        *("sums", "600", "100.0", "100.0", "0", "0", "0.00", "1", "1.12")
    ]
    assert "MDE: the smallest drop seen at this n (5 %, power 80 %)" in text


def test_console_names_flips_both_ways(tmp_path: Path, ref: Any) -> None:
    """Noise of a nat flips choices; they keep no ids, so no token is named."""
    text = render_console(judged(ref, held("rocm", tmp_path, noise=1.0), tmp_path))

    lost = next(line for line in text.splitlines() if line.startswith("  lost: "))
    assert lost.startswith("  lost: arc doc ")
    assert lost.endswith(" more in report.json")
    assert " from token" not in lost
