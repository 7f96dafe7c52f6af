"""What faults cost on lm-eval's tasks, against the evals of the shipped golden.

Each case runs six tasks of 500 items on this machine's CPU, most of a minute of processor time.
"""

import json
from pathlib import Path

import pytest

from validate.cli import main

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.golden, pytest.mark.slow, pytest.mark.long]


@pytest.mark.parametrize(
    ("target", "failed", "lost"),
    [
        ("rocm", set(), {}),
        ("rocm:fault=LA-01", {"score_drop", "loglik_delta"}, {"k3_copy": 500, "k3_recall24": 70}),
        ("rocm:fault=LA-14", {"score_drop", "loglik_delta"}, {"k3_recall24": 145}),
        ("rocm:fault=ND-06", {"score_drop"}, {"k3_add3 (strict-match)": 41}),
    ],
)
def test_evals_against_the_golden(
    target: str,
    failed: set[str],
    lost: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The table of docs/evals.md, "What a fault costs"; flips may differ by a few between CPUs."""
    monkeypatch.chdir(ROOT)
    out = tmp_path / "cand"
    assert main(["eval", "--target", target, "--tasks", "suites/tasks", "--out", str(out)]) == 0
    capsys.readouterr()

    words = ["--ref", "cuda", "--cand", str(out), "--only", "evals", "--format", "json"]
    code = main(["compare", *words, "--out", str(tmp_path / "report")])

    report = json.loads(capsys.readouterr().out)
    gates = {gate["name"]: gate for gate in report["gates"]}
    assert code == (1 if failed else 0)
    assert {n for n, g in gates.items() if g["outcome"] != "PASS"} == {f"evals.{n}" for n in failed}
    found = gates["evals.score_drop"]["measurement"]["breakdown"]
    for score, items in lost.items():
        assert abs(found[f"{score}: lost"] - items) <= 0.1 * items
    assert report["notes"][0].startswith("evals are judged alone, for cand ")
