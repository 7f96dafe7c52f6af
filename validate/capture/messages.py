"""One way to say what is wrong with a capture: side, place, fault, facts, next step."""

import errno
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from validate.errors import CaptureError

__all__ = [
    "GOLDEN_RECORD",
    "Fault",
    "blame",
    "capture_error",
    "cause",
    "known_command",
    "resume_command",
    "some",
    "validation_fault",
]

GOLDEN_RECORD = "golden record"
VERBS = ("capture", "eval", GOLDEN_RECORD)
"""Subcommands that record."""
DEFAULT_PROMPTS, NO_PROMPTS = "default", "none"
"""Names of the prompt set that is taken where none is named, and of that of evals alone."""
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


def resume_command(path: Path, target: str = "NAME", command: Sequence[str] | None = None) -> str:
    """The command that completes or renews the capture in ``path``.

    Args:
        path: The folder.
        target: What is captured.
        command: Subcommand, and its options beside these; of ``golden record`` all words, for it
            finds target and folder by the golden's name. Empty: whatever command made the capture
            takes it up unasked. None: not known.
    """
    if command is not None and not command:
        return "run the same command again"
    verb, *options = ("capture",) if command is None else command
    if verb not in VERBS:  # a journal from elsewhere may say anything
        verb, options = "capture", []
    name, *rest = (word if word.isprintable() else "NAME" for word in (target, *options))
    if verb == GOLDEN_RECORD:
        return shlex.join(["validate", *verb.split(), "--resume", *rest])
    return shlex.join(["validate", verb, "--resume", "--target", name, "--out", str(path), *rest])


def known_command(prompt_set: str, *, evals: bool) -> tuple[str, ...]:
    """``command`` of ``resume_command``, with FILE and FOLDER for what no capture tells."""
    if prompt_set == NO_PROMPTS:
        return ("eval", "--tasks", "FOLDER")
    prompts = () if prompt_set == DEFAULT_PROMPTS else ("--prompts", "FILE")
    return ("capture", *prompts, *(("--tasks", "FOLDER") if evals else ()))


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
