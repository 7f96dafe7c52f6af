"""Options that together can produce nothing, or would not be looked at, are refused with 2."""

import shutil
from pathlib import Path

import pytest

from validate.cli import main

SIDES = ["compare", "--ref", "cuda", "--cand"]
REFUSED = {
    "fresh-stored": (
        [*SIDES, "cuda-repeat", "--fresh"],
        "--fresh: cuda and cuda-repeat are stored",
    ),
    "plan-markdown": (
        [*SIDES, "rocm", "--dry-run", "--format", "markdown"],
        "--dry-run with --format markdown",
    ),
    "only-nothing": ([*SIDES, "rocm", "--only", "logits", "--skip", "logits"], "no gate of "),
    "only-empty": ([*SIDES, "rocm", "--only", ""], "--only : no area or gate"),
    "no-such-length": ([*SIDES, "rocm", "--tokens", "99999-"], "none of 65 prompts has such a"),
    "bundle-format": (
        ["report", "--bundle", "x.zip", "--format", "json"],
        "--bundle with --format json: a bundle is written, no report is printed",
    ),
    "diff-out": (["report", "--diff", "a", "b", "--out", "c"], "--diff and --out"),
    "list-suite": (
        ["list", "faults", "--suite", "suites/default.toml"],
        "list faults --suite suites/default.toml: only gates and limits depend on a suite",
    ),
    "oracle-tasks": (
        ["golden", "record", "oracle", "--tasks", "suites/tasks"],
        "--tasks suites/tasks: oracle is the oracle, which runs no evals",
    ),
    "selftest-quick": (
        ["selftest", "--only-fault", "VX-01", "--quick"],
        "--only-fault with --quick: both choose",
    ),
    "selftest-clean": (["selftest", "--clean", "3", "--quick"], "--clean judges candidates"),
    "selftest-area": (
        ["selftest", "--area", "pairing", "--only-fault", "VX-01"],
        "--only-fault VX-01: no fault and no control here",
    ),
    "conformance-limit": (
        ["conformance", "--selftest", "--time-limit", "5"],
        "--selftest with --time-limit",
    ),
    "conformance-full": (
        ["conformance", "--case", "none", "--full"],
        "--full: a saved case is one input",
    ),
    "power-here": (["power", "--ref", "rocm"], "--ref rocm: it runs here and has no repeats"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_before_any_work(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, said = REFUSED[name]

    assert main(words) == 2

    told = capsys.readouterr()
    assert said in told.err
    assert told.out == ""


def test_message_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "a\x1b[2Jb\u202e"]) == 2

    told = capsys.readouterr().err
    assert "a\\x1b[2Jb\\u202e: there is no such file or folder\n" in told
    assert told.isprintable() or all(line.isprintable() for line in told.splitlines())


def test_every_refusal_names_a_file_that_is_left_alone(tmp_path: Path) -> None:
    """``--bundle`` beside ``--format``: the file of an earlier bundle stays."""
    kept = tmp_path / "x.zip"
    shutil.copy("validate.toml", kept)

    assert main(["report", "--bundle", str(kept), "--format", "json"]) == 2
    assert kept.read_bytes() == Path("validate.toml").read_bytes()
