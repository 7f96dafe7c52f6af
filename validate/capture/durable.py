"""Files made here: whole under their name or not there at all, even after a crash."""

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from validate.capture.messages import capture_error, cause
from validate.errors import CaptureError

__all__ = [
    "TEMPORARY",
    "Written",
    "append_line",
    "remove",
    "sync_folder",
    "write_error",
    "write_whole",
]

TEMPORARY = ".partial"
"""Ending of a file that is being written."""


class Written(NamedTuple):
    """Size and digest of what was written."""

    bytes: int
    sha256: str


def write_error(
    err: OSError, label: str, path: Path, *, written: int, do_next: str
) -> CaptureError:
    """The one message for a failing write: path, cause, bytes that went out, next step."""
    what = f"{cause(err)}; {written} bytes were written; the capture is unfinished"
    return capture_error(
        label, path, what, do_next=f"free space or repair the disk, then {do_next}"
    )


def write_whole(
    path: Path, chunks: Iterable[bytes | memoryview], *, label: str, do_next: str
) -> Written:
    """Write a file so that its name appears only when all of it is on the disk.

    A temporary file beside it is written, synced and renamed, then the folder
    is synced. When anything stops that, an interruption too, the temporary
    file is removed.

    Raises:
        CaptureError: The operating system refused.
    """
    temporary = path.with_name(path.name + TEMPORARY)
    total = hashlib.sha256()
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(temporary, flags, 0o644)
        try:
            for chunk in chunks:
                total.update(chunk)
                _write_all(handle, chunk)
            os.fsync(handle)
            size = os.fstat(handle).st_size
        finally:
            os.close(handle)
        os.replace(temporary, path)  # noqa: PTH105  (tests fail each system call by its name)
        sync_folder(path.parent)
    except BaseException as err:
        written = 0
        with contextlib.suppress(OSError):
            written = temporary.stat().st_size
            temporary.unlink()
        if isinstance(err, OSError):
            raise write_error(err, label, path, written=written, do_next=do_next) from err
        raise
    return Written(size, total.hexdigest())


def append_line(handle: int, line: bytes) -> None:
    """Append to an open file and sync it; what a failure leaves has no newline or is cut off.

    Raises:
        OSError: The operating system refused.
    """
    before = os.fstat(handle).st_size
    try:
        _write_all(handle, line)
        os.fsync(handle)
    except BaseException:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, before)
        raise


def remove(path: Path) -> None:
    """Remove a file, if it is there, for good."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames and removals in ``folder`` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as err:
        # Some network file systems cannot sync a folder; files are synced all the same.
        if err.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def _write_all(handle: int, chunk: bytes | memoryview) -> None:
    with memoryview(chunk) as view:
        done = 0
        while done < len(view):
            done += os.write(handle, view[done:])
