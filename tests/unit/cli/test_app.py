"""The program: fast help, exit codes, messages without tracebacks, stdout for results alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import validate
from validate.cli import main
from validate.cli.app import EXIT_BUG, EXIT_INTERRUPTED
from validate.errors import (
    CaptureError,
    IncomparableError,
    InputError,
    SuiteError,
    ValidateError,
)

ROOT = Path(__file__).parents[3]
PROGRAM = Path(sys.executable).with_name("validate")
HEAVY = ("torch", "numpy", "scipy", "pydantic", "rich", "safetensors")


def raising(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr("validate.cli.catalogue.open_project", fail)


@pytest.fixture(autouse=True)
def at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("VALIDATE_DEBUG", raising=False)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom validate.cli import main\nmain(['--help'])\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stderr.strip() == "[]"
    assert "compare" in done.stdout


def test_help_of_every_command_answers(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("compare", "capture", "golden", "golden record", "list", "doctor"):
        assert main([*command.split(), "--help"]) == 0
        assert f"validate {command}" in capsys.readouterr().out


def test_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"validate {validate.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Usage: validate"),
        (["comprae"], "Did you mean 'compare'?"),
        (["compare", "--ref", "cuda"], "Missing option '--cand'"),
        (["compare", "--ref", "cuda", "--cand", "rocm", "--ony", "x"], "--only"),
        (["compare", "--ref", "cuda", "--cand", "rocm", "--format", "xml"], "'console'"),
        (["list", "fautls"], "'faults'"),
    ],
)
def test_usage_errors_exit_2_with_a_hint_on_stderr(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2

    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("wrong\n  do next: this"), 2),
        (SuiteError("wrong\n  do next: this"), 2),
        (CaptureError("wrong\n  do next: this"), 4),
        (IncomparableError("wrong\n  do next: this"), 4),
        (ValidateError("wrong\n  do next: this"), 70),
    ],
)
def test_errors_of_ours_show_their_message_and_their_code(
    error: ValidateError,
    code: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raising(error, monkeypatch)

    assert main(["list", "faults"]) == code

    shown = capsys.readouterr()
    assert shown.err == f"{type(error).__name__}: wrong\n  do next: this\n"
    assert shown.out == ""


def test_a_name_of_a_megabyte_is_cut_in_a_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(CaptureError(f"{'x' * 1_000_000}\n  do next: this"), monkeypatch)

    assert main(["list", "faults"]) == 4

    shown = capsys.readouterr().err
    assert shown.endswith("... (998,000 more characters)\n  do next: this\n")
    assert len(shown) < 2_200


def test_any_other_error_exits_70_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(KeyError("a\nb"), monkeypatch)

    assert main(["list", "faults"]) == EXIT_BUG == 70

    assert capsys.readouterr().err == (
        "validate: KeyError: 'a\\nb'; this is a bug (traceback: --traceback or VALIDATE_DEBUG=1)\n"
    )


@pytest.mark.parametrize("how", ["option first", "option last", "variable"])
def test_traceback_is_shown_on_request_only(
    how: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(RuntimeError("odd"), monkeypatch)
    arguments = ["list", "faults"]
    if how == "variable":
        monkeypatch.setenv("VALIDATE_DEBUG", "1")
    else:
        arguments.insert(0 if how == "option first" else 2, "--traceback")

    assert main(arguments) == EXIT_BUG

    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last):")
    assert said.endswith("VALIDATE_DEBUG=1)\n")


def test_interruption_exits_130(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(KeyboardInterrupt(), monkeypatch)

    assert main(["list", "faults"]) == EXIT_INTERRUPTED == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["selftest"], "; run the same command again: rows that were judged are kept"),
        (["capture", "--target", "rocm", "--out", "nowhere"], ""),
        (["golden", "verify"], ""),
    ],
)
def test_interruption_says_what_its_command_keeps(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    said: str,
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("validate.cli.session.open_project", stop)
    monkeypatch.setattr("validate.cli.verify.open_project", stop)

    assert main(words) == EXIT_INTERRUPTED
    assert capsys.readouterr().err == f"interrupted{said}\n"


def test_interruption_prints_what_it_carries(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(KeyboardInterrupt("out holds \x1b[2J; to take it up: again"), monkeypatch)

    assert main(["list", "faults"]) == EXIT_INTERRUPTED
    said = capsys.readouterr().err
    assert said.startswith("interrupted; out holds ")
    assert said.endswith("; to take it up: again\n")
    assert "\x1b" not in said


def test_closed_stdout_is_no_traceback_and_no_success() -> None:
    code = (
        "import sys\nfrom validate.cli import main\n"
        "sys.exit(main(['list', 'faults', '--format', 'json']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()

    assert process.returncode == EXIT_BUG
    assert said == "validate: stdout was closed before the result was written\n"


def test_faults_list_is_the_json_that_was_promised(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "faults", "--format", "json"]) == 0

    shown = capsys.readouterr()
    faults = json.loads(shown.out)["faults"]
    keys = {"id", "title", "where", "expect", "gates", "severities", "source"}
    assert {frozenset(fault) for fault in faults} == {frozenset(keys)}
    told = {fault["id"]: (fault["where"], fault["expect"]) for fault in faults}
    assert len(told) == len(faults)
    assert (
        told.items()
        >= {
            "VX-01": ("cand", "FAIL"),
            "LC-01": ("cand", "FAIL"),
            "SA-04": ("cand", "FAIL"),
            "TV-12": ("ref", "INCOMPARABLE"),
            "TV-16": ("capture", "FAIL"),
            "VX-141": ("capture", "INCOMPARABLE"),
        }.items()
    )
    assert shown.err == ""


@pytest.mark.parametrize("things", ["targets", "metrics", "gates", "engines", "importers"])
def test_each_list_prints_a_table_and_json(things: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", things, "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)[things]
    assert main(["list", things]) == 0
    text = capsys.readouterr().out

    if rows:
        assert all(row["name"] in text for row in rows)
    else:
        assert text == f"no {things} yet\n"


def test_list_of_targets_shows_keys_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    main(["list", "targets"])

    text = capsys.readouterr().out
    assert "pad=zero|tile|repeat" in text
    assert "splits=<count>" in text


@pytest.mark.parametrize(
    ("given", "threads"),
    [({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3"), ({"OMP_NUM_THREADS": "2"}, None)],
    ids=["none", "its-own", "of-all"],
)
def test_blas_has_one_thread_unless_threads_were_asked_for(
    given: dict[str, str], threads: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "")  # so that what main sets is undone
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)

    assert main(["list", "gates"]) == 0

    assert os.environ.get("OPENBLAS_NUM_THREADS") == threads
