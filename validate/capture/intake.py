"""What a backend hands over: checked, and made ready for the file."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from pydantic import ValidationError

from validate.capture.format import DTYPES, Tensor, check_entry, check_prompt, check_stream
from validate.capture.messages import Fault, validation_fault
from validate.capture.shard import Part
from validate.schema import DRAWN_KINDS, PathProof, Prompt, Stream, TensorEntry

__all__ = ["Held", "add_proofs", "hold"]


class Held(NamedTuple):
    """One prompt in memory, not yet on the disk."""

    prompt: Prompt
    stream: Stream | None
    batch_row: int
    parts: tuple[Part, ...]
    """Its tensors by name, in alphabetical order."""
    nbytes: int
    """Of all its tensors."""
    drawn: tuple[Stream, ...] = ()


def hold(
    prompt: Prompt,
    tensors: Mapping[str, Tensor],
    *,
    stream: Stream | None,
    batch_row: int,
    drawn: Sequence[Stream] = (),
) -> Held:
    """Check one prompt and copy its tensors.

    Raises:
        Fault: Something does not fit the format, or there is nothing to store.
    """
    check_prompt(prompt)
    if batch_row < 0:
        msg = f"batch row {batch_row} is negative"
        raise Fault(msg)
    if stream is not None:
        check_stream(stream, prompt=prompt.id, batch_row=batch_row)
    for other in drawn:
        check_stream(other, prompt=prompt.id, batch_row=None)
    kinds = [other.kind for other in drawn]
    if "greedy" in kinds or len(set(kinds)) != len(kinds):
        msg = f"drawn streams have the kinds {kinds}; each of {', '.join(DRAWN_KINDS)} comes at most once"
        raise Fault(msg)
    if not tensors and stream is None:
        msg = "has neither tensor nor stream; there is nothing to store"
        raise Fault(msg)
    parts = tuple(_part(prompt.id, name, tensors[name]) for name in sorted(tensors))
    held = sum(part.array.nbytes for part in parts)
    return Held(prompt, stream, batch_row, parts, held, tuple(drawn))


def _part(prompt: str, name: str, tensor: Tensor) -> Part:
    array, axes = tensor
    # A masked array would lose its mask, another framework's tensor its device.
    if type(array) not in (np.ndarray, np.memmap):
        kind = f"{type(array).__module__}.{type(array).__qualname__}"
        msg = f"tensor {name!r} is a {kind}, not a numpy.ndarray"
        raise Fault(msg)
    dtype = array.dtype.name
    if dtype not in DTYPES:
        msg = f"tensor {name!r} has dtype {dtype}; the format knows {', '.join(DTYPES)}"
        raise Fault(msg)
    fields = {"name": f"{prompt}/{name}", "dtype": dtype, "shape": array.shape, "axes": axes}
    try:
        entry = TensorEntry.model_validate(fields, strict=True)
    except ValidationError as err:
        raise validation_fault(err, f"tensor {name!r} cannot be described") from err
    check_entry(entry)
    stored = np.array(array, dtype=DTYPES[dtype].dtype, order="C", copy=True)
    return Part(entry, stored)


def add_proofs(before: PathProof | None, now: PathProof) -> PathProof:
    """Counts of an interrupted run and of the run that took it up, together and by name.

    Raises:
        Fault: They ran different paths.
    """
    before = PathProof(path=now.path) if before is None else before
    if before.path != now.path:
        msg = f"the path proof is of path {now.path!r}; stored prompts ran {before.path!r}"
        raise Fault(msg)
    return PathProof(
        path=now.path,
        branches=_sum(before.branches, now.branches),
        kernels=_sum(before.kernels, now.kernels),
    )


def _sum(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    names = sorted(before.keys() | now.keys())
    return {name: before.get(name, 0) + now.get(name, 0) for name in names}
