"""Answers of one model on disk, so that an interrupted run is taken up item by item.

One file a model: its name and its first line are the digest of everything the
answers depend on. Each further line holds the answers of one batch, the
branches that ran for it and the recording that it ran for; a line cut short
does not count.
"""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from validate.capture.digest import json_sha256
from validate.capture.jsontext import compact
from validate.errors import CaptureError

__all__ = ["Answers", "Asked"]

Asked = Mapping[str, Any]
"""What an answer depends on beside the model: kind, token ids, generation arguments."""


class Answers:
    """The answers of one model: those of an earlier run, and those of this one.

    Args:
        folder: Where the files of all models lie.
        model: SHA-256 over weights, options, source, versions and device.
        resume: Take up what is there; else it is begun anew.
        recording: Id of the capture that asks, the same after each interruption of it.

    Raises:
        CaptureError: The file holds the answers of another model.
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
        folder.mkdir(parents=True, exist_ok=True)
        if resume and self.path.is_file():
            self._load()
        else:
            self.path.write_bytes(_line({"model": model}))

    @staticmethod
    def key(asked: Asked) -> str:
        """Digest of a request."""
        return json_sha256(dict(asked))

    def get(self, key: str) -> Any:
        """The answer to a request of that digest, or None."""
        return self._held.get(key)

    def add(self, answers: Mapping[str, Any], branches: Mapping[str, int]) -> None:
        """Keep the answers of one batch for good."""
        record = {
            "answers": dict(answers),
            "branches": dict(branches),
            "recording": self.recording,
        }
        self._take(record)
        with self.path.open("ab") as stream:
            stream.write(_line(record))
            stream.flush()
            os.fsync(stream.fileno())

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

    def _load(self) -> None:
        lines = self.path.read_bytes().split(b"\n")
        whole, rest = lines[:-1], lines[-1]
        first = json.loads(whole[0]) if whole else {}
        if first.get("model") != self.model:
            msg = (
                f"{self.path}: holds the answers of another model: its first line says "
                f"{str(first.get('model'))[:16]}, this model is {self.model[:16]}\n"
                f"  do next: remove {self.path}; a cache is never shared between models"
            )
            raise CaptureError(msg)
        for text in whole[1:]:
            record = json.loads(text)
            self._take(record)
            self.branches.update(record["branches"])
        if rest:
            with self.path.open("r+b") as stream:
                stream.truncate(sum(len(text) + 1 for text in whole))


def _line(record: Mapping[str, Any]) -> bytes:
    return compact(dict(record)).encode() + b"\n"
