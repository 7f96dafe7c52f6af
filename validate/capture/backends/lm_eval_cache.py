"""Answers of one model on disk, so that an interrupted run is taken up item by item.

One file a model: its name and its first line are the digest of everything the
answers depend on. Each further line holds the answers of one batch, the
branches that ran for it and the recording that it ran for. Every line carries
the digest of its content, so that what is damaged is not taken for an answer;
a last line without its newline was cut by a crash and does not count.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from validate.capture.digest import json_sha256
from validate.capture.durable import append_line
from validate.capture.jsontext import compact, parse
from validate.capture.messages import Fault, cause
from validate.errors import CaptureError

__all__ = ["Answers", "Asked"]

Asked = Mapping[str, Any]
"""What an answer depends on beside the model: kind, token ids, generation arguments."""
_DIGITS = 16
"""Hex digits of a line's digest."""
_BATCH = {"answers", "branches", "recording"}


class Answers:
    """The answers of one model: those of an earlier run, and those of this one.

    Args:
        folder: Where the files of all models lie.
        model: SHA-256 over weights, options, source, versions and device.
        resume: Take up what is there; else it is begun anew.
        recording: Id of the capture that asks, the same after each interruption of it.

    Raises:
        CaptureError: The file holds the answers of another model, is damaged, or
            cannot be read or written.
    """

    def __init__(self, folder: Path, *, model: str, resume: bool, recording: str) -> None:
        self.model = model
        self.recording = recording
        self.path = folder / f"{model[:32]}.jsonl"
        self.branches: Counter[str] = Counter()
        """Branches that ran for the answers of earlier runs."""
        self.hits = 0
        """Requests whose batch needed no run for this recording."""
        self.sent = 0
        """Requests that ran for this recording, before an interruption or after."""
        self._held: dict[str, Any] = {}
        self._ours: set[str] = set()
        """Keys that were first answered for this recording."""
        self._met: set[str] = set()
        """Keys that were counted."""
        with self._disk("written"):
            folder.mkdir(parents=True, exist_ok=True)
            begun = resume and self.path.is_file()
        if not (begun and self._load()):
            with self._disk("written"):
                self.path.write_bytes(b"")
            self._append({"model": model})

    @staticmethod
    def key(asked: Asked) -> str:
        """Digest of a request."""
        return json_sha256(dict(asked))

    def get(self, key: str) -> Any:
        """The answer to a request of that digest, or None."""
        return self._held.get(key)

    def add(self, answers: Mapping[str, Any], branches: Mapping[str, int]) -> None:
        """Keep the answers of one batch for good.

        Raises:
            CaptureError: The operating system refused; the answers are not kept.
        """
        record = {
            "answers": dict(answers),
            "branches": dict(branches),
            "recording": self.recording,
        }
        self._append(record)
        self._take(record)

    def count(self, keys: Sequence[str]) -> None:
        """Count the requests of one batch, once they are answered, as sent or as hits.

        A batch runs when it asks for what nobody answered. That it did so before an
        interruption shows by a key that was first answered for this recording and was
        in no batch before: the counts are those of a run that was never interrupted.
        """
        new = set(keys) - self._met
        if new.isdisjoint(self._ours):
            self.hits += len(keys)
        else:
            self.sent += len(keys)
        self._met |= new

    def _take(self, record: Mapping[str, Any]) -> None:
        answers = record["answers"]
        if record["recording"] == self.recording:
            self._ours |= answers.keys() - self._held.keys()
        self._held |= answers

    def _append(self, record: Mapping[str, Any]) -> None:
        with self._disk("written"):
            handle = os.open(
                self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644
            )
            try:
                append_line(handle, _line(record))
            finally:
                os.close(handle)

    def _load(self) -> bool:
        """Take what is there; False where not even the first line was written whole."""
        with self._disk("read"):
            whole = self.path.read_bytes().split(b"\n")
        rest = whole.pop()
        if not whole:
            return False
        first = self._record(whole[0], 1, {"model"})
        if first["model"] != self.model:
            msg = (
                f"{self.path}: holds the answers of another model: its first line says "
                f"{str(first['model'])[:16]}, this model is {self.model[:16]}\n"
                f"  do next: remove {self.path}; a cache is never shared between models"
            )
            raise CaptureError(msg)
        for number, text in enumerate(whole[1:], start=2):
            record = self._record(text, number, _BATCH)
            self._take(record)
            self.branches.update(record["branches"])
        if rest:
            with self._disk("written"), self.path.open("r+b") as stream:
                stream.truncate(sum(len(text) + 1 for text in whole))
        return True

    def _record(self, text: bytes, number: int, names: set[str]) -> Mapping[str, Any]:
        """What a line holds, once its digest is right.

        Raises:
            CaptureError: It is damaged.
        """
        try:
            return _content(text, names)
        except Fault as fault:
            msg = (
                f"{self.path}: line {number} is damaged: {fault.what}\n"
                f"  do next: remove {self.path}; the answers are computed again"
            )
            raise CaptureError(msg) from fault

    @contextlib.contextmanager
    def _disk(self, done: str) -> Iterator[None]:
        """Say of an error of the file system which file it is, for ``--out`` lies elsewhere.

        Raises:
            CaptureError: In place of every ``OSError``.
        """
        try:
            yield
        except OSError as error:
            msg = (
                f"{self.path}: the answers of the evals could not be {done}: {cause(error)}\n"
                "  do next: free space there, or make it readable and writable, then take the "
                "recording up; what was answered before is kept"
            )
            raise CaptureError(msg) from error


def _line(record: Mapping[str, Any]) -> bytes:
    plain = dict(record)
    return compact({"sha256": json_sha256(plain)[:_DIGITS], "record": plain}).encode() + b"\n"


def _content(text: bytes, names: set[str]) -> Mapping[str, Any]:
    raw = parse(text)
    if not isinstance(raw, Mapping) or raw.keys() != {"sha256", "record"}:
        msg = "it holds no digest and record"
        raise Fault(msg)
    actual = json_sha256(raw["record"])[:_DIGITS]
    if actual != raw["sha256"]:
        msg = f"it says sha256 {str(raw['sha256'])[:_DIGITS]!r}, its content has {actual}"
        raise Fault(msg)
    record = raw["record"]
    if not isinstance(record, Mapping) or record.keys() != names:
        msg = f"it does not hold {', '.join(sorted(names))}"
        raise Fault(msg)
    return record
