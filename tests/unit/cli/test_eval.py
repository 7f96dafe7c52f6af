"""``validate eval``: a capture of evals, lm-eval's own files beside it, taken up where it stopped."""

import json
from pathlib import Path

import pytest

from validate.capture.importers import open_lm_eval
from validate.capture.reader import open_capture
from validate.cli import main

pytestmark = pytest.mark.golden
TASKS = ("--tasks", "suites/tasks", "--limit", "3")


def run(out: Path, *more: str, target: str = "reference") -> int:
    return main(["eval", "--target", target, *TASKS, "--out", str(out), *more])


@pytest.mark.slow
def test_a_capture_of_evals_holds_what_lm_eval_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "ref"

    code = run(out, "--task", "k3_add3", "--task", "k3_text")

    told = capsys.readouterr()
    assert code == 0, told.err
    assert "k3_add3  strict-match  exact_match 1.0000  n = 3" in told.out
    assert "6 asked, 6 sent, 0 from cache" in told.out
    held = open_capture(out, label="ref").evals
    assert held is not None
    assert list(held.tasks) == ["k3_add3", "k3_text"]
    assert {item.bos for item in held.items} == {1}
    assert {item.truncated for item in held.items} == {False}
    assert [item.finish for item in held.items[:3]] == ["stop"] * 3
    folder = open_lm_eval(tmp_path / "ref.lm-eval", label="ref").evals
    assert [item.response for item in folder.items] == [item.response for item in held.items]
    assert [item.doc_hash for item in folder.items] == [item.doc_hash for item in held.items]
    (results,) = (tmp_path / "ref.lm-eval").glob("results_*.json")
    scores = json.loads(results.read_text())["results"]
    assert scores["k3_add3"]["exact_match,strict-match"] == 1.0
    assert 0 < scores["k3_text"]["bits_per_byte,none"] < 3


@pytest.mark.slow
def test_a_finished_run_is_kept_and_a_lost_capture_is_made_from_its_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "ref"
    assert run(out, "--task", "k3_copy") == 0
    before = (out / "manifest.json").read_bytes()
    assert run(out, "--task", "k3_copy", "--resume") == 0
    assert (out / "manifest.json").read_bytes() == before

    (out / "manifest.json").unlink()
    for path in (*out.glob("*.json*"), *out.glob("shards/*")):
        path.unlink()
    assert run(out, "--task", "k3_copy", "--resume") == 0

    assert "3 asked, 0 sent, 3 from cache" in capsys.readouterr().out
    manifest = open_capture(out, label="ref").manifest
    assert manifest.evidence == "emulated"
    assert manifest.path_proof.branches["lm_eval.loglikelihood"] == 1


def test_an_unknown_task_is_refused_with_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "x", "--task", "k3_addd3") == 2
    assert "did you mean 'k3_add3'?" in capsys.readouterr().err


def test_a_folder_without_tasks_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(
        ["eval", "--target", "rocm", "--tasks", str(tmp_path), "--out", str(tmp_path / "x")]
    )

    assert code == 2
    assert "holds no lm-eval task (*.yaml)" in capsys.readouterr().err


def test_a_folder_that_holds_something_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "note").write_text("mine")

    assert run(tmp_path) == 2
    assert "it exists and is not empty" in capsys.readouterr().err
