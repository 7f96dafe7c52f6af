"""A place that takes no results is refused before the work, by every command, with 2."""

import runpy
import sys
from pathlib import Path

import pytest

from tests.unit.run.made import run, side
from validate.cli import main
from validate.report import write_reports

SIDES = ["--ref", "cuda", "--cand", "cuda-repeat"]
COMMANDS = {
    "compare": ["compare", *SIDES, "--out"],
    "capture": ["capture", "--target", "rocm", "--out"],
    "eval": ["eval", "--target", "rocm", "--tasks", "suites/tasks", "--out"],
    "selftest": ["selftest", "--area", "pairing", "--out"],
    "selftest-rows": ["selftest", "--area", "pairing", "--rows"],
    "calibrate": ["golden", "calibrate", "--out"],
    "conformance": ["conformance", "--op", "situ", "--impl", "torch:situ", "--out"],
}
WORK = {
    "validate.cli.judge.judge",
    "validate.capture.resolve.record_target",
    "validate.selftest.area.area_selftest",
    "validate.cli.calibrate.gather",
    "validate.cli.conformance_run.run_conformance",
}


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """No work can begin."""

    def work(*_args: object, **_more: object) -> None:
        pytest.fail("work began")

    for name in WORK:
        monkeypatch.setattr(name, work)


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_in_place_of_a_folder(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("kept", "utf-8")

    assert main([*COMMANDS[name], str(file / "below")]) == 2

    told = capsys.readouterr().err
    assert told.startswith("InputError: ")
    assert str(file) in told
    assert "next: " in told
    assert file.read_text("utf-8") == "kept"


@pytest.mark.usefixtures("idle")
def test_reports_folder_of_the_project_that_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "validate.toml").write_bytes(Path("validate.toml").read_bytes())
    (tmp_path / "reports").write_text("a file", "utf-8")
    monkeypatch.chdir(tmp_path)

    assert main(["compare", *SIDES]) == 2
    assert "name another folder with --out" in capsys.readouterr().err


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    write_reports(run(side("rocm", 0.1)), tmp_path / "run")
    (tmp_path / "file").write_text("kept", "utf-8")
    return tmp_path


def test_report_is_not_written_into_a_file(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(saved / "run"), "--out", str(saved / "file")]) == 2
    assert "it is a file, no folder" in capsys.readouterr().err
    assert main(["report", str(saved / "run"), "--bundle", str(saved / "no" / "b.zip")]) == 2
    assert f"there is no folder {saved / 'no'}" in capsys.readouterr().err
    assert main(["report", str(saved / "run"), "--bundle", str(saved / "run")]) == 2
    assert "it is a folder" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["false_alarms", "evals_power", "spec_alarms"])
def test_program_beside_the_commands(
    name: str, saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--out", str(saved / "file")])
    monkeypatch.delitem(sys.modules, f"validate.cli.{name}", raising=False)
    with pytest.raises(SystemExit) as left:
        runpy.run_module(f"validate.cli.{name}", run_name="__main__")

    assert left.value.code == 2
    assert capsys.readouterr().err.startswith("InputError: --out ")
