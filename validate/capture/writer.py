"""Write a capture: append-only, resumable, and whole only once its manifest is there."""

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal

from validate.capture.digest import manifest_seal, prompt_set_digest
from validate.capture.durable import Written, write_error, write_whole
from validate.capture.evals import encode_head, encode_parts
from validate.capture.format import (
    EVALS,
    MANIFEST,
    MANIFEST_CAP,
    PROMPTS,
    SHARD_BYTES,
    SHARD_PROMPTS,
    STREAMS,
    TIMING,
    Tensor,
    artifact_of,
    shard_name,
)
from validate.capture.intake import Held, add_proofs, hold
from validate.capture.journal import Group, Journal, Start
from validate.capture.jsontext import record_line
from validate.capture.messages import Fault, blame, some
from validate.capture.records import encode_manifest, encode_timing
from validate.capture.resume import begin, lock_folder, take_up
from validate.capture.shard import Part, encode_shard, ordered, split_parts
from validate.schema import (
    SCHEMA_VERSION,
    ArtifactFile,
    CaptureHeader,
    Manifest,
    PathProof,
    Prompt,
    Stream,
    supported_evidence,
)
from validate.schema.evals import EvalSet

__all__ = ["CaptureWriter"]

_CORRECT = "correct what the backend hands over"
_Sharded = Literal["logits", "tensors", "state", "renorm", "speculative", "evals"]
_SHARDED: tuple[_Sharded, ...] = ("logits", "tensors", "state", "renorm", "speculative")


