"""What surrounds a recording: whose modules its processes import, and how one that ends early is told."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from validate.capture.resume import with_next_step
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
def recording(out: Path) -> Iterator[None]:
    """Say of a recording into ``out`` that ended early how it is taken up.

    Raises:
        CaptureError: As raised inside, or in place of an error of the file system.
    """
    try:
        with own_modules():
            yield
    except CaptureError as error:
        raise with_next_step(error, out) from error
    except OSError as error:
        if error.errno not in _CANNOT_WRITE:
            raise
        msg = (
            f"{error.filename or out}: the recording could not be written: {error.strerror}\n"
            "  do next: free space, or name another folder with --out"
        )
        raise with_next_step(CaptureError(msg), out) from error
