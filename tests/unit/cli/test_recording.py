"""A recording that ends early says how it is taken up; its processes import what this one does."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.captures import make_header, make_prompt
from validate.capture import CaptureWriter
from validate.capture.format import MANIFEST
from validate.cli import main
from validate.cli.recording import own_modules, recording
from validate.errors import CaptureError, InputError

HERE = Path.cwd()
TASKS = HERE / "suites/tasks"
COMMAND = ("eval", "--tasks", "my tasks", "--limit", "3")


def begun(out, *names):
    """An unfinished capture, and files beside what it holds."""
    with CaptureWriter(out, header=make_header([make_prompt(0)]), command=COMMAND):
        pass
    for name in names:
        (out / name).write_text("x")
    return out


def test_what_was_begun_is_taken_up_by_a_command_with_all_its_options(tmp_path):
    out = begun(tmp_path / "out")
    again = (
        f"validate eval --resume --target rocm:pad=tile --out {out} --tasks 'my tasks' --limit 3"
    )

    with pytest.raises(CaptureError) as caught, recording(out):
        raise CaptureError("died")
    assert str(caught.value) == (
        f"died\n  note   : {out} holds what was recorded; to take it up: {again}"
    )


def test_a_message_that_names_the_command_is_left_as_it_is(tmp_path):
    out = begun(tmp_path / "out")
    error = f"full\n  do next: validate eval --resume --target rocm:pad=tile --out {out} --tasks 'my tasks' --limit 3"

    with pytest.raises(CaptureError) as caught, recording(out):
        raise CaptureError(error)
    assert str(caught.value) == error


def test_where_all_is_there_nothing_is_added(tmp_path):
    with pytest.raises(CaptureError, match=r"^died$"), recording(begun(tmp_path / "out", MANIFEST)):
        raise CaptureError("died")


@pytest.mark.parametrize("names", [(), ("thesis.tex",)])
def test_where_nothing_was_begun_nothing_is_added(tmp_path, names):
    for name in names:
        (tmp_path / name).touch()

    with pytest.raises(CaptureError, match=r"^died$"), recording(tmp_path):
        raise CaptureError("died")


def test_a_damaged_journal_adds_nothing(tmp_path):
    out = begun(tmp_path / "out")
    (out / "journal.jsonl").write_text("{}\n")

    with pytest.raises(CaptureError, match=r"^died$"), recording(out):
        raise CaptureError("died")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS])
def test_a_file_that_cannot_be_written_is_no_bug(tmp_path, code):
    told = (
        rf"^samples: the recording could not be written: {os.strerror(code)} \({errno.errorcode[code]}\)"
        r"\n  do next: free space there, or name another folder with --out$"
    )

    with pytest.raises(CaptureError, match=told), recording(tmp_path / "out"):
        raise OSError(code, os.strerror(code), "samples")


def test_a_full_disk_at_an_unknown_place_does_not_blame_the_folder(tmp_path):
    with pytest.raises(CaptureError) as caught, recording(tmp_path / "out"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert str(caught.value) == (
        "the recording could not be written: No space left on device (ENOSPC), at a place that "
        "the system does not name\n"
        "  do next: free space (the capture, its evals, runs and the temporary folder may lie on "
        "different disks)"
    )


def test_a_recording_whose_folder_is_given_is_sent_to_no_option(tmp_path):
    with pytest.raises(CaptureError) as caught, recording(tmp_path / "out", option=None):
        raise OSError(errno.ENOSPC, "No space left on device", "samples")
    assert str(caught.value).endswith("\n  do next: free space there")


def test_an_interruption_tells_the_command_that_takes_the_recording_up(tmp_path):
    out = begun(tmp_path / "out")

    with pytest.raises(KeyboardInterrupt) as caught, recording(out):
        raise KeyboardInterrupt
    assert str(caught.value) == (
        f"{out} holds what was recorded; to take it up: validate eval --resume --target "
        f"rocm:pad=tile --out {out} --tasks 'my tasks' --limit 3"
    )


def test_an_interruption_that_left_nothing_to_take_up_tells_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt) as caught, recording(tmp_path / "out"):
        raise KeyboardInterrupt
    assert str(caught.value) == ""


def test_an_interrupted_capture_prints_its_command_and_exits_130(tmp_path, capsys, monkeypatch):
    def stop(*_, out, command, **__):
        with CaptureWriter(out, header=make_header([make_prompt(0)]), command=command):
            raise KeyboardInterrupt

    monkeypatch.setattr("validate.capture.resolve.record_target", stop)
    monkeypatch.setattr("validate.cli.session.load_prompts", lambda _: ())
    out = tmp_path / "out"

    assert main(["capture", "--target", "rocm", "--device", "cpu", "--out", str(out)]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"interrupted; {out} holds what was recorded; to take it up: validate capture --resume "
        f"--target rocm:pad=tile --out {out} --device cpu"
    )


@pytest.mark.parametrize("error", [InputError("no"), OSError(errno.ENOENT, "no"), ValueError("no")])
def test_other_errors_stay_what_they_are(tmp_path, error):
    with pytest.raises(type(error)) as caught, recording(begun(tmp_path / "out")):
        raise error
    assert caught.value is error


@pytest.mark.parametrize("before", [None, ""])
def test_processes_import_no_module_of_the_working_directory(tmp_path, monkeypatch, before):
    (tmp_path / "tokenize.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    if before is not None:
        monkeypatch.setenv("PYTHONSAFEPATH", before)
    command = [sys.executable, "-c", "import tokenize; print(tokenize.__file__)"]

    with own_modules():
        told = subprocess.run(command, capture_output=True, text=True, check=False)

    assert told.returncode == 0, told.stderr
    assert str(tmp_path) not in told.stdout
    assert os.environ.get("PYTHONSAFEPATH") == before


def test_tasks_are_checked_before_anything_is_recorded(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("validate.capture.resolve.record_target", None)
    (tmp_path / "none").mkdir()
    out = tmp_path / "out"

    code = main(
        ["capture", "--target", "rocm", "--tasks", str(tmp_path / "none"), "--out", str(out)]
    )

    assert code == 2
    assert "holds no lm-eval task (*.yaml)" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["capture"], ("capture",)),
        (
            ["capture", "--device", "cpu", "--tasks", "suites/tasks", "--prompts", "p.jsonl"],
            ("capture", "--prompts", HERE / "p.jsonl", "--tasks", TASKS, "--device", "cpu"),
        ),
        (["eval", "--tasks", "suites/tasks"], ("eval", "--tasks", TASKS)),
        (
            ["eval", "--whole", "--limit", "3", "--task", "k3_copy", "--tasks", "suites/tasks"],
            ("eval", "--tasks", TASKS, "--task", "k3_copy", "--limit", "3", "--whole"),
        ),
    ],
)
def test_a_recording_knows_the_command_that_takes_it_up(tmp_path, monkeypatch, words, command):
    """What stops it here stands for any end; all options but --resume, --target and --out.

    Places are whole, for it may be given from another folder.
    """
    calls = []

    def stop(*_, **given):
        calls.append(given["command"])
        raise InputError("stopped")

    monkeypatch.setattr("validate.capture.resolve.record_target", stop)
    monkeypatch.setattr("validate.cli.session.load_prompts", lambda _: ())

    assert main([*words, "--target", "rocm", "--out", str(tmp_path / "out")]) == 2
    assert calls == [tuple(map(str, command))]
