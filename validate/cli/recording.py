"""What surrounds a recording: whose modules its processes import, and how one that ends early is told."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from validate.capture.messages import cause
from validate.capture.resume import to_take_up, with_next_step
from validate.errors import CaptureError

__all__ = ["own_modules", "recording"]

SAFE_PATH = "PYTHONSAFEPATH"
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


@contextlib.contextmanager
def own_modules() -> Iterator[None]:
    """Processes started meanwhile import no module of the working directory, as this one does not."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(SAFE_PATH, None)
        else:
            os.environ[SAFE_PATH] = before


@contextlib.contextmanager
def recording(out: Path, *, option: str | None = "--out") -> Iterator[None]:
    """Say of a recording into ``out`` that ended early how it is taken up.

    Args:
        out: Folder of the capture.
        option: That names the folder; None where the user does not choose it.

    Raises:
        CaptureError: As raised inside, or in place of an error of the file system.
        KeyboardInterrupt: As raised inside, with how what is there is taken up.
    """
    try:
        with own_modules():
            yield
    except CaptureError as error:
        raise with_next_step(error, out) from error
    except OSError as error:
        if error.errno not in _CANNOT_WRITE:
            raise
        raise with_next_step(CaptureError(_unwritten(error, option)), out) from error
    except KeyboardInterrupt as error:
        told = to_take_up(out)
        if told is None:
            raise
        raise KeyboardInterrupt(told) from error


def _unwritten(error: OSError, option: str | None) -> str:
    """What is said of a file that could not be written; not every error names it."""
    what = f"the recording could not be written: {cause(error)}"
    if error.filename is None:
        return (
            f"{what}, at a place that the system does not name\n"
            "  do next: free space (the capture, its evals, runs and the temporary folder may lie "
            "on different disks)"
        )
    other = "" if option is None else f", or name another folder with {option}"
    return f"{error.filename}: {what}\n  do next: free space there{other}"
