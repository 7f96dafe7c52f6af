"""Where results will go, looked at before an hour goes into what they are."""

import errno
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from validate.errors import InputError

__all__ = ["fit_file", "fit_folder"]

LONGEST_BELOW = 64
"""Bytes that names below a folder may take."""


def fit_folder(option: str, folder: Path | None, *, files: Iterable[str] = ()) -> None:
    """See that a folder takes files, or could be made; nothing is left there.

    Args:
        option: How the user named it, for the message.
        folder: Need not exist; None: nothing is asked for.
        files: Names that will be written, none of which may be a folder now.

    Raises:
        InputError: It is a file, lies in one, nothing can be written there, or a folder has the
            name of a file to be.
    """
    if folder is None:
        return
    try:
        _probe(folder)
        taken = [name for name in files if (folder / name).is_dir()]
    except OSError as error:
        why = "it is a file, no folder" if _is_file(folder) else error.strerror
        msg = f"{option} {folder}: nothing can be written there ({why}); {_next(option, 'folder')}"
        raise InputError(msg) from error
    if taken:
        msg = f"{option} {folder}: {taken[0]} is a folder there; {_next(option, 'folder')}"
        raise InputError(msg)


def fit_file(option: str, file: Path | None) -> None:
    """See that a file can be written into a folder that is there; nothing is left behind.

    Args:
        option: How the user named it, for the message.
        file: Need not exist; None: nothing is asked for.

    Raises:
        InputError: It is a folder, its folder is not there, or nothing can be written there.
    """
    if file is None:
        return
    try:
        is_folder, has_parent = file.is_dir(), file.parent.is_dir()
        if has_parent and not is_folder:
            _fit_name(file.parent, file)
            _probe(file.parent)
    except OSError as error:
        msg = f"{option} {file}: it cannot be written ({error.strerror}); {_next(option, 'file')}"
        raise InputError(msg) from error
    if is_folder:
        msg = f"{option} {file}: it is a folder; {_next(option, 'file')}"
        raise InputError(msg)
    if not has_parent:
        msg = f"{option} {file}: there is no folder {file.parent}; {_next(option, 'file')}"
        raise InputError(msg)


def _next(option: str, what: str) -> str:
    return f"nothing was done\n  do next: name another {what} with {option}"


def _probe(folder: Path) -> None:
    """Write into the folder, or make and remove one where its first missing part would be."""
    if folder.is_dir():
        with tempfile.TemporaryFile(dir=folder):
            return
    there = next(parent for parent in (folder, *folder.absolute().parents) if _exists(parent))
    _fit_name(there, folder)
    with tempfile.TemporaryDirectory(dir=there, prefix=".validate-probe-"):
        return


def _fit_name(there: Path, place: Path) -> None:
    """Meet a name that is too long now: the system says so only once its folder is there."""
    path, name = os.pathconf(there, "PC_PATH_MAX"), os.pathconf(there, "PC_NAME_MAX")
    whole = os.fsencode(place.absolute())
    if len(whole) + LONGEST_BELOW > path or any(len(part) > name for part in whole.split(b"/")):
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _exists(path: Path) -> bool:
    """Whether anything has that name; a file in place of a folder above is for the probe to meet."""
    try:
        return path.is_symlink() or path.exists()
    except NotADirectoryError:
        return False
