"""Files that were not made here: found inside their folder only, pinned, read through small maps."""

import hashlib
import io
import mmap
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from validate.capture.messages import Fault

__all__ = ["WINDOW", "PinnedFile", "check_relative", "copy_range", "pin", "read_whole", "sha256_of"]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}")
WINDOW = 16 * 2**20
"""Bytes mapped at one time; the bound on what reading adds to resident memory."""
_FLAGS = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)


class PinnedFile(NamedTuple):
    """A regular file as it was when it was checked."""

    path: Path
    bytes: int
    identity: tuple[int, int, int]
    """Device, inode and modification time (ns); another triple is another file."""


def check_relative(path: str) -> None:
    """Check the form of a path that a manifest names, before it is used or shown.

    Raises:
        Fault: It is absolute, climbs out, or holds anything but plain file names.
    """
    parts = path.split("/")
    if any(part in (".", "..") or _NAME.fullmatch(part) is None for part in parts):
        msg = (
            f"artifact path {path!r} is not a relative path inside the capture (names of "
            "A-Z a-z 0-9 _ . - with '/' between them, no '..')"
        )
        raise Fault(msg)


def pin(root: Path, relative: str) -> PinnedFile:
    """Find ``relative`` inside ``root`` and note which file it is.

    Args:
        root: The capture.
        relative: A path from a manifest, not trusted.

    Raises:
        Fault: The path has not the form of ``check_relative``, leads out through
            a symbolic link, or names nothing or no regular file.
        OSError: The file system refuses.
    """
    check_relative(relative)
    home = os.path.realpath(root)
    try:
        real = Path(os.path.realpath(Path(home, relative), strict=True))
    except FileNotFoundError as err:
        msg = "the file is missing"
        raise Fault(msg) from err
    if not real.is_relative_to(home):
        msg = f"path {relative!r} leads out of the capture"
        raise Fault(msg, **{"leads to": str(real)})
    status = real.lstat()
    if not stat.S_ISREG(status.st_mode):
        msg = "is not a regular file"
        raise Fault(msg)
    return PinnedFile(real, status.st_size, _identity(status))


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_dev, status.st_ino, status.st_mtime_ns


@contextmanager
def _opened(file: PinnedFile) -> Iterator[io.FileIO]:
    """Open the very file that was pinned.

    Raises:
        Fault: Something else lies there now.
    """
    # Non-blocking, so that a pipe put in its place cannot hang the reader.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with io.FileIO(os.open(file.path, flags), "rb") as stream:
        status = os.fstat(stream.fileno())
        if (status.st_size, _identity(status)) != (file.bytes, file.identity):
            msg = "the file has changed since it was opened"
            raise Fault(
                msg, then=f"{file.bytes} bytes", now=f"{status.st_size} bytes, or written anew"
            )
        yield stream


def sha256_of(file: PinnedFile) -> str:
    """Digest of the file, read as a stream."""
    with _opened(file) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_whole(file: PinnedFile, *, cap: int) -> bytes:
    """The file's content, if it is at most ``cap`` bytes.

    Raises:
        Fault: It is larger, or it changed.
    """
    if file.bytes > cap:
        msg = f"the file has {file.bytes} bytes; at most {cap} are read"
        raise Fault(msg)
    out = bytearray(file.bytes)
    copy_range(file, 0, memoryview(out))
    return bytes(out)


def copy_range(file: PinnedFile, begin: int, out: memoryview) -> None:
    """Fill ``out`` with the bytes from ``begin`` on, window by window through a memory map.

    Each window is unmapped before the next, so that resident memory grows by
    one window, however large the file is.

    Raises:
        Fault: The file is not the one that was pinned, or ends too early.
    """
    with _opened(file) as stream:
        done = 0
        while done < len(out):
            at = begin + done
            start = at - at % mmap.ALLOCATIONGRANULARITY
            size = min(WINDOW, begin + len(out) - start)
            with (
                _window(stream, start, size) as window,
                memoryview(window) as view,
                view[at - start :] as part,
            ):
                out[done : done + len(part)] = part
                done += len(part)


def _window(stream: io.FileIO, start: int, size: int) -> mmap.mmap:
    try:
        return mmap.mmap(stream.fileno(), size, flags=_FLAGS, prot=mmap.PROT_READ, offset=start)
    except ValueError as err:
        msg = f"the file ends before byte {start + size}"
        raise Fault(msg) from err
