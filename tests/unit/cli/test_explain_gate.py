"""``compare --explain GATE``: what is refused before anything is captured, and a break said aloud."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.run.made import run, side
from validate.cli import main
from validate.cli.app import _explain_all
from validate.cli.judge import Asked
from validate.run.explain import attach, crashed
from validate.schema.explained import Explained, Rung
from validate.schema.report import Report

ROOT = Path(__file__).parents[3]
BAD = run(side("rocm", 3.0))
FOUND = Explained(
    gate="logits.kl_p90",
    outcome=BAD.gates[4].outcome,
    status="explained",
    summary="logits.kl_p90: cand errs on its own inputs in MLA (decode), layer 3, heads 1-11 of 12",
    rungs=(Rung(level="layer", text="3"), Rung(level="head", text="1-11 of 12")),
)
REPORTS = {
    "told": attach(BAD, FOUND),
    "broken": attach(BAD, crashed(BAD, "logits.kl_p90", RuntimeError("no such row"))),
}


@pytest.fixture(autouse=True)
def at_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "suites" / "prompts").mkdir(parents=True)
    (tmp_path / "golden").mkdir()
    names = ("suites/default.toml", "suites/prompts/default.jsonl", "golden/tolerances.toml")
    for name in ("validate.toml", *names):
        (tmp_path / name).write_text((ROOT / name).read_text("utf-8"), "utf-8")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    seen: list[Asked] = []

    def judge(what: Asked, progress: Any) -> Report:
        seen.append(what)
        return REPORTS[what.cand]

    monkeypatch.setattr("validate.cli.judge.judge", judge)
    return seen


def compare(*more: str) -> int:
    return main(["compare", "--ref", "cuda", *more])


def test_layer_and_head_are_printed_and_saved(
    asked: list[Asked], capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare("--cand", "told", "--explain", "logits.kl_p90", "--out", "here") == 1

    shown = capsys.readouterr().out
    assert asked[0].explain == "logits.kl_p90"
    assert "EXPLAINED: logits.kl_p90: cand errs on its own inputs in MLA" in shown
    assert re.search(r"\|layer +\| 3 ", shown)
    assert "1-11 of 12" in Path("here/report.md").read_text("utf-8")
    assert "1-11 of 12" in Path("here/report.html").read_text("utf-8")
    held = json.loads(Path("here/report.json").read_text("utf-8"))
    assert held["explained"]["status"] == "explained"


def test_an_explanation_that_breaks_off_is_said_aloud_beside_the_verdicts(
    asked: list[Asked], capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare("--cand", "broken", "--explain", "logits.kl_p90", "--out", "here") == 70

    shown = capsys.readouterr()
    assert "FAIL: cand is not the same model within the limits" in shown.out
    assert (
        "--explain logits.kl_p90: the explanation broke off with RuntimeError: no such row"
        in shown.err
    )
    assert "the verdicts above stand; they do not rest on it" in shown.err
    assert json.loads(Path("here/report.json").read_text("utf-8"))["verdict"] == "FAIL"


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["--explain"], ["--explain", "all"]),
        (["--explain", "--out", "x"], ["--explain", "all", "--out", "x"]),
        (["--explain", "logits.kl_p90"], ["--explain", "logits.kl_p90"]),
        (["--explain=all", "--fresh"], ["--explain=all", "--fresh"]),
    ],
)
def test_explain_alone_means_all(given: list[str], read: list[str]) -> None:
    assert _explain_all(given) == read


def test_all_of_each_gate_needs_no_explanation(
    asked: list[Asked], capsys: pytest.CaptureFixture[str]
) -> None:
    compare("--cand", "told", "--explain", "all")

    assert asked[0].explain is None
    assert "alpha share" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--explain", "logits.kl_p9O"], "no such gate; did you mean 'logits.kl_p90'?"),
        (["--explain", "evals.rates"], "only gates of attention, state, logits, greedy"),
        (["--explain", "logits.kl_p90", "--only", "state"], "this run leaves the gate out"),
        (["--explain", "logits.kl_p90", "--skip", "logits"], "this run leaves the gate out"),
        (
            ["--explain", "logits.kl_p90", "--dry-run"],
            "--dry-run with --explain: a plan judges nothing",
        ),
    ],
)
def test_what_cannot_be_explained_exits_2_before_anything_is_captured(
    given: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare("--cand", "rocm", *given) == 2

    assert words in capsys.readouterr().err
    assert not Path("runs").exists()
