"""Names, limits and number formats of a capture on disk; the page is docs/capture-format.md."""

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from validate.capture.messages import Fault
from validate.schema import PROMPT_ID, Prompt, Stream, TensorEntry

__all__ = [
    "DTYPES",
    "EVALS",
    "JOURNAL",
    "JSON_CAP",
    "MANIFEST",
    "MANIFEST_CAP",
    "PROMPTS",
    "SHARDS",
    "SHARD_BYTES",
    "SHARD_PROMPTS",
    "STREAMS",
    "TIMING",
    "NumberFormat",
    "Tensor",
    "artifact_of",
    "check_entry",
    "check_prompt",
    "check_stream",
    "entry_bytes",
    "shard_name",
    "split_key",
]

MANIFEST = "manifest.json"
PROMPTS = "prompts.jsonl"
STREAMS = "streams.jsonl"
TIMING = "timing.json"
EVALS = "evals.jsonl"
"""Head of the evals; their columns lie in a shard."""
JOURNAL = "journal.jsonl"
SHARDS = "shards"

SHARD_BYTES = 64 * 2**20
"""Tensor bytes after which a shard is closed; a larger tensor has a shard of its own."""
SHARD_PROMPTS = 16
"""Prompts after which the shards are closed, so that an interruption loses no more."""
MANIFEST_CAP = 64 * 2**20
"""Largest manifest that is read or written, in bytes."""
JSON_CAP = 512 * 2**20
"""Largest prompts, streams or timing file that is read or written, in bytes."""

_MAX_DIMS = 16
_MAX_ELEMENTS = 2**48
_KEY = re.compile(rf"(?P<prompt>{PROMPT_ID[1:-1]})/(?P<name>[A-Za-z0-9_][A-Za-z0-9_.-]{{0,199}})")
_AXIS = re.compile(r"[a-z][a-z0-9_]*")


class NumberFormat(NamedTuple):
    """How one dtype is called in a shard, and how NumPy holds it."""

    code: str
    """The name in a safetensors header."""
    dtype: np.dtype[Any]
    """Little-endian, as the file has it."""


DTYPES: Mapping[str, NumberFormat] = {
    "int64": NumberFormat("I64", np.dtype("<i8")),
    "float64": NumberFormat("F64", np.dtype("<f8")),
    "float32": NumberFormat("F32", np.dtype("<f4")),
    "int32": NumberFormat("I32", np.dtype("<i4")),
    "bfloat16": NumberFormat("BF16", np.dtype(ml_dtypes.bfloat16)),
    "float16": NumberFormat("F16", np.dtype("<f2")),
    "int16": NumberFormat("I16", np.dtype("<i2")),
    "uint8": NumberFormat("U8", np.dtype("u1")),
}
"""By full name, in the order in which a shard stores them (widest first keeps all aligned)."""


class Tensor(NamedTuple):
    """An array with the names of its axes."""

    array: NDArray[Any]
    axes: tuple[str, ...]


def shard_name(number: int) -> str:
    """Path of a shard inside the capture."""
    return f"{SHARDS}/{number:05d}.safetensors"


def artifact_of(name: str) -> Literal["logits", "state", "renorm", "speculative", "tensors"]:
    """The artifact that a tensor name belongs to.

    Example:
        >>> [artifact_of(n) for n in ("logits", "stream.logits", "state.decode.kv.3")]
        ['logits', 'logits', 'state']
        >>> artifact_of("decode.logits"), artifact_of("renorm.in"), artifact_of("spec.sampled.p")
        ('tensors', 'renorm', 'speculative')
    """
    if name in ("logits", "stream.logits") or name.startswith("logits."):
        return "logits"
    if name.startswith("renorm."):
        return "renorm"
    if name.startswith("spec."):
        return "speculative"
    return "state" if name.startswith("state.") else "tensors"


def split_key(key: str) -> tuple[str, str]:
    """Prompt id and tensor name of ``<prompt id>/<tensor name>``.

    Raises:
        Fault: The key has another form.
    """
    match = _KEY.fullmatch(key)
    if match is None:
        msg = (
            f"tensor name {key!r} is not '<prompt id>/<name>' with a prompt id of a-z 0-9 - (at "
            "most 64) and a name of A-Z a-z 0-9 _ . - (at most 200, no further '/')"
        )
        raise Fault(msg)
    return match["prompt"], match["name"]


def entry_bytes(entry: TensorEntry) -> int:
    """Bytes that the tensor takes in its shard."""
    size = DTYPES[entry.dtype].dtype.itemsize
    for extent in entry.shape:
        size *= extent
    return size


def check_entry(entry: TensorEntry) -> tuple[str, str]:
    """Check name, axes and size of one tensor; gives its prompt id and its name.

    Raises:
        Fault: The name has another form, the axes do not fit the shape, or the
            shape is larger than any array can be.
    """
    prompt, name = split_key(entry.name)
    if len(entry.axes) != len(entry.shape):
        msg = (
            f"tensor {entry.name!r}: {len(entry.axes)} axis names for {len(entry.shape)} dimensions"
        )
        raise Fault(msg, axes=str(entry.axes), shape=str(entry.shape))
    bad = [axis for axis in entry.axes if _AXIS.fullmatch(axis) is None]
    if bad or len(set(entry.axes)) != len(entry.axes):
        msg = f"tensor {entry.name!r}: axis names {entry.axes} must be distinct words of a-z 0-9 _"
        raise Fault(msg)
    elements = 1
    for extent in entry.shape:
        elements *= max(extent, 1)
    if len(entry.shape) > _MAX_DIMS or elements > _MAX_ELEMENTS:
        msg = f"tensor {entry.name!r}: shape {entry.shape} is larger than any array can be"
        raise Fault(msg)
    return prompt, name


def check_prompt(prompt: Prompt) -> None:
    """Check what the record alone cannot.

    Raises:
        Fault: ``prompt_length`` lies beyond the tokens.
    """
    if prompt.prompt_length > len(prompt.token_ids):
        msg = (
            f"prompt {prompt.id!r}: prompt_length {prompt.prompt_length} exceeds its "
            f"{len(prompt.token_ids)} token ids"
        )
        raise Fault(msg)


def check_stream(stream: Stream, *, prompt: str, batch_row: int | None) -> None:
    """Check that a stream belongs to its prompt and is whole in itself.

    Raises:
        Fault: Another prompt or batch row, another number of logprobs than
            tokens, a logprob that is not finite, a row outside the batch, or a drawn
            stream that does not say what was asked for.
    """
    where = f"stream of prompt {prompt!r}"
    if stream.prompt != prompt:
        msg = f"{where}: it names prompt {stream.prompt!r}"
        raise Fault(msg)
    if len(stream.logprobs) != len(stream.token_ids):
        msg = f"{where}: {len(stream.logprobs)} logprobs for {len(stream.token_ids)} token ids"
        raise Fault(msg)
    finite = (value is None or bool(np.isfinite(value)) for value in stream.logprobs)
    if not all(finite):
        msg = f"{where}: a logprob is NaN or infinite; null is how the format says that"
        raise Fault(msg)
    if stream.batch_row >= stream.batch_size:
        msg = f"{where}: batch row {stream.batch_row} of a batch of {stream.batch_size}"
        raise Fault(msg)
    if stream.kind == "greedy" and batch_row not in (None, stream.batch_row):
        msg = f"{where}: batch row {stream.batch_row}, but {batch_row} for the prompt itself"
        raise Fault(msg)
    if stream.kind != "greedy" and stream.params is None:
        msg = f"{where}: kind {stream.kind} and no params, so its law is not known"
        raise Fault(msg)
