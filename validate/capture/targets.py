"""Target syntax: what ``--ref``, ``--cand`` and ``--target`` may say.

``…://…`` is a server; a text with ``/``, or the name of an existing directory,
is a capture folder; anything else is ``NAME[:key=value[,key=value…]]`` and is
looked up in ``validate.toml``.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from validate.capture.project import KeyRule, Project, TargetEntry
from validate.errors import InputError

__all__ = ["Target", "TargetKind", "did_you_mean", "parse_target"]

TargetKind = Literal["folder", "golden", "capture", "torch"]
FaultSides = Mapping[str, str]
"""Fault id to the side it is planted on (``cand``, ``ref``, ``capture``, ``evals``)."""

_NAME = re.compile(r"[a-z][a-z0-9-]*")
_COUNT = re.compile(r"[1-9][0-9]{0,5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One target, checked: it names something that exists or can be made."""

    kind: TargetKind
    name: str
    """Name in ``validate.toml``, or the folder as it was written."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Keys given after the colon; empty for folders."""
    text: str
    """The whole target as the user wrote it."""
    folder: Path | None = None
    """Where the capture lies; None for paths that run here."""
    path: str | None = None
    """``reference`` or ``rocm`` for paths that run here; else None."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` for the nearest of ``known``, or an empty text."""
    by_folded = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(word.casefold(), list(by_folded), n=1, cutoff=0.5)
    return f"; did you mean '{by_folded[near[0]]}'?" if near else ""


def parse_target(text: str, project: Project, *, faults: FaultSides) -> Target:
    """Read one target and refuse whatever is unknown in it.

    Args:
        text: What the user wrote after ``--ref``, ``--cand`` or ``--target``.
        project: The ``validate.toml`` in force; folders are relative to the
            working directory, golden paths to its root.
        faults: The planted faults by id with the side each is planted on.

    Raises:
        InputError: A server (not built yet), a folder that does not exist, or
            an unknown name, key or value; the message has the nearest match
            and everything known.
    """
    if "://" in text:
        msg = (
            f"target '{text}': servers are not built yet\n"
            f"  known  : {', '.join(project.targets)}, or the folder of a capture\n"
            "  do next: validate list targets"
        )
        raise InputError(msg)
    name, colon, rest = text.partition(":")
    is_folder = _is_folder(text)
    if is_folder or ("/" in text and not (colon and name in project.targets)):
        return _folder(text, project)
    entry = _entry(text, name, project)
    options = _options(text, name, rest, entry, faults) if colon else {}
    runs_here = entry.kind == "torch"
    return Target(
        kind=entry.kind,
        name=name,
        options=options,
        text=text,
        folder=None if runs_here else project.folder(name),
        path=entry.path if runs_here else None,
    )


def _is_folder(text: str) -> bool:
    """Whether there is one; a name that no system could hold is none."""
    try:
        return bool(text) and Path(text).is_dir()
    except OSError:
        return False


def _folder(text: str, project: Project) -> Target:
    folder = Path(text)
    if not _is_folder(text):
        here = [str(p) for p in folder.parent.iterdir()] if _is_folder(str(folder.parent)) else []
        msg = (
            f"target '{text}': no such folder{did_you_mean(str(folder), here)}\n"
            f"  known names: {', '.join(project.targets)}\n"
            f"  do next    : validate capture --target NAME --out {text}"
        )
        raise InputError(msg)
    return Target(kind="folder", name=text, text=text, folder=folder)


def _entry(text: str, name: str, project: Project) -> TargetEntry:
    if name in project.targets:
        return project.targets[name]
    shape = "" if _NAME.fullmatch(name) else " (names are lower-case letters, digits and hyphens)"
    msg = (
        f"target '{text}': no target is named '{name}'{shape}{did_you_mean(name, project.targets)}\n"
        f"  known  : {', '.join(project.targets)}, or the folder of a capture\n"
        "  do next: validate list targets"
    )
    raise InputError(msg)


def _options(
    text: str, name: str, rest: str, entry: TargetEntry, faults: FaultSides
) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in rest.split(","):
        key, equals, value = part.partition("=")
        if not equals or not key or not value:
            msg = (
                f"target '{text}': '{part}' is not key=value\n"
                f"  known keys of {name}: {', '.join(entry.keys) or '(none)'}\n"
                f"  do next: {name} alone, or {name}:key=value; validate list targets has the values"
            )
            raise InputError(msg)
        if key not in entry.keys:
            msg = (
                f"target '{text}': {name} has no key '{key}'{did_you_mean(key, entry.keys)}\n"
                f"  known keys of {name}: {', '.join(entry.keys) or '(none)'}\n"
                "  do next: validate list targets"
            )
            raise InputError(msg)
        if key in options:
            msg = (
                f"target '{text}': the key '{key}' is given twice\n  do next: leave one of them out"
            )
            raise InputError(msg)
        _check_value(text, key, value, entry, faults)
        options[key] = value
    return options


def _check_value(text: str, key: str, value: str, entry: TargetEntry, faults: FaultSides) -> None:
    rule: KeyRule = entry.keys[key]
    if rule == "count":
        if not _COUNT.fullmatch(value):
            msg = f"target '{text}': {key}='{value}' is no integer from 1 to 999999"
            raise InputError(msg)
        return
    if rule == "fault":
        _check_fault(text, value, entry, faults)
        return
    if value not in rule:
        msg = (
            f"target '{text}': {key}='{value}' is unknown{did_you_mean(value, rule)}\n"
            f"  known values of {key}: {', '.join(rule)}"
        )
        raise InputError(msg)


def _check_fault(text: str, value: str, entry: TargetEntry, faults: FaultSides) -> None:
    known = [fault for fault, side in faults.items() if side == entry.side]
    if value in known:
        return
    elsewhere = (
        f" (it is planted in {faults[value]}, not in {entry.side})" if value in faults else ""
    )
    msg = (
        f"target '{text}': fault='{value}' is unknown here{elsewhere}{did_you_mean(value, known)}\n"
        f"  known faults planted in {entry.side}: {', '.join(known) or '(none)'}\n"
        "  do next: validate list faults"
    )
    raise InputError(msg)
