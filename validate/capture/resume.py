"""The folder of a capture before the first prompt is added: new, unfinished or whole already."""

import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from validate.capture.admit import check_file, read_manifest
from validate.capture.durable import TEMPORARY, remove, sync_folder
from validate.capture.format import EVALS, JOURNAL, MANIFEST, PROMPTS, SHARDS, STREAMS, TIMING
from validate.capture.journal import Group, Start, read_journal
from validate.capture.messages import (
    Fault,
    blame,
    capture_error,
    some,
)
from validate.capture.reader import CaptureReader, open_capture
from validate.capture.shard import check_shard
from validate.errors import CaptureError
from validate.schema import CaptureHeader, Manifest

__all__ = [
    "Found",
    "begin",
    "header_differences",
    "lock_folder",
    "take_up",
    "taken_up_by",
    "to_take_up",
    "with_next_step",
]

_OURS = (MANIFEST, PROMPTS, STREAMS, EVALS, TIMING, JOURNAL)
_SHARD = re.compile(rf"[0-9]{{5,}}\.safetensors({re.escape(TEMPORARY)})?")
_MAY_DIFFER = "provenance.created"


class Found(NamedTuple):
    """What a folder holds for the writer."""

    start: Start
    """The stored header where there is one: its time of creation stays."""
    groups: list[Group]
    """Groups whose shards were found whole, up to the first that was not."""
    whole: CaptureReader | None
    """The capture, when it is complete."""


def taken_up_by(path: Path) -> str | None:
    """The command that takes up the unfinished capture in ``path``; None where there is none."""
    with suppress(Fault, OSError):
        found = read_journal(path)
        if found is not None and not os.path.lexists(path / MANIFEST):
            return found[0].resume_command(path)
    return None


def to_take_up(path: Path) -> str | None:
    """One line on how the unfinished capture in ``path`` is taken up; None where there is none."""
    again = taken_up_by(path)
    return None if again is None else f"{path} holds what was recorded; to take it up: {again}"


def with_next_step(error: CaptureError, path: Path) -> CaptureError:
    """The error, with how the capture that it left unfinished is taken up, unless it says so."""
    note, again = to_take_up(path), taken_up_by(path)
    if note is None or again is None or again in str(error):
        return error
    return CaptureError(f"{error}\n  note   : {note}")


def lock_folder(path: Path, label: str, again: str) -> int:
    """Make the folder and lock it against a second writer; gives the open lock.

    Raises:
        CaptureError: Another process writes there.
        OSError: It cannot be made.
    """
    path.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as err:
        os.close(handle)
        raise capture_error(
            label,
            path,
            "another process is writing this capture",
            do_next=f"wait for it to end, then {again}",
        ) from err
    except OSError:
        pass  # Some network file systems lock no folders; the lock is a courtesy.
    return handle


def begin(path: Path, start: Start) -> Found:
    """Take a new folder.

    Raises:
        CaptureError: It holds something already.
        OSError: It cannot be read or written.
    """
    there = {entry.name for entry in path.iterdir()} - {f"{JOURNAL}{TEMPORARY}"}
    shards = path / SHARDS
    if SHARDS in there and not shards.is_symlink() and not any(shards.iterdir()):
        there.remove(SHARDS)
    if there:
        kind = "an unfinished capture" if JOURNAL in there else "other files"
        kind = "a capture" if MANIFEST in there else kind
        label = start.header.target
        raise capture_error(
            label,
            path,
            f"the folder holds {kind} already; nothing was written",
            facts={"it holds": some(there)},
            do_next=f"name another folder, or {start.resume_command(path)}",
        )
    shards.mkdir(exist_ok=True)
    sync_folder(path)
    return Found(start, [], None)


def take_up(path: Path, start: Start) -> Found:
    """Take up what is stored, as far as it is whole.

    A complete capture is checked in full; when it is damaged it is withdrawn
    and begun anew. Of an unfinished one every finished shard is checked, and
    the groups from the first damaged shard on are dropped.

    Raises:
        CaptureError: The stored header differs from the new one, or journal or
            manifest are damaged.
        OSError: It cannot be read or written.
    """
    label = start.header.target
    if (path / SHARDS).is_symlink():
        raise capture_error(
            label,
            path / SHARDS,
            "is a symbolic link; shards are written in the capture itself",
            do_next=f"move {path} away and capture again",
        )
    if os.path.lexists(path / MANIFEST):
        return _take_up_whole(path, start)
    with blame(label, path / JOURNAL, do_next=f"move {path} away and capture again"):
        found = read_journal(path)
    if found is None:
        return begin(path, start)
    stored, groups = found
    _require_same(path, stored, start)
    kept = list(_whole_groups(path, groups, start))
    _sweep(path, {artifact.path for group in kept for artifact in group.shards})
    now = {"command": start.command, "evals": start.evals, "eval_plan": start.eval_plan}
    said = {name: value for name, value in now.items() if value is not None}
    return Found(stored.model_copy(update=said), kept, None)


