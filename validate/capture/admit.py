"""Every check between a folder that calls itself a capture and one that is read.

Nothing that the folder says is used before it was checked: the manifest's size
and form, then each file's place, size and digest, then token data and shard
headers against the manifest.
"""

import hashlib
from collections import Counter
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from validate.capture.digest import manifest_seal, prompt_set_digest
from validate.capture.evals import OWNER
from validate.capture.files import PinnedFile, check_relative, pin, read_whole, sha256_of
from validate.capture.format import JSON_CAP, MANIFEST, MANIFEST_CAP, check_entry
from validate.capture.journal import read_journal
from validate.capture.jsontext import parse, parse_record
from validate.capture.messages import (
    Fault,
    blame,
    capture_error,
    known_command,
    resume_command,
    some,
)
from validate.capture.records import (
    check_lengths,
    check_options,
    read_prompts,
    read_streams,
    read_timing,
)
from validate.capture.shard import check_shard
from validate.schema import SCHEMA_VERSION, ArtifactFile, Manifest, Prompt, Stream, TensorEntry

__all__ = ["Contents", "Place", "admit", "check_file", "read_manifest", "renew_command"]

KNOWN_VERSIONS = (SCHEMA_VERSION,)
_JSON: tuple[Literal["prompts"], Literal["streams"], Literal["timing"]] = (
    "prompts",
    "streams",
    "timing",
)


class Place(NamedTuple):
    """Where one tensor lies."""

    entry: TensorEntry
    file: PinnedFile
    offset: int
    """Its first byte in the file."""


class Contents(NamedTuple):
    """All that a capture holds, checked."""

    manifest: Manifest
    digest: str
    prompts: dict[str, Prompt]
    streams: dict[str, dict[str, Stream]]
    """By kind, then by prompt id."""
    timing: dict[str, float]
    places: dict[tuple[str, str], Place]
    """By prompt id and tensor name."""
    evals: bytes | None
    """Head of the evals, where there are any."""
    eval_places: dict[str, Place]
    """Columns of the evals, by tensor name behind the owner."""


def admit(path: Path, *, label: str, verify: bool) -> Contents:
    """Run every check.

    Raises:
        CaptureError: At the first that fails.
    """
    _require_manifest(path, label)
    renew = f"move {path} away, then {resume_command(path)}"
    with blame(label, path / MANIFEST, do_next=renew):
        manifest, digest = read_manifest(path)
        _check_artifacts(manifest)
    again = renew_command(path, manifest)
    files: dict[str, PinnedFile] = {}
    for artifact in manifest.artifacts:
        with blame(label, path / artifact.path, do_next=again):
            files[artifact.path] = check_file(path, artifact, verify=verify)
    prompts, streams, timing = _token_data(path, manifest, files, label=label)
    places: dict[tuple[str, str], Place] = {}
    columns: dict[tuple[str, str], Place] = {}
    head: bytes | None = None
    for artifact in manifest.artifacts:
        if artifact.artifact not in _JSON:
            evals = artifact.artifact == "evals"
            with blame(label, path / artifact.path, do_next=again):
                if evals and not artifact.tensors:
                    head = read_whole(files[artifact.path], cap=JSON_CAP)
                    continue
                held, owners = (columns, {OWNER}) if evals else (places, prompts)
                _add_places(held, artifact, files[artifact.path], owners)
    with blame(label, path / MANIFEST, do_next=again):
        _require_content(prompts, streams, places)
    named = {name: place for (_, name), place in columns.items()}
    return Contents(manifest, digest, prompts, streams, timing, places, head, named)


def renew_command(path: Path, manifest: Manifest) -> str:
    """The command that renews a whole capture, as far as its manifest tells."""
    evals = any(artifact.artifact == "evals" for artifact in manifest.artifacts)
    return resume_command(path, manifest.target, known_command(manifest.prompt_set, evals=evals))


def _require_manifest(path: Path, label: str) -> None:
    """Tell apart no folder, an empty one and an unfinished capture."""
    again = resume_command(path)
    if not path.is_dir():
        what = "is no capture: a folder is expected" if path.exists() else "no capture here"
        raise capture_error(label, path, what, do_next=again)
    if (path / MANIFEST).is_symlink() or (path / MANIFEST).exists():
        return
    with blame(label, path, do_next=again):
        found = read_journal(path)
        if found is not None:
            start, groups = found
            stored = sum(len(group.prompts) for group in groups)
            again = start.resume_command(path)
            what = f"the capture is unfinished: {stored} prompts are stored, {MANIFEST} is missing"
        elif any(path.iterdir()):
            what = f"is no capture: {MANIFEST} is missing"
        else:
            what = "the capture is empty: the folder holds nothing"
    raise capture_error(label, path, what, do_next=again)


def read_manifest(path: Path) -> tuple[Manifest, str]:
    """The manifest and its digest.

    Raises:
        Fault: Too large, no strict JSON, of another version, a field is wrong, or it
            is not what was sealed.
        OSError: It cannot be read.
    """
    data = read_whole(pin(path, MANIFEST), cap=MANIFEST_CAP)
    raw = parse(data)
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if type(version) is not int or version not in KNOWN_VERSIONS:
        known = ", ".join(str(known) for known in KNOWN_VERSIONS)
        msg = f"schema_version is {version!r}; this version of validate reads {known}"
        raise Fault(msg)
    manifest = parse_record(Manifest, data, "the manifest does not follow its schema")
    seal = manifest_seal(raw)
    if manifest.digest != seal:
        msg = "the manifest is damaged: its own digest differs from its content"
        raise Fault(msg, expected=str(manifest.digest), actual=seal)
    return manifest, hashlib.sha256(data).hexdigest()


