"""Where results will go, looked at before an hour goes into what they are."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

from validate.errors import InputError

__all__ = ["fit_file", "fit_folder"]


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
        why = "it is a file, no folder" if folder.is_file() else error.strerror
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
    if file.is_dir():
        msg = f"{option} {file}: it is a folder; {_next(option, 'file')}"
        raise InputError(msg)
    if not file.parent.is_dir():
        msg = f"{option} {file}: there is no folder {file.parent}; {_next(option, 'file')}"
        raise InputError(msg)
    try:
        _probe(file.parent)
    except OSError as error:
        msg = f"{option} {file}: it cannot be written ({error.strerror}); {_next(option, 'file')}"
        raise InputError(msg) from error


def _next(option: str, what: str) -> str:
    return f"nothing was done\n  do next: name another {what} with {option}"


def _probe(folder: Path) -> None:
    """Write into the folder, or make and remove one where its first missing part would be."""
    if folder.is_dir():
        with tempfile.TemporaryFile(dir=folder):
            return
    there = next(parent for parent in (folder, *folder.absolute().parents) if _exists(parent))
    with tempfile.TemporaryDirectory(dir=there, prefix=".validate-probe-"):
        return


def _exists(path: Path) -> bool:
    """Whether anything has that name; a file in place of a folder above is for the probe to meet."""
    try:
        return path.is_symlink() or path.exists()
    except NotADirectoryError:
        return False
