"""One tensor file: the safetensors layout, written as a stream and read with suspicion.

Layout (https://huggingface.co/docs/safetensors, "Format"): eight bytes with the
length of the header, little-endian; the header, JSON padded with spaces to a
multiple of eight; the tensors, row-major, one after the other without a hole.
The bytes equal those of ``safetensors.serialize``, which would hold a second
copy of every tensor, knows no digest and turns a full disk into text.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from validate.capture.files import PinnedFile, copy_range
from validate.capture.format import DTYPES, entry_bytes
from validate.capture.jsontext import canonical, compact, parse
from validate.capture.messages import Fault, some, validation_fault
from validate.schema import TensorEntry

__all__ = ["HEADER_CAP", "Part", "check_shard", "encode_shard", "ordered", "split_parts"]

HEADER_CAP = 64 * 2**20
"""Largest header that is read, in bytes."""
_PREFIX = 8
_METADATA = "__metadata__"
_ORDER = {name: rank for rank, name in enumerate(DTYPES)}


class Part(NamedTuple):
    """One tensor on its way into a shard."""

    entry: TensorEntry
    array: NDArray[Any]
    """Contiguous, in the dtype and byte order of the file."""


def ordered(parts: Iterable[Part]) -> list[Part]:
    """Parts in the order of the file: widest dtype first, then by name."""
    return sorted(parts, key=lambda part: (_ORDER[part.entry.dtype], part.entry.name))


def split_parts(parts: Sequence[Part], *, limit: int) -> Iterator[list[Part]]:
    """Cut ``parts`` into runs of at most ``limit`` bytes; a larger tensor stands alone."""
    run: list[Part] = []
    size = 0
    for part in parts:
        if run and size + part.array.nbytes > limit:
            yield run
            run, size = [], 0
        run.append(part)
        size += part.array.nbytes
    if run:
        yield run


def encode_shard(parts: Sequence[Part]) -> Iterator[bytes | memoryview]:
    """The bytes of a shard, chunk by chunk: the header, then each tensor without a copy.

    Args:
        parts: In file order (``ordered``).
    """
    header: dict[str, Any] = {}
    end = 0
    for entry, array in parts:
        begin, end = end, end + array.nbytes
        header[entry.name] = {
            "dtype": DTYPES[entry.dtype].code,
            "shape": list(entry.shape),
            "data_offsets": [begin, end],
        }
    text = compact(header).encode()
    text += b" " * (-len(text) % _PREFIX)
    yield len(text).to_bytes(_PREFIX, "little") + text
    for part in parts:
        yield part.array.reshape(-1).view(np.uint8).data


class _Span(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


_SPANS = TypeAdapter(dict[str, _Span])


def check_shard(file: PinnedFile, entries: Sequence[TensorEntry]) -> dict[str, int]:
    """Check a shard's header against the manifest before anything is read through it.

    Args:
        file: The shard.
        entries: What the manifest says it holds.

    Returns:
        First byte of each tensor in the file, by name.

    Raises:
        Fault: The header is cut short, too long or no JSON of the right form; it
            names other tensors, dtypes or shapes than the manifest; or the
            offsets overlap, leave a hole or run past the end of the file.
    """
    start, spans = _read_header(file)
    known = {entry.name: entry for entry in entries}
    if spans.keys() != known.keys():
        msg = "the tensors are not those that the manifest lists"
        raise Fault(
            msg,
            **{
                "only in the shard": some(set(spans) - set(known)),
                "only in the manifest": some(set(known) - set(spans)),
            },
        )
    for name, entry in known.items():
        _check_span(name, spans[name], entry)
    _check_tiling(spans, data=file.bytes - start)
    return {name: start + span.data_offsets[0] for name, span in spans.items()}


def _read_header(file: PinnedFile) -> tuple[int, Mapping[str, _Span]]:
    """End of the header in the file, and what it lists."""
    if file.bytes < _PREFIX:
        msg = f"the shard has {file.bytes} bytes; its header alone needs more than {_PREFIX}"
        raise Fault(msg)
    prefix = bytearray(_PREFIX)
    copy_range(file, 0, memoryview(prefix))
    length = int.from_bytes(prefix, "little")
    if length > min(HEADER_CAP, file.bytes - _PREFIX):
        msg = (
            f"the shard's header claims {length} bytes; the file has {file.bytes} and a header "
            f"may have {HEADER_CAP}"
        )
        raise Fault(msg)
    text = bytearray(length)
    copy_range(file, _PREFIX, memoryview(text))
    raw = parse(bytes(text))
    if isinstance(raw, dict):
        raw.pop(_METADATA, None)
    try:
        # Through JSON again: only there does pydantic take a list for a tuple strictly.
        return _PREFIX + length, _SPANS.validate_json(canonical(raw), strict=True)
    except ValidationError as err:
        raise validation_fault(err, "the shard's header has not the safetensors form") from err


def _check_span(name: str, span: _Span, entry: TensorEntry) -> None:
    code = DTYPES[entry.dtype].code
    if (span.dtype, span.shape) != (code, entry.shape):
        msg = (
            f"tensor {name!r} is {span.dtype} {span.shape}, the manifest says {code} {entry.shape}"
        )
        raise Fault(msg)
    begin, end = span.data_offsets
    if end - begin != entry_bytes(entry):
        msg = (
            f"tensor {name!r} spans bytes {begin} to {end}, {end - begin} in all; "
            f"{entry.dtype} {entry.shape} takes {entry_bytes(entry)}"
        )
        raise Fault(msg)


def _check_tiling(spans: Mapping[str, _Span], *, data: int) -> None:
    """Require that the tensors cover the data exactly, each byte once."""
    at = 0
    for name, span in sorted(spans.items(), key=lambda item: item[1].data_offsets):
        begin, end = span.data_offsets
        if begin != at:
            kind = "overlaps the one before it" if begin < at else "leaves a hole before it"
            msg = f"tensor {name!r} {kind}: it begins at byte {begin}, expected {at}"
            raise Fault(msg)
        at = end
    if at != data:
        msg = f"the tensors take {at} bytes, the shard holds {data} of data"
        raise Fault(msg)