def _take_up_whole(path: Path, start: Start) -> Found:
    label = start.header.target
    with blame(label, path / MANIFEST, do_next=f"move {path} away and capture again"):
        manifest, _ = read_manifest(path)
    # The stored evidence is what the path proof left of the claim.
    claimed = header_of(manifest).model_copy(update={"evidence": start.header.evidence})
    stored = start.model_copy(update={"header": claimed})
    has_evals = any(artifact.artifact == "evals" for artifact in manifest.artifacts)
    _require_same(path, stored.model_copy(update={"command": None, "evals": has_evals}), start)
    try:
        reader = open_capture(path, label=label)
    except CaptureError as err:
        if isinstance(err.__cause__, OSError):
            raise  # It cannot be read, which does not say that it is damaged.
        # Every prompt runs again. The manifest goes last: until then the damage shows.
        _sweep(path, set())
        for name in (PROMPTS, STREAMS, EVALS, TIMING, JOURNAL, MANIFEST):
            remove(path / name)
        return Found(stored, [], None)
    remove(path / JOURNAL)
    return Found(stored, [], reader)


def header_of(manifest: Manifest) -> CaptureHeader:
    """The part of a manifest that was known before the first prompt ran."""
    return CaptureHeader(**{name: getattr(manifest, name) for name in CaptureHeader.model_fields})


def _require_same(path: Path, stored: Start, start: Start) -> None:
    _require_same_evals(path, stored, start)
    new = start.header
    differences = header_differences(stored.header, new)
    if differences:
        what = f"cannot be resumed: {len(differences)} entries of its header differ"
        raise capture_error(
            new.target,
            path,
            what,
            facts=dict(differences),
            do_next="name another folder, or capture with what is stored",
        )


def _require_same_evals(path: Path, stored: Start, start: Start) -> None:
    """Said before the header is looked at: evals beside a capture halve its threads."""
    if None in (stored.evals, start.evals):
        return
    plans = {"stored": stored.eval_plan, "now": start.eval_plan}
    facts = {name: digest for name, digest in plans.items() if digest is not None}
    other = len(set(facts.values())) > 1
    if stored.evals == start.evals and not other:
        return
    # Of one that a comparison began, the same command would be this one.
    again = stored.model_copy(update={"command": stored.command or None}).resume_command(path)
    if other:
        what = "it was begun with other lm-eval tasks (files, --task or --limit) than are given now"
        do_next = f"{again}, with the task files as they were, or name another folder"
    elif stored.evals:
        what, do_next = "it was begun with lm-eval tasks, and none are given now", again
    else:
        what = "it was begun without lm-eval tasks, and some are given now"
        do_next = f"{again}, or name another folder"
    raise capture_error(
        start.header.target,
        path,
        f"cannot be resumed: {what}",
        facts=facts if other else None,
        do_next=do_next,
    )


def header_differences(stored: CaptureHeader, new: CaptureHeader) -> dict[str, str]:
    """``stored X, now Y`` for every entry that differs, by dotted name.

    The time of creation may differ: the stored one stays.
    """
    before, now = _flat(stored), _flat(new)
    return {
        name: f"stored {before.get(name, '(absent)')}, now {now.get(name, '(absent)')}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name) and name != _MAY_DIFFER
    }


def _flat(header: CaptureHeader) -> dict[str, str]:
    return dict(_leaves(header.model_dump(mode="json"), ""))


def _leaves(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else key)
    else:
        yield name, repr(value)


def _whole_groups(path: Path, groups: list[Group], start: Start) -> Iterator[Group]:
    label = start.header.target
    again = start.resume_command(path)
    for group in groups:
        for artifact in group.shards:
            with blame(label, path / artifact.path, do_next=again):
                try:
                    check_shard(check_file(path, artifact, verify=True), artifact.tensors)
                except Fault:
                    return
        yield group


def _sweep(path: Path, keep: set[str]) -> None:
    """Remove shards that no journal line names, and files that were being written."""
    (path / SHARDS).mkdir(exist_ok=True)
    for entry in (path / SHARDS).iterdir():
        if _SHARD.fullmatch(entry.name) and f"{SHARDS}/{entry.name}" not in keep:
            entry.unlink()
    for name in _OURS:
        with suppress(FileNotFoundError):
            (path / f"{name}{TEMPORARY}").unlink()
    sync_folder(path / SHARDS)
    sync_folder(path)
