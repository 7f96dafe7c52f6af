"""One way to say what is wrong with a capture: side, place, fault, facts, next step."""

import errno
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from validate.errors import CaptureError

__all__ = ["Fault", "blame", "capture_error", "cause", "resume_command", "some", "validation_fault"]

SHOWN = 5
"""How many of a list a message shows."""


class Fault(Exception):  # it never leaves the room: ``blame`` adds side and place
    """What is wrong, said where it is found, before side and place are known."""

    def __init__(self, what: str, **facts: str) -> None:
        super().__init__(what)
        self.what = what
        self.facts = facts


def capture_error(
    label: str,
    place: Path | str,
    what: str,
    *,
    do_next: str,
    facts: Mapping[str, str] | None = None,
) -> CaptureError:
    """Build the message: one line that stands alone, then the facts, then the next step."""
    lines = {**(facts or {}), "do next": do_next}
    width = max(len(key) for key in lines)
    body = "".join(f"\n  {key:<{width}}: {value}" for key, value in lines.items())
    return CaptureError(f"{label}: {place}: {what}{body}")


@contextmanager
def blame(label: str, place: Path | str, *, do_next: str) -> Iterator[None]:
    """Turn a ``Fault`` or a failing read inside the block into one CaptureError.

    Raises:
        CaptureError: In place of every ``Fault`` and ``OSError``.
    """
    try:
        yield
    except Fault as fault:
        raise capture_error(label, place, fault.what, do_next=do_next, facts=fault.facts) from fault
    except OSError as err:
        raise capture_error(label, place, f"cannot be read: {cause(err)}", do_next=do_next) from err


def cause(err: OSError) -> str:
    """Text and name of an operating system error, e.g. ``No space left on device (ENOSPC)``."""
    name = errno.errorcode.get(err.errno or 0, type(err).__name__)
    return f"{err.strerror or err} ({name})"


def resume_command(path: Path, target: str = "NAME") -> str:
    """The command that completes or renews the capture in ``path``."""
    name = shlex.quote(target) if target.isprintable() else "NAME"
    return f"validate capture --resume --target {name} --out {shlex.quote(str(path))}"


def some(names: Mapping[str, object] | list[str] | set[str]) -> str:
    """At most five of ``names``, sorted and quoted, and how many more there are."""
    ordered = sorted(names)
    shown = ", ".join(repr(name) for name in ordered[:SHOWN])
    rest = len(ordered) - SHOWN
    return f"{shown} and {rest} more" if rest > 0 else shown or "(none)"


def validation_fault(err: ValidationError, what: str) -> Fault:
    """A ``Fault`` from pydantic's list: how many fields are wrong and the first five."""
    problems = err.errors(include_url=False, include_context=False, include_input=False)
    shown = [
        f"{'.'.join(str(part) for part in problem['loc']) or '(whole)'}: {problem['msg']}"
        for problem in problems[:SHOWN]
    ]
    rest = len(problems) - SHOWN
    more = f"; and {rest} more" if rest > 0 else ""
    return Fault(f"{what}: {len(problems)} wrong", fields="; ".join(shown) + more)
