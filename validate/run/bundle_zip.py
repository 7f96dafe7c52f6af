"""The container of a bundle: written the same on every machine, read as hostile until checked."""

import difflib
import os
import re
import stat
import struct
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from validate.errors import CaptureError, InputError

__all__ = ["ASK", "INDEX", "MOST_BYTES", "MOST_FILES", "check_container", "unpack", "write_zip"]

INDEX = "bundle.json"
"""Always the first file."""
MOST_BYTES = 2**31
"""Of the container, and of all files inside together: nothing inside is compressed."""
MOST_FILES = 2_000
MOST_TEXT = 2**26
"""Bytes of a file that is read as a whole: a report, a suite, a page."""
BULKY = ("captures/", "model/")
"""Folders whose files are read piece by piece, or under limits of their own."""
DEEPEST = 8
"""Folders in a name."""
_PART = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_STAMP = (1980, 1, 1, 0, 0, 0)
_MODE = (stat.S_IFREG | 0o644) << 16
_BLOCK = 2**20
_LOCAL = b"PK\x03\x04"
"""How a file inside begins."""
_HEAD = struct.Struct("<4s14xI4xHH")
"""Its header: mark, bytes held, length of the name, length of what follows the name."""
ASK = "ask whoever made it for the file again, or make it with validate report --bundle"
AGAIN = "copy or download it again, and compare its sha256 with that which validate report --bundle told"


def write_zip(out: Path, files: Mapping[str, Path | bytes]) -> None:
    """Write a zip whose bytes depend on the names and contents alone; whole or not at all.

    Nothing is compressed: what a compressor writes differs between its versions.

    Args:
        out: The file to write.
        files: Content by name; ``bundle.json`` comes first, the others by name.

    Raises:
        InputError: It cannot be written, or the files are too many or too large.
    """
    try:
        handle, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.")
        try:
            with os.fdopen(handle, "w+b") as stream:
                _write(stream, files)
            Path(name).chmod(0o644)
            Path(name).replace(out)
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        msg = (
            f"{out}: the bundle cannot be written ({error.strerror})\n"
            "  do next: name another file with --bundle, or free some space"
        )
        raise InputError(msg) from error


def _write(stream: BinaryIO, files: Mapping[str, Path | bytes]) -> None:
    names = sorted(files, key=lambda name: (name != INDEX, name))
    total = sum(_size(files[name]) for name in names)
    if len(names) > MOST_FILES or total > MOST_BYTES - 2**20:
        msg = (
            f"the bundle would hold {len(names)} files of {total} bytes together; at most "
            f"{MOST_FILES} files and {MOST_BYTES} bytes\n  do next: capture fewer prompts"
        )
        raise InputError(msg)
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED, allowZip64=False) as archive:
        for name in names:
            entry = zipfile.ZipInfo(name, date_time=_STAMP)
            entry.create_system = 3
            entry.external_attr = _MODE
            content = files[name]
            entry.file_size = _size(content)
            with archive.open(entry, "w") as into:
                if isinstance(content, bytes):
                    into.write(content)
                else:
                    with content.open("rb") as source:
                        while block := source.read(_BLOCK):
                            into.write(block)


def _size(content: Path | bytes) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def unpack(bundle: Path, into: Path) -> tuple[str, ...]:
    """Write the files of a bundle below an empty folder, after every name and size was checked.

    Args:
        bundle: A zip file, not trusted.
        into: An empty folder, for these files alone.

    Returns:
        Their names, in the order of the container.

    Raises:
        InputError: There is no such file.
        CaptureError: It is no bundle, or holds what a bundle never holds: a name that is
            absolute, climbs out or stands there twice, a link or folder, compressed or encrypted
            content, too many or too many bytes; or the content of a file is not what it was.
    """
    if not bundle.is_file():
        raise InputError(_no_file(bundle))
    try:
        return _unpacked(bundle, into)
    except OSError as error:
        msg = (
            f"bundle {bundle}: cannot be read ({error.strerror})\n"
            "  do next: make it readable, or copy it to another disk"
        )
        raise InputError(msg) from error


def _unpacked(bundle: Path, into: Path) -> tuple[str, ...]:
    try:
        with zipfile.ZipFile(bundle) as archive:
            entries = archive.infolist()
            _check_entries(bundle, entries)
            for entry in entries:
                _extract(bundle, archive, entry, into)
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise _no_zip(bundle, error) from error
    return tuple(entry.filename for entry in entries)


def _no_file(bundle: Path) -> str:
    """Why there is nothing to check, with the nearest name beside it."""
    if bundle.is_dir():
        what = f"is a folder; --check takes one zip file, such as {bundle / 'evidence.zip'}"
    elif bundle.exists():
        what = "is no regular file"
    elif bundle.is_symlink():
        what = f"is a link to {bundle.readlink()}, where there is no file"
    else:
        beside = [path.name for path in bundle.parent.glob("*")] if bundle.parent.is_dir() else []
        near = difflib.get_close_matches(bundle.name, beside, n=1)
        what = "there is no such file" + (f"; did you mean '{near[0]}'?" if near else "")
    return (
        f"{bundle}: {what}\n  do next: name the zip file that validate report --bundle wrote, or make "
        "one: validate report --bundle evidence.zip RUN"
    )


def _no_zip(bundle: Path, error: Exception) -> CaptureError:
    """Why a file cannot be opened as a zip: empty, something else, or cut short and where."""
    with bundle.open("rb") as stream:
        first = stream.read(4)
    size = bundle.stat().st_size
    if size == 0:
        return _refused(bundle, "is no whole zip file but empty (0 bytes)", AGAIN)
    if first != _LOCAL:
        return _refused(bundle, f"is no zip file: it begins with {first!r}")
    last = _last_begun(bundle, size)
    if last is None:
        words = f"is no whole zip file: the directory at its end is missing or damaged ({error})"
    else:
        words = f"is no whole zip file: {last} was cut short, {size} bytes are there"
    return _refused(bundle, words, AGAIN)


