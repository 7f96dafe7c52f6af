"""The order of system calls that makes a file whole or absent."""

import errno
import os
from typing import Any

import pytest

from tests.captures import write_capture
from validate.capture import open_capture
from validate.capture.durable import append_line, write_whole


def record(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the calls from here on, in order; the folder's sync is told from a file's."""
    calls: list[str] = []
    folders: set[int] = set()

    def traced(name: str) -> Any:
        real = getattr(os, name)

        def call(*args: Any, **options: Any) -> Any:
            result = real(*args, **options)
            if name == "open" and args[1] & os.O_DIRECTORY:
                folders.add(result)
            what = "folder" if name in ("open", "fsync") and {args[0], result} & folders else "file"
            calls.append(f"{name} {what}" if name in ("open", "fsync") else name)
            return result

        return call

    for name in ("open", "write", "fsync", "replace"):
        monkeypatch.setattr(os, name, traced(name))
    return calls


def test_a_file_is_synced_before_its_name_appears_and_the_folder_after(tmp_path, monkeypatch):
    calls = record(monkeypatch)
    written = write_whole(tmp_path / "f", [b"ab", b"", b"c"], label="x", do_next="y")

    assert calls == [
        "open file",
        "write",
        "write",
        "fsync file",
        "replace",
        "open folder",
        "fsync folder",
    ]
    assert written.bytes == 3
    # sha256sum of the three bytes "abc", FIPS 180-4 example B.1.
    assert written.sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert (tmp_path / "f").read_bytes() == b"abc"


def test_short_writes_are_continued(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, bytes(data)[:3]))

    write_whole(tmp_path / "f", [bytes(range(10)), memoryview(b"xyzw")], label="x", do_next="y")

    assert (tmp_path / "f").read_bytes() == bytes(range(10)) + b"xyzw"


def test_a_link_in_the_place_of_the_temporary_file_is_not_followed(tmp_path):
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "f.partial").symlink_to(tmp_path / "victim")

    with pytest.raises(Exception, match="ELOOP"):
        write_whole(tmp_path / "f", [b"x"], label="x", do_next="y")
    assert (tmp_path / "victim").read_bytes() == b"precious"


def test_a_line_is_synced_and_a_failed_one_is_cut_off(tmp_path, monkeypatch):
    handle = os.open(tmp_path / "f", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    append_line(handle, b"one\n")

    def refuse(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="Input/output error"):
        append_line(handle, b"two\n")
    os.close(handle)

    assert (tmp_path / "f").read_bytes() == b"one\n"


def test_a_file_system_that_syncs_no_folders_and_locks_none_is_good_enough(tmp_path, monkeypatch):
    real = os.fsync

    def sync(handle: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{handle}"):  # noqa: PTH112  (a handle, not a path)
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        real(handle)

    def lock(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr("fcntl.flock", lock)
    write_capture(tmp_path / "c")

    assert open_capture(tmp_path / "c", label="cand").prompts
