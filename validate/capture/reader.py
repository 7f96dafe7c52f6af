"""Open a capture: hostile until checked, then read tensor by tensor in bounded memory."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validate.capture.admit import Contents, Place, admit, renew_command
from validate.capture.evals import read_evals
from validate.capture.files import copy_range
from validate.capture.format import DTYPES, EVALS
from validate.capture.messages import blame, capture_error, some
from validate.capture.recent import Recent
from validate.errors import CaptureError, InputError
from validate.schema import Manifest, Prompt, Stream
from validate.schema.evals import EvalSet

__all__ = ["CaptureReader", "open_capture"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureReader:
    """The reading side of one capture that has passed every check."""

    label: str
    """Target name, for messages."""
    path: Path
    digest: str
    """SHA-256 of the manifest, which holds the digest of every other file."""
    manifest: Manifest
    prompts: Mapping[str, Prompt]
    """Prompts by id, in capture order."""
    streams: Mapping[str, Stream]
    """Greedy streams by prompt id."""
    drawn: Mapping[str, Mapping[str, Stream]]
    """Streams of the other kinds: kind, then prompt id."""
    timing: Mapping[str, float]
    """Timings by name; the unit ends the name."""
    _places: Mapping[str, Mapping[str, Place]]
    _sorted: Mapping[str, tuple[str, ...]]
    """Names of the tensors by prompt, in order."""
    evals: EvalSet | None = None
    """Downstream evals, where the capture holds them."""
    _recent: Recent = field(default_factory=Recent, repr=False, compare=False)

    def names(self, prompt: str) -> tuple[str, ...]:
        """Sorted names of the tensors captured for ``prompt``.

        Raises:
            CaptureError: There is no such prompt.
        """
        self._tensors(prompt)
        return self._sorted[prompt]

    def axes(self, prompt: str, name: str) -> tuple[str, ...]:
        """Axis names of one tensor, in order."""
        return self._place(prompt, name).entry.axes

    def shape(self, prompt: str, name: str) -> tuple[int, ...]:
        """Shape of one tensor; reads nothing."""
        return self._place(prompt, name).entry.shape

    def dtype(self, prompt: str, name: str) -> str:
        """Full name of one tensor's dtype; reads nothing."""
        return self._place(prompt, name).entry.dtype

    def tensor(self, prompt: str, name: str) -> NDArray[Any]:
        """One tensor in its stored dtype (bfloat16 as ``ml_dtypes.bfloat16``); a copy, in memory.

        Raises:
            CaptureError: There is no such tensor, or its file has changed since
                the capture was opened.
        """
        place = self._place(prompt, name)
        return self._load(place, shape=place.entry.shape, offset=place.offset)

    def rows(self, prompt: str, name: str, block: int) -> Iterator[NDArray[Any]]:
        """One tensor as copies of at most ``block`` rows along its first axis, in order.

        Raises:
            InputError: ``block`` is below 1, or the tensor has no axes.
            CaptureError: As ``tensor``.
        """
        place = self._place(prompt, name)
        if block < 1 or not place.entry.shape:
            msg = (
                f"{self.label}: prompt {prompt!r}, tensor {name!r}: blocks of {block} rows of a "
                f"tensor of shape {place.entry.shape}; both must be at least one"
            )
            raise InputError(msg)
        return self._blocks(place, block)

    def _blocks(self, place: Place, block: int) -> Iterator[NDArray[Any]]:
        total, *row = place.entry.shape
        row_bytes = DTYPES[place.entry.dtype].dtype.itemsize * int(np.prod(row, dtype=np.int64))
        for begin in range(0, total, block):
            count = min(block, total - begin)
            offset = place.offset + begin * row_bytes
            yield self._load(place, shape=(count, *row), offset=offset)

    def _load(self, place: Place, *, shape: tuple[int, ...], offset: int) -> NDArray[Any]:
        """A copy of a run of rows: of what was read lately, else from the file as it was pinned."""
        return self._recent.get(
            (place.file.path, offset, shape, place.entry.dtype),  # empty tensors share an offset
            lambda: self._read(place, shape=shape, offset=offset),
        )

    def _read(self, place: Place, *, shape: tuple[int, ...], offset: int) -> NDArray[Any]:
        with blame(self.label, place.file.path, do_next="compare again once nothing writes there"):
            return _rows(place, shape=shape, offset=offset)

    def _tensors(self, prompt: str) -> Mapping[str, Place]:
        if prompt not in self._places:
            raise self._unknown(prompt, set(self._places), f"no prompt {prompt!r}", "prompts here")
        return self._places[prompt]

    def _place(self, prompt: str, name: str) -> Place:
        tensors = self._tensors(prompt)
        if name not in tensors:
            what = f"prompt {prompt!r} has no tensor {name!r}"
            raise self._unknown(name, set(tensors), what, "tensors here")
        return tensors[name]

    def _unknown(self, word: str, known: set[str], what: str, noun: str) -> CaptureError:
        close = difflib.get_close_matches(word, sorted(known), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return capture_error(
            self.label,
            self.path,
            f"{what}{hint}",
            facts={noun: f"{len(known)}: {some(known)}"},
            do_next=renew_command(self.path, self.manifest),
        )


def _rows(place: Place, *, shape: tuple[int, ...], offset: int) -> NDArray[Any]:
    out: NDArray[Any] = np.empty(shape, dtype=DTYPES[place.entry.dtype].dtype)
    copy_range(place.file, offset, out.reshape(-1).view(np.uint8).data)
    return out


def _evals(path: Path, found: Contents, label: str) -> EvalSet | None:
    if found.evals is None:
        return None

    def load(name: str) -> NDArray[Any] | None:
        place = found.eval_places.get(name)
        if place is None:
            return None
        return _rows(place, shape=place.entry.shape, offset=place.offset)

    again = renew_command(path, found.manifest)
    with blame(label, path / EVALS, do_next=again):
        return read_evals(found.evals, load)


def open_capture(path: Path, *, label: str, verify: bool = True) -> CaptureReader:
    """Check a capture and open it.

    Args:
        path: The folder.
        label: Side or target name, which begins every message.
        verify: Compare the digest of every file with the manifest. Without it
            sizes, headers and token data are still checked.

    Raises:
        CaptureError: The capture is missing, unfinished, damaged, of another
            version or hostile; the message names the file and the numbers.
    """
    found: Contents = admit(path, label=label, verify=verify)
    places: dict[str, dict[str, Place]] = {prompt: {} for prompt in found.prompts}
    for (prompt, name), place in found.places.items():
        places[prompt][name] = place
    return CaptureReader(
        label=label,
        path=path,
        digest=found.digest,
        manifest=found.manifest,
        prompts=MappingProxyType(found.prompts),
        streams=MappingProxyType(found.streams["greedy"]),
        drawn=MappingProxyType(
            {
                kind: MappingProxyType(held)
                for kind, held in found.streams.items()
                if kind != "greedy"
            }
        ),
        timing=MappingProxyType(found.timing),
        evals=_evals(path, found, label),
        _places=MappingProxyType(places),
        _sorted=MappingProxyType({prompt: tuple(sorted(held)) for prompt, held in places.items()}),
    )