def _last_begun(bundle: Path, size: int) -> str | None:
    """The file inside that ends behind the end of the container; None when none does."""
    at = 0
    with bundle.open("rb") as stream:
        while at < size:
            stream.seek(at)
            head = stream.read(_HEAD.size)
            if head[:4] != _LOCAL[: len(head[:4])]:
                return None
            if len(head) < _HEAD.size:
                return "the next file's header"
            held, name, more = _HEAD.unpack(head)[-3:]
            told = stream.read(name).decode("utf-8", errors="replace")
            at += _HEAD.size + name + more + held
            if at > size:
                return repr(told)
    return "the directory at its end"


def _check_entries(bundle: Path, entries: Sequence[zipfile.ZipInfo]) -> None:
    size = bundle.stat().st_size
    total = sum(entry.file_size for entry in entries)
    if len(entries) > MOST_FILES or max(size, total) > MOST_BYTES:
        words = f"holds {len(entries)} files of {total} bytes in a container of {size}"
        raise _refused(bundle, f"{words}; at most {MOST_FILES} files and {MOST_BYTES} bytes")
    if total > size:
        largest = max(entries, key=lambda entry: entry.file_size)
        words = f"says that its files have {total} bytes, more than its own {size}"
        words += f" ({largest.filename!r} alone {largest.file_size})"
        raise _refused(bundle, f"{words}: nothing in a bundle is compressed (a zip bomb?)")
    seen: set[str] = set()
    for entry in entries:
        if (why := _wrong(entry)) is not None:
            raise _refused(bundle, f"the name {entry.filename!r} {why}")
        if entry.filename.casefold() in seen:
            raise _refused(bundle, f"the name {entry.filename!r} stands there twice")
        seen.add(entry.filename.casefold())
    for entry in entries:
        for parent in PurePosixPath(entry.filename.casefold()).parents:
            if str(parent) in seen:
                words = f"the name {entry.filename!r} lies below {str(parent)!r}, which is a file"
                raise _refused(bundle, words)


def _wrong(entry: zipfile.ZipInfo) -> str | None:  # noqa: PLR0911  one reason a line
    """Why a bundle never holds such an entry; None when it may."""
    parts = entry.filename.split("/")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if entry.orig_filename != entry.filename or len(parts) > DEEPEST:
        return "is cut short or too deep"
    if any(part in (".", "..") or _PART.fullmatch(part) is None for part in parts):
        return (
            "is no relative path inside the bundle (names of A-Z a-z 0-9 _ . - with '/' between "
            "them, no '..')"
        )
    if kind != stat.S_IFREG:
        return "is no regular file but a link, a folder or a device"
    if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
        return (
            f"is compressed from {entry.file_size} bytes to {entry.compress_size}; a bundle "
            "compresses nothing"
        )
    if entry.file_size > MOST_TEXT and not entry.filename.startswith(BULKY):
        return f"has {entry.file_size} bytes; outside captures at most {MOST_TEXT} are read"
    return "is encrypted" if entry.flag_bits & 1 else None


def _extract(bundle: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, into: Path) -> None:
    target = into / entry.filename
    target.parent.mkdir(parents=True, exist_ok=True)
    done = 0
    try:
        with archive.open(entry) as source, target.open("xb") as out:
            while block := source.read(_BLOCK):
                done += len(block)
                out.write(block)
    except (zipfile.BadZipFile, EOFError) as error:
        words = f"{entry.filename}: its bytes are not those the bundle was made of ({error})"
        raise _refused(bundle, words) from error
    except OSError as error:
        words = f"{entry.filename}: cannot be unpacked into {into.parent} ({error.strerror})"
        free = "free some space there, or name another folder with TMPDIR"
        raise _refused(bundle, words, free) from error
    if done != entry.file_size:
        raise _refused(bundle, f"{entry.filename}: {done} bytes, {entry.file_size} were promised")


def check_container(bundle: Path, names: Sequence[str], folder: Path) -> None:
    """Refuse a container that is not, byte for byte, how a bundle of these files is written.

    Args:
        bundle: The zip file.
        names: What ``unpack`` returned.
        folder: Where it wrote them.

    Raises:
        CaptureError: A byte differs: of a header, between files, before the first or behind
            the last; the message names the file it is nearest to.
    """
    with tempfile.TemporaryFile() as again, bundle.open("rb") as given:
        _write(again, {name: folder / name for name in names})
        again.seek(0)
        at = _first_difference(again, given)
    if at is None:
        return
    with zipfile.ZipFile(bundle) as archive:
        before = [entry for entry in archive.infolist() if entry.header_offset <= at]
    where = before[-1].filename if before else names[0]
    if before and at >= archive.start_dir:
        where = "the directory at the end of the container"
    words = f"{where}: byte {at} of the container is not as a bundle of these files is written"
    raise _refused(bundle, words)


def _first_difference(first: BinaryIO, second: BinaryIO) -> int | None:
    at = 0
    while True:
        one, two = first.read(_BLOCK), second.read(_BLOCK)
        if one != two:
            same = (k for k, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
            return at + next(same, min(len(one), len(two)))
        if not one:
            return None
        at += len(one)


def _refused(bundle: Path, why: str, do_next: str = ASK) -> CaptureError:
    return CaptureError(f"bundle {bundle}: {why}\n  do next: {do_next}")
