"""A recording that ends early says how it is taken up; its processes import what this one does."""

import errno
import os
import subprocess
import sys

import pytest

from validate.capture.format import MANIFEST
from validate.cli import main
from validate.cli.recording import own_modules, recording
from validate.errors import CaptureError, InputError


def begun(folder, *names):
    folder.mkdir()
    for name in names:
        (folder / name).write_text("x")
    return folder


def test_what_was_begun_is_taken_up_by_the_same_command(tmp_path):
    out = begun(tmp_path / "out", "shard")
    told = rf"died\n  note   : {out} holds what was recorded; the same command with all its options"

    with pytest.raises(CaptureError, match=told + " and --resume takes it up"), recording(out):
        raise CaptureError("died")


@pytest.mark.parametrize("names", [(), ("shard", MANIFEST)])
def test_where_nothing_or_all_is_there_nothing_is_added(tmp_path, names):
    with pytest.raises(CaptureError, match=r"^died$"), recording(begun(tmp_path / "out", *names)):
        raise CaptureError("died")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS])
def test_a_file_that_cannot_be_written_is_no_bug(tmp_path, code):
    told = rf"^samples: the recording could not be written: {os.strerror(code)}\n  do next: free"

    with pytest.raises(CaptureError, match=told), recording(tmp_path / "out"):
        raise OSError(code, os.strerror(code), "samples")


@pytest.mark.parametrize("error", [InputError("no"), OSError(errno.ENOENT, "no"), ValueError("no")])
def test_other_errors_stay_what_they_are(tmp_path, error):
    with pytest.raises(type(error)) as caught, recording(begun(tmp_path / "out", "shard")):
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
