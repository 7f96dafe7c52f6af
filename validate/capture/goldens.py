"""Stored captures that must not go stale: ``verified.json`` beside ``manifest.json``.

A golden was made by code that lies in this repository. It stays valid while
that code is unchanged, or once ``validate golden verify`` has re-run a sample
of it within the limits; either way ``verified.json`` holds the digest of the
source it is valid for.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from validate.capture.provenance import sources_digest
from validate.errors import CaptureError

__all__ = [
    "VERIFIED_NAME",
    "Backend",
    "How",
    "Verified",
    "backend_digest",
    "read_verified",
    "stale_reason",
    "write_verified",
]

VERIFIED_NAME = "verified.json"
Backend = Literal["torch", "oracle"]
How = Literal["recorded", "verified"]
_ROOMS: dict[Backend, str] = {"torch": "models", "oracle": "oracle"}


class Verified(BaseModel):
    """For which source, where and when a golden was recorded or verified last."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    backend: Backend
    """What made the golden: the torch model's reference path, or the oracle."""
    source_digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """Digest of ``validate/models`` (torch) or ``validate/oracle`` (oracle)."""
    how: How
    device: str
    """``cpu``, ``cuda`` or ``rocm``."""
    hardware: str
    date: str
    """ISO 8601, UTC."""
    sample: tuple[str, ...] = ()
    """Prompt ids that were run again; empty when recorded."""


def backend_digest(backend: Backend) -> str:
    """Digest of the source that ``backend`` computes with."""
    return sources_digest(_ROOMS[backend])


def read_verified(folder: Path) -> Verified | None:
    """The note beside a golden; None when there is none.

    Raises:
        CaptureError: The file is there but does not follow its schema.
    """
    path = folder / VERIFIED_NAME
    if not path.is_file():
        return None
    try:
        return Verified.model_validate_json(path.read_bytes())
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"]) or "whole file"
        msg = f"{path}: {place}: {problem['msg']}\n  do next: validate golden verify writes it anew"
        raise CaptureError(msg) from error


def write_verified(folder: Path, note: Verified) -> None:
    """Write the note beside the golden in ``folder``, whole or not at all."""
    partial = folder / f".{VERIFIED_NAME}.partial"
    partial.write_text(note.model_dump_json(indent=1) + "\n", "utf-8")
    partial.replace(folder / VERIFIED_NAME)


def stale_reason(name: str, folder: Path) -> str | None:
    """Why the golden ``name`` may not be used, with the next step; None when it is current."""
    if not folder.is_dir():
        return f"golden '{name}' was not recorded yet\n  do next: validate golden record {name}"
    note = read_verified(folder)
    if note is None:
        return (
            f"golden '{name}' in {folder} has no {VERIFIED_NAME}: nobody says for which source "
            f"it is valid\n  do next: validate golden verify {name}"
        )
    now = backend_digest(note.backend)
    if now == note.source_digest:
        return None
    return (
        f"golden '{name}' in {folder} is stale: it was {note.how} on {note.date} ({note.hardware}) "
        f"for source {note.source_digest[:12]}, the source here is {now[:12]}\n"
        f"  changed: files under validate/{_ROOMS[note.backend]}\n"
        f"  do next: validate golden verify {name}"
    )
