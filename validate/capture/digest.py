"""Digests: of files, of a prompt set, of a capture. All are SHA-256 in lower-case hex."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from validate.capture.format import MANIFEST
from validate.capture.jsontext import canonical
from validate.schema import Prompt

__all__ = ["capture_digest", "file_sha256", "json_sha256", "manifest_seal", "prompt_set_digest"]


def file_sha256(path: Path) -> str:
    """Digest of a file, read as a stream.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_sha256(value: Any) -> str:
    """Digest of the canonical JSON of ``value`` (compact ASCII, keys sorted).

    Raises:
        ValueError: ``value`` holds a NaN or an infinity.

    Example:
        >>> json_sha256({"b": 1, "a": [2]}) == hashlib.sha256(b'{"a":[2],"b":1}').hexdigest()
        True
    """
    return hashlib.sha256(canonical(value)).hexdigest()


def prompt_set_digest(prompts: Iterable[Prompt]) -> str:
    """Digest over ids, token ids, lengths and strides of every prompt.

    Tags do not enter, and neither does the order: a capture that ran the same
    prompts in other batches has the same digest.

    Returns:
        SHA-256 of one canonical JSON line a prompt (each with its newline),
        ordered by id.
    """
    total = hashlib.sha256()
    for prompt in sorted(prompts, key=lambda prompt: prompt.id):
        identity = prompt.model_dump(
            mode="json", include={"id", "token_ids", "prompt_length", "score_stride"}
        )
        total.update(canonical(identity) + b"\n")
    return total.hexdigest()


def manifest_seal(fields: Mapping[str, Any]) -> str:
    """What the manifest's own ``digest`` must be: over the canonical JSON of all other fields."""
    return json_sha256({name: value for name, value in fields.items() if name != "digest"})


def capture_digest(path: Path) -> str:
    """Digest of a whole capture: of its manifest, which holds the digest of every other file.

    Raises:
        OSError: There is no manifest.
    """
    return file_sha256(path / MANIFEST)
