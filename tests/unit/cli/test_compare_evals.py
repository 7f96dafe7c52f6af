"""Two lm-eval folders through the command line: planted faults of the harness, and bad input."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.lm_eval_folders import Sample, choice_samples, text_samples, write_folder
from tests.unit.metrics.evals_made import beside
from validate.cli import main
from validate.faults.evals import plant

ROOT = Path(__file__).parents[3]
N = 600

Tasks = dict[str, list[Sample]]


@pytest.fixture(autouse=True)
def at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def tasks(*, noise: float = 0.0, choices: bool = True) -> Tasks:
    made = {"gsm8k": text_samples([1] * N, filters=["none"], beside=beside)}
    return made | ({"arc": choice_samples(N, seed=1, noise=noise)} if choices else {})


def judged(ref: Path, cand: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code, and all that was printed with its lines joined."""
    out = str(ref.parent / "report")
    code = main(["compare", "--ref", str(ref), "--cand", str(cand), "--out", out])
    told = capsys.readouterr()
    return code, " ".join((told.out + told.err).split())


@pytest.mark.parametrize(
    ("fault", "code", "cause"),
    [
        ("TV-03", 4, "agree to the last digit: one of them was served from the other's cache"),
        ("TV-06", 1, "FAIL evals.signal: 1200 empty answers, limit exactly 0"),
        ("TV-07", 1, "FAIL evals.rates: "),
        ("TV-08", 4, "cand has BOS twice"),
    ],
)
def test_planted_fault_is_told_with_its_cause(
    fault: str, code: int, cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only folders that keep prompt tokens can show a second BOS."""
    ref = write_folder(tmp_path / "ref", tasks(choices=fault != "TV-08"))
    cand = write_folder(
        tmp_path / "cand", tasks(noise=0.02, choices=fault != "TV-08"), model="vllm"
    )
    plant(fault, ref=ref, cand=cand)

    found, said = judged(ref, cand, capsys)

    assert found == code, said
    assert cause in said


def other_answers(_: Tasks) -> Tasks:
    return {"gsm8k": tasks()["gsm8k"]}


def other_filters(made: Tasks) -> Tasks:
    return made | {"gsm8k": text_samples([1] * N, filters=["strict-match"], beside=beside)}


def missing(made: Tasks) -> Tasks:
    return made | {"arc": made["arc"][:-1]}


def no_number(made: Tasks) -> Tasks:
    return made | {"gsm8k": [sample | {"exact_match": "N/A"} for sample in made["gsm8k"]]}


def three(made: Tasks) -> Tasks:
    samples = list(made["gsm8k"])
    for doc in (4, 17, 300):
        samples[doc] = samples[doc] | {"exact_match": "N/A"}
    return made | {"gsm8k": samples}


def same(made: Tasks) -> Tasks:
    return made


@pytest.mark.parametrize(
    ("change", "head", "code", "told"),
    [
        (other_answers, {}, 4, "tasks only in ref: arc"),
        (same, {"version": "2.0"}, 4, "task arc, version: ref 1.0, cand 2.0"),
        (same, {"fewshot": 5}, 4, "task arc, few-shot count: ref 0, cand 5"),
        (other_filters, {}, 4, "task gsm8k, filters: ref none, cand strict-match"),
        (missing, {}, 4, "task arc, number of items: ref 600, cand 599 (do next: run all tasks "),
        (no_number, {}, 1, "FAIL evals.score_drop: 100 points, limit 1"),
        (no_number, {}, 1, "where: cand: 600 items have no score (gsm8k doc 0, gsm8k doc 1, "),
        (three, {}, 3, "cand: 3 items have no score (gsm8k doc 4, gsm8k doc 17, gsm8k doc 300)"),
    ],
)
def test_other_runs_are_told_apart(
    change: Callable[[Tasks], Tasks],
    head: Mapping[str, Any],
    code: int,
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What differs is named, and which side has what; a number that cand lacks is a wrong answer."""
    ref = write_folder(tmp_path / "ref", tasks())
    cand = write_folder(tmp_path / "cand", change(tasks(noise=0.02)), model="vllm", **head)

    found, said = judged(ref, cand, capsys)

    assert found == code, said
    assert told in said


def half(lines: list[str]) -> list[str]:
    return [*lines[:-1], lines[-1][:40]]


def doubled(lines: list[str]) -> list[str]:
    return [*lines, lines[0]]


def short(lines: list[str]) -> list[str]:
    return lines[:-10]


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (half, "line 600 is no whole sample (the file ends in the middle of it: half-written)"),
        (doubled, "lines 1 and 601 both hold doc_id 0, filter 'none': duplicated items"),
        (short, "holds 590 of the 600 items that the results file counts"),
    ],
)
def test_damaged_folder_is_refused_by_line_or_count(
    damage: Callable[[list[str]], list[str]],
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit 4, as for every damaged capture: nothing was compared."""
    ref = write_folder(tmp_path / "ref", tasks())
    cand = write_folder(tmp_path / "cand", tasks(noise=0.02), model="vllm")
    path = next(cand.rglob("samples_arc_*"))
    path.write_text("\n".join(damage(path.read_text("utf-8").splitlines())), "utf-8")

    found, said = judged(ref, cand, capsys)

    assert found == 4, said
    assert told in said
    assert "cand" in said


def test_samples_without_hashes_say_what_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Joined by doc_id, and the report says which check is lost by it."""
    ref = write_folder(tmp_path / "ref", tasks())
    cand = write_folder(tmp_path / "cand", tasks(noise=0.02), model="vllm")
    for path in cand.rglob("samples_*"):
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        bare = [{k: v for k, v in s.items() if k not in ("doc_hash", "prompt_hash")} for s in lines]
        path.write_text("".join(json.dumps(s) + "\n" for s in bare), "utf-8")

    found, said = judged(ref, cand, capsys)

    assert found == 0, said
    assert "1200 of 1200 samples have no hashes: they are paired by doc_id" in said


def test_run_on_folders_cannot_be_bundled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Told as such: nothing of ours may be written into a folder of somebody's results."""
    ref = write_folder(tmp_path / "ref", tasks())
    cand = write_folder(tmp_path / "cand", tasks(noise=0.02), model="vllm")
    judged(ref, cand, capsys)
    zipped = tmp_path / "evidence.zip"

    assert main(["report", "--bundle", str(zipped), str(tmp_path / "report")]) == 2

    said = " ".join(capsys.readouterr().err.split())
    assert f"ref '{ref}': {ref / 'toy__model'} is an output folder of lm-eval" in said
    assert "a bundle holds captures alone, so this run cannot be bundled do next: keep" in said
    assert "--resume" not in said
    assert not zipped.exists()
