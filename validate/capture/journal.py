"""``journal.jsonl``: what an unfinished capture has on disk already, line by line.

The first line holds the header; each further line commits one group of prompts
whose shards are whole and synced. Every line carries the digest of its record.
A line without its newline was being written when the process died and does
not count. The journal is removed once the manifest is there.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from validate.capture.digest import json_sha256
from validate.capture.durable import append_line, remove, write_error, write_whole
from validate.capture.files import pin, read_whole
from validate.capture.format import JOURNAL, JSON_CAP
from validate.capture.jsontext import compact, parse, parse_record
from validate.capture.messages import Fault, known_command, resume_command
from validate.schema import ArtifactFile, CaptureHeader, PathProof, Prompt, Stream

__all__ = ["Group", "Journal", "Start", "read_journal"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Start(_Record):
    """First line: what the capture is, and when its shards are closed."""

    header: CaptureHeader
    shard_bytes: Annotated[int, Field(ge=1)]
    shard_prompts: Annotated[int, Field(ge=1)]
    recording: str = ""
    """Id that each interruption leaves as it is."""
    command: tuple[str, ...] | None = None
    """What ``resume_command`` takes."""
    evals: bool | None = None
    """Whether evals are to follow; None: nobody said."""
    eval_plan: str | None = None
    """``plan_digest`` of the evals that are to follow; None: there are none, or nobody said."""

    def resume_command(self, path: Path) -> str:
        """The command that takes up what is in ``path``, as far as it is known."""
        header = self.header
        command = self.command
        if command is None:
            command = known_command(header.prompt_set, evals=bool(self.evals))
        return resume_command(path, header.target, command)


class Group(_Record):
    """One further line: prompts that are stored for good."""

    prompts: tuple[Prompt, ...]
    streams: tuple[Stream, ...]
    batch_rows: dict[str, int]
    shards: tuple[ArtifactFile, ...]
    proof: PathProof | None
    """Branches and kernels counted up to here, where the caller told them."""


def _encode(record: BaseModel) -> bytes:
    plain = record.model_dump(mode="json")
    return compact({"sha256": json_sha256(plain), "record": plain}).encode() + b"\n"


def _decode(line: bytes, number: int) -> bytes:
    """The record of a line as JSON in its stored order, once its digest is right."""
    raw = parse(line)
    if not isinstance(raw, Mapping) or raw.keys() != {"sha256", "record"}:
        msg = f"line {number} is no journal line"
        raise Fault(msg)
    actual = json_sha256(raw["record"])
    if actual != raw["sha256"]:
        msg = f"line {number} is damaged"
        raise Fault(msg, expected=f"sha256 {raw['sha256']}", actual=f"sha256 {actual}")
    return compact(raw["record"]).encode()


def read_journal(root: Path) -> tuple[Start, list[Group]] | None:
    """Header and committed groups of an unfinished capture; None when there is no journal.

    Raises:
        Fault: A line that was written whole is damaged.
        OSError: The journal cannot be read.
    """
    if not os.path.lexists(root / JOURNAL):
        return None
    lines = read_whole(pin(root, JOURNAL), cap=JSON_CAP).split(b"\n")[:-1]
    if not lines:
        msg = "the journal has no first line"
        raise Fault(msg)
    records = [_decode(line, number) for number, line in enumerate(lines, start=1)]
    start = parse_record(Start, records[0], "line 1 is no header")
    groups = [
        parse_record(Group, record, f"line {number} is no group of prompts")
        for number, record in enumerate(records[1:], start=2)
    ]
    return start, groups


class Journal:
    """The open journal of a capture that is being written.

    Opening it writes ``start`` and ``groups`` anew, so that neither a line cut
    short nor a dropped group stays behind.
    """

    def __init__(self, root: Path, *, start: Start, groups: list[Group]) -> None:
        self.start = start
        self.groups = list(groups)
        self._root = root
        self._label = start.header.target
        self._next = start.resume_command(root)
        lines = [_encode(record) for record in (start, *groups)]
        write_whole(root / JOURNAL, lines, label=self._label, do_next=self._next)
        self._handle = os.open(root / JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def append(self, group: Group) -> None:
        """Commit ``group``; its shards must be on the disk.

        Raises:
            CaptureError: The operating system refused; the group does not count.
        """
        line = _encode(group)
        try:
            append_line(self._handle, line)
        except OSError as err:
            raise write_error(
                err, self._label, self._root / JOURNAL, written=0, do_next=self._next
            ) from err
        self.groups.append(group)

    def close(self) -> None:
        """Close the file; the capture stays unfinished."""
        with contextlib.suppress(OSError):
            os.close(self._handle)
        self._handle = -1

    def remove(self) -> None:
        """Remove the file: the manifest is there."""
        self.close()
        remove(self._root / JOURNAL)