class CaptureWriter:
    """Writes one capture into one folder.

    Prompts are held in memory until a group of them is full (64 MiB of tensors
    or 16 prompts); then its shards are written and one journal line commits it.
    ``close`` writes the token data and, last, the manifest. Whatever stops the
    writer before that leaves a folder that ``open_capture`` refuses and
    ``resume=True`` takes up.

    Use it as a context manager: leaving the block without ``close`` releases
    the folder and keeps what is committed.

    Args:
        path: The folder; made if need be.
        header: What is known of the capture up front.
        resume: Take up what ``path`` holds. A folder without a capture is begun
            as if new; a complete capture is checked and kept.
        shard_bytes: Tensor bytes that fill a group. A resumed capture keeps
            the number it was begun with, and so it is with ``shard_prompts``.
        shard_prompts: Prompts that fill a group.
        command: The command that takes it up, as ``resume_command`` wants it; None: not known.
        evals: Whether ``close`` will be given evals; None: not known. A capture is not resumed
            without the evals that it was begun with, nor with any that it was begun without.
        eval_plan: ``plan_digest`` of them; None: not known. Another one is not resumed.

    Raises:
        CaptureError: The folder holds something else, another header or
            damage; another process writes there; or it cannot be written.
    """

    def __init__(
        self,
        path: Path,
        *,
        header: CaptureHeader,
        resume: bool = False,
        shard_bytes: int = SHARD_BYTES,
        shard_prompts: int = SHARD_PROMPTS,
        command: Sequence[str] | None = None,
        evals: bool | None = None,
        eval_plan: str | None = None,
    ) -> None:
        self._root = path
        self._label = header.target
        start = Start(
            header=header,
            shard_bytes=shard_bytes,
            shard_prompts=shard_prompts,
            recording=uuid.uuid4().hex,
            command=None if command is None else tuple(command),
            evals=evals,
            eval_plan=eval_plan,
        )
        self._next = start.resume_command(path)
        self._pending: list[Held] = []
        self._lock: int | None = None
        self._journal: Journal | None = None
        self._whole: Manifest | None = None
        self._evals: EvalSet | None = None
        self._open = True
        with self._writing():
            self._lock = lock_folder(path, self._label, self._next)
            found = take_up(path, start) if resume else begin(path, start)
            if found.whole is None:
                self._journal = Journal(path, start=found.start, groups=found.groups)
                self._done = {prompt.id for group in found.groups for prompt in group.prompts}
            else:
                self._whole = found.whole.manifest
                self._done = set(found.whole.prompts)
        self._start = found.start
        self._before = found.groups[-1].proof if found.groups else None
        self._proof = self._before

    @property
    def done(self) -> frozenset[str]:
        """Ids of the prompts that are stored for good and need not be added again.

        A backend whose numbers depend on what shares a batch runs a batch
        again as a whole when one of its prompts is missing here, and adds only
        those that are missing.
        """
        return frozenset(self._done)

    @property
    def recording(self) -> str:
        """Id of this recording, the same each time that it is taken up."""
        return self._start.recording

    @property
    def complete(self) -> bool:
        """Whether the capture was whole when it was taken up: nothing need be run for it."""
        return self._whole is not None

    def add(
        self,
        prompt: Prompt,
        tensors: Mapping[str, Tensor],
        *,
        stream: Stream | None,
        batch_row: int,
        drawn: Sequence[Stream] = (),
        proof: PathProof | None = None,
    ) -> None:
        """Add one prompt with all that was captured for it.

        Args:
            prompt: The prompt; its id must be new here.
            tensors: Arrays by name, in any layout and byte order; copied.
            stream: The greedy stream, where there is one.
            batch_row: Row of the prompt in its batch.
            drawn: Streams of other kinds, each with the batch that it ran in.
            proof: Branches and kernels counted since this writer was opened.
                They are committed with the prompt, so that a resumed capture
                still proves what ran before it was interrupted.

        Raises:
            CaptureError: The prompt is there already, something of it does not
                fit the format, or the group cannot be written.
        """
        with self._checking(f"prompt {prompt.id!r}", _CORRECT):
            if self._whole is not None:
                msg = "the capture is complete; nothing can be added"
                raise Fault(msg)
            if prompt.id in self._done or any(
                prompt.id == held.prompt.id for held in self._pending
            ):
                msg = "is stored already; each prompt is added once"
                raise Fault(msg)
            held = hold(prompt, tensors, stream=stream, batch_row=batch_row, drawn=drawn)
            counted = self._proof if proof is None else add_proofs(self._before, proof)
        if self._pending and self._held_bytes() + held.nbytes > self._start.shard_bytes:
            self._commit()
        self._pending.append(held)
        self._proof = counted
        full = len(self._pending) >= self._start.shard_prompts
        if full or self._held_bytes() >= self._start.shard_bytes:
            self._commit()

    def close(
        self,
        *,
        path_proof: PathProof,
        timing: Mapping[str, float],
        evals: EvalSet | None = None,
    ) -> Manifest:
        """Commit what is held, then write token data, evals, timing and, last, the manifest.

        Args:
            path_proof: Branches and kernels counted since this writer was opened.
            timing: Numbers by name; the unit ends the name (``prefill_seconds``).
            evals: Downstream evals of the same model on the same path.

        Returns:
            The manifest. Its evidence is the header's claim, or less where the
            path proof does not carry it (``supported_evidence``). Of a capture
            that was complete when it was taken up, the stored one.

        Raises:
            CaptureError: The prompts are not those of the header's digest, a
                timing is not finite, or the operating system refused.
        """
        with self._checking("close", _CORRECT):
            proof = add_proofs(self._before, path_proof)
            timing_line = encode_timing(timing)
            columns = [] if evals is None else encode_parts(evals)
        self._evals = evals
        if self._whole is None:
            with self._checking("close", self._next):
                self._require_every_prompt()
            if self._pending:
                self._commit()
            with self._writing():
                self._whole = self._finish(proof, timing_line, columns)
        self._release()
        return self._whole

    def __enter__(self) -> "CaptureWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the folder; without ``close`` the capture stays unfinished."""
        self._release()

    def _commit(self) -> None:
        """Write the shards of the held prompts, then the journal line that makes them count."""
        with self._writing():
            held, self._pending = self._pending, []
            group = Group(
                prompts=tuple(one.prompt for one in held),
                streams=tuple(
                    stream
                    for one in held
                    for stream in (one.stream, *one.drawn)
                    if stream is not None
                ),
                batch_rows={one.prompt.id: one.batch_row for one in held},
                shards=tuple(self._write_shards(held)),
                proof=self._proof,
            )
            self._log.append(group)
            self._done.update(group.batch_rows)

    def _write_shards(self, held: list[Held]) -> Iterator[ArtifactFile]:
        number = sum(len(group.shards) for group in self._log.groups)
        for artifact in _SHARDED:
            parts = [
                part
                for one in held
                for part in one.parts
                if artifact_of(part.entry.name.partition("/")[2]) == artifact
            ]
            for run in split_parts(parts, limit=self._start.shard_bytes):
                yield self._write_shard(number, artifact, ordered(run))
                number += 1

    def _write_shard(self, number: int, artifact: _Sharded, parts: list[Part]) -> ArtifactFile:
        path = shard_name(number)
        written = self._write(path, encode_shard(parts))
        return ArtifactFile(
            artifact=artifact,
            path=path,
            bytes=written.bytes,
            sha256=written.sha256,
            tensors=tuple(part.entry for part in parts),
        )

    def _finish(self, proof: PathProof, timing_line: bytes, columns: list[Part]) -> Manifest:
        groups = self._log.groups
        streams = [record_line(stream) for group in groups for stream in group.streams]
        prompts = [record_line(prompt) for group in groups for prompt in group.prompts]
        files = [self._write_json("prompts", PROMPTS, prompts)]
        if streams:
            files.append(self._write_json("streams", STREAMS, streams))
        files.append(self._write_json("timing", TIMING, [timing_line]))
        if self._evals is not None:
            files.append(self._write_json("evals", EVALS, encode_head(self._evals)))
            number = sum(len(group.shards) for group in groups)
            files.append(self._write_shard(number, "evals", ordered(columns)))
        header = self._start.header
        manifest = Manifest(
            **{
                name: getattr(header, name)
                for name in CaptureHeader.model_fields
                if name != "evidence"
            },
            schema_version=SCHEMA_VERSION,
            batch_rows={name: row for group in groups for name, row in group.batch_rows.items()},
            artifacts=(*files, *(shard for group in groups for shard in group.shards)),
            path_proof=proof,
            evidence=supported_evidence(
                header.evidence, device=header.provenance.device, proof=proof
            ),
        )
        seal = manifest_seal(manifest.model_dump(mode="json"))
        manifest = manifest.model_copy(update={"digest": seal})
        text = encode_manifest(manifest)
        with blame(self._label, self._root / MANIFEST, do_next="capture fewer prompts or tensors"):
            if len(text) > MANIFEST_CAP:
                msg = f"the manifest would have {len(text)} bytes; at most {MANIFEST_CAP} are read"
                raise Fault(msg)
        self._write(MANIFEST, [text])
        self._log.remove()
        return manifest

    def _write_json(
        self,
        artifact: Literal["prompts", "streams", "timing", "evals"],
        path: str,
        lines: Iterable[bytes],
    ) -> ArtifactFile:
        written = self._write(path, lines)
        return ArtifactFile(
            artifact=artifact, path=path, bytes=written.bytes, sha256=written.sha256
        )

    def _write(self, path: str, chunks: Iterable[bytes | memoryview]) -> Written:
        return write_whole(self._root / path, chunks, label=self._label, do_next=self._next)

    def _require_every_prompt(self) -> None:
        stored = [prompt for group in self._log.groups for prompt in group.prompts]
        stored += [held.prompt for held in self._pending]
        actual = prompt_set_digest(stored)
        expected = self._start.header.prompt_digest
        if actual != expected:
            msg = f"the {len(stored)} prompts added are not those of the header's prompt_digest"
            raise Fault(msg, expected=expected, actual=actual, added=some({p.id for p in stored}))

    def _held_bytes(self) -> int:
        return sum(held.nbytes for held in self._pending)

    @property
    def _log(self) -> Journal:
        if self._journal is None:
            msg = "a complete capture has no journal"
            raise RuntimeError(msg)
        return self._journal

    @contextlib.contextmanager
    def _checking(self, place: str, do_next: str) -> Iterator[None]:
        """Turn a ``Fault`` into a CaptureError that leaves the writer usable."""
        with blame(self._label, f"{self._root}: {place}", do_next=do_next):
            if not self._open:
                msg = "the writer is closed"
                raise Fault(msg)
            yield

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """End the writer when anything stops it inside the block; nothing more is written then."""
        try:
            yield
        except BaseException as err:
            self._release()
            if isinstance(err, OSError):
                raise write_error(
                    err, self._label, self._root, written=0, do_next=self._next
                ) from err
            raise

    def _release(self) -> None:
        self._open = False
        self._pending = []
        if self._journal is not None:
            self._journal.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