def _check_artifacts(manifest: Manifest) -> None:
    paths = Counter(artifact.path for artifact in manifest.artifacts)
    for path, times in paths.items():
        check_relative(path)
        if times > 1:
            msg = f"artifact path {path!r} is listed {times} times"
            raise Fault(msg)
    kinds = Counter(artifact.artifact for artifact in manifest.artifacts)
    counts = {kind: kinds[kind] for kind in _JSON}
    if counts["prompts"] != 1 or counts["streams"] > 1 or counts["timing"] > 1:
        msg = (
            f"artifacts must be one of prompts and at most one of streams and timing, not {counts}"
        )
        raise Fault(msg)
    heads = sum(a.artifact == "evals" and not a.tensors for a in manifest.artifacts)
    if heads != min(1, kinds["evals"]):
        msg = f"evals are one file without tensors and shards of columns, not {heads} of the former"
        raise Fault(msg)
    for artifact in manifest.artifacts:
        if artifact.artifact in _JSON and artifact.tensors:
            msg = f"artifact {artifact.path!r} of {artifact.artifact} lists tensors"
            raise Fault(msg)
    for entry in (entry for artifact in manifest.artifacts for entry in artifact.tensors):
        check_entry(entry)


def check_file(root: Path, artifact: ArtifactFile, *, verify: bool) -> PinnedFile:
    """Find one file of the manifest and compare its size and digest.

    Raises:
        Fault: It is missing, lies outside, or differs.
        OSError: It cannot be read.
    """
    file = pin(root, artifact.path)
    if file.bytes != artifact.bytes:
        kind = "cut short" if file.bytes < artifact.bytes else "too long"
        msg = f"the file is {kind}: {file.bytes} bytes, the manifest says {artifact.bytes}"
        raise Fault(msg)
    if verify:
        actual = sha256_of(file)
        if actual != artifact.sha256:
            msg = "the file is damaged: its sha256 differs from the manifest's"
            raise Fault(msg, expected=artifact.sha256, actual=actual)
    return file


def _token_data(
    path: Path, manifest: Manifest, files: Mapping[str, PinnedFile], *, label: str
) -> tuple[dict[str, Prompt], dict[str, dict[str, Stream]], dict[str, float]]:
    again = renew_command(path, manifest)
    by_kind: dict[str, str] = {artifact.artifact: artifact.path for artifact in manifest.artifacts}
    has_evals = "evals" in by_kind

    def load(kind: str) -> bytes:
        return read_whole(files[by_kind[kind]], cap=JSON_CAP)

    with blame(label, path / by_kind["prompts"], do_next=again):
        prompts = read_prompts(load("prompts"), needed=not has_evals)
        _check_prompt_set(prompts, manifest)
    streams: dict[str, dict[str, Stream]] = {"greedy": {}}
    if "streams" in by_kind:
        with blame(label, path / by_kind["streams"], do_next=again):
            streams = read_streams(load("streams"), prompts, manifest.batch_rows)
        if any(kind != "greedy" for kind, held in streams.items() if held):
            renew = f"move {path} away, then {again}"
            with blame(label, path / MANIFEST, do_next=renew):
                check_options(manifest.options)
            with blame(label, path / by_kind["streams"], do_next=renew):
                check_lengths(streams, manifest.options)
    timing: dict[str, float] = {}
    if "timing" in by_kind:
        with blame(label, path / by_kind["timing"], do_next=again):
            timing = read_timing(load("timing"))
    return prompts, streams, timing


def _check_prompt_set(prompts: Mapping[str, Prompt], manifest: Manifest) -> None:
    actual = prompt_set_digest(prompts.values())
    if actual != manifest.prompt_digest:
        msg = f"the {len(prompts)} prompts are not those of the manifest's prompt_digest"
        raise Fault(msg, expected=manifest.prompt_digest, actual=actual)
    wrong = {
        prompt for prompt, row in manifest.batch_rows.items() if row < 0 or prompt not in prompts
    }
    if wrong:
        msg = f"batch_rows of the manifest names no prompt or a negative row: {some(wrong)}"
        raise Fault(msg)


def _add_places(
    places: dict[tuple[str, str], Place],
    artifact: ArtifactFile,
    file: PinnedFile,
    owners: Container[str],
) -> None:
    offsets = check_shard(file, artifact.tensors)
    for entry in artifact.tensors:
        prompt, name = check_entry(entry)
        if prompt not in owners:
            msg = f"tensor {entry.name!r} belongs to no prompt of the capture"
            raise Fault(msg)
        if (prompt, name) in places:
            msg = f"tensor {entry.name!r} is stored twice"
            raise Fault(msg, **{"also in": places[prompt, name].file.path.name})
        places[prompt, name] = Place(entry, file, offsets[entry.name])


def _require_content(
    prompts: Mapping[str, Any],
    streams: Mapping[str, Mapping[str, Any]],
    places: Mapping[tuple[str, str], Any],
) -> None:
    told = {prompt for held in streams.values() for prompt in held}
    bare = set(prompts) - told - {prompt for prompt, _ in places}
    if bare:
        msg = f"{len(bare)} of {len(prompts)} prompts have neither tensor nor stream: {some(bare)}"
        raise Fault(msg)
