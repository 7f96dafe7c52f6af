"""Plant a fault in a capture that exists: read it, make one thing wrong, write it as a capture.

What is written is whole and sealed like any other: the fault is in what was recorded, not in
the file. Only the manifest's ``fault`` says so.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from validate.capture import CaptureReader, CaptureWriter, Tensor, open_capture, prompt_set_digest
from validate.errors import InputError
from validate.faults.capture_records import CAPTURE_FAULTS
from validate.schema import CaptureHeader, Prompt, Stream

__all__ = ["PLANTS", "SIDES", "Item", "Role", "plant"]

Array = NDArray[Any]
Role = Literal["ref", "cand"]
_EIGHTH = 8
_LONG = 64
"""Tokens of a prompt that is prefilled in pieces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One prompt of a capture, with all that was recorded for it."""

    prompt: Prompt
    tensors: Mapping[str, Tensor]
    stream: Stream | None
    drawn: tuple[Stream, ...]
    batch_row: int
    number: int
    """Place in the capture, from 0."""

    def with_arrays(self, changed: Mapping[str, Array]) -> "Item":
        """The item with other arrays, in the stored dtype; axes stay."""
        made = {
            name: Tensor(array.astype(self.tensors[name].array.dtype), self.tensors[name].axes)
            for name, array in changed.items()
        }
        return replace(self, tensors={**self.tensors, **made})


Change = Callable[[list[Item], str], list[Item]]
"""All items and the severity, to the items as the fault leaves them."""


def plant(
    fault: str,
    source: Path,
    out: Path,
    *,
    role: Role = "cand",
    severity: str | None = None,
    prompts: Collection[str] | None = None,
) -> Path:
    """Write ``source`` with a fault of ``where = capture`` in it.

    Args:
        fault: Id, e.g. ``TV-09``.
        source: A whole capture.
        out: Folder to write; must not hold a capture.
        role: The side it is meant for; a fault of one side leaves the other as it is.
        severity: One of the record's; its first, which is the public one, when None.
        prompts: Prompts that are kept; all when None.

    Returns:
        ``out``.

    Raises:
        InputError: The fault is not planted in captures, has no such severity, or changes nothing
            in these prompts: a fault that is not there must not look missed, nor caught.
        CaptureError: ``source`` is damaged or ``out`` cannot be written.
    """
    record = next((one for one in CAPTURE_FAULTS if one.id == fault), None)
    if record is None:
        known = ", ".join(one.id for one in CAPTURE_FAULTS)
        msg = f"fault '{fault}' is not planted in captures\n  known: {known}"
        raise InputError(msg)
    size = severity or next(iter(record.severities), "")
    if severity is not None and severity not in record.severities:
        known = ", ".join(record.severities) or "(one size only)"
        msg = f"fault '{fault}': severity '{severity}' is unknown\n  known: {known}"
        raise InputError(msg)
    held = open_capture(source, label=str(source))
    items = list(_items(held, prompts))
    planted = role in SIDES.get(fault, ("cand",))
    if planted:
        honest = items
        items = PLANTS[fault](items, f"{role}:{size}" if fault in _BY_ROLE else size)
        if fault not in _ELSEWHERE and _same(honest, items):
            msg = f"fault '{fault}' changes nothing in these {len(honest)} prompts of {source}"
            raise InputError(msg)
    _write(out, held, items, fault=fault if planted else None, role=role)
    return out


def _same(before: list[Item], after: list[Item]) -> bool:
    """Whether a plant left every prompt, array and stream as it was."""
    return len(before) == len(after) and all(
        (a.prompt, a.stream, a.drawn, a.tensors.keys())
        == (b.prompt, b.stream, b.drawn, b.tensors.keys())
        and all(
            a.tensors[name].array.tobytes() == b.tensors[name].array.tobytes() for name in a.tensors
        )
        for a, b in zip(before, after, strict=True)
    )


def _items(held: CaptureReader, kept: Collection[str] | None) -> Iterator[Item]:
    wanted = [name for name in held.prompts if kept is None or name in kept]
    for number, name in enumerate(wanted):
        yield Item(
            prompt=held.prompts[name],
            tensors={
                tensor: Tensor(held.tensor(name, tensor), held.axes(name, tensor))
                for tensor in held.names(name)
            },
            stream=held.streams.get(name),
            drawn=tuple(one[name] for one in held.drawn.values() if name in one),
            batch_row=held.manifest.batch_rows[name],
            number=number,
        )


def _write(
    out: Path, held: CaptureReader, items: list[Item], *, fault: str | None, role: Role
) -> None:
    told = held.manifest
    fields = {name: getattr(told, name) for name in CaptureHeader.model_fields}
    fields |= {"fault": fault, "prompt_digest": prompt_set_digest(item.prompt for item in items)}
    if fault is not None and role == "ref":  # a reference must name what is wrong with it
        fields["target"] = f"{told.target}:fault={fault}"
    if fault == "VX-144":
        digest = told.model.weights_digest
        fields["model"] = told.model.model_copy(update={"weights_digest": digest[::-1]})
    with CaptureWriter(out, header=CaptureHeader(**fields)) as writer:
        for item in items:
            writer.add(
                item.prompt,
                item.tensors,
                stream=item.stream,
                batch_row=item.batch_row,
                drawn=item.drawn,
            )
        writer.close(path_proof=told.path_proof, timing={"planted_seconds": 0.0})


def _each(change: Callable[[Item, str], Item], items: list[Item], severity: str) -> list[Item]:
    return [change(item, severity) for item in items]


def _first(change: Callable[[Item, str], Item], items: list[Item], severity: str) -> list[Item]:
    return [change(items[0], severity), *items[1:]]


def _wide(item: Item, name: str = "logits") -> Array:
    """An array of an item in float32, to write in."""
    return item.tensors[name].array.astype(np.float32)


def _tv_01(item: Item, severity: str) -> Item:
    logits = _wide(item)
    logits[0, slice(None) if severity == "row" else 0] = np.nan
    return item.with_arrays({"logits": logits})


def _tv_02(item: Item, severity: str) -> Item:
    outs = [
        name for name in item.tensors if name.endswith(".out") and not name.startswith("renorm")
    ]
    return item.with_arrays({name: _wide(item, name) * float(severity) for name in outs})


def _tv_04(item: Item, severity: str) -> Item:
    logits = _wide(item)
    floor = logits.max(axis=1, keepdims=True) - float(severity)
    return item.with_arrays({"logits": np.maximum(logits, floor)})


def _tv_05(item: Item, severity: str) -> Item:
    del severity
    logits = _wide(item)
    return item.with_arrays({"logits": np.concatenate([logits[:1], logits[:-1]])})


def _tv_09(items: list[Item], severity: str) -> list[Item]:
    made = []
    before: Array | None = None
    for item in items:
        logits = _wide(item)
        now, cached = logits.copy(), len(logits) // 2 if len(logits) >= _EIGHTH else 0
        if cached and (severity == "zero" or before is None):
            logits[:cached] = 0.0
        elif cached and before is not None:  # whatever the request before left in this memory
            logits[:cached] = np.resize(before, (cached, logits.shape[1]))
        made.append(item.with_arrays({"logits": logits}))
        before = now
    return made


def _tv_10(item: Item, severity: str) -> Item:
    del severity
    logits = _wide(item)
    if len(item.prompt.token_ids) < _LONG:
        return item
    chunk = slice(len(logits) // _EIGHTH, 2 * len(logits) // _EIGHTH)
    logits[chunk] = np.roll(logits, -3, axis=0)[chunk]
    return item.with_arrays({"logits": logits})


def _tv_15(item: Item, severity: str) -> Item:
    del severity
    made = {}
    for name in [name for name in item.tensors if name.endswith(".ids") and "router" in name]:
        ids = item.tensors[name].array.copy()
        scores = item.tensors[name.removesuffix("ids") + "scores"].array
        rows = np.arange(len(ids))
        hit = rows % 12 == (0 if len(ids) < 12 else 11)  # noqa: PLR2004  one row in twelve
        ids[hit, -1] = scores.argmin(axis=1)[hit]
        made[name] = ids
    return item.with_arrays(made)


def _tv_16(item: Item, severity: str, *, judged: bool = True) -> Item:
    del severity
    made: dict[str, Array] = {}
    drawn = []
    for stream in item.drawn:
        t = 1.0 if stream.params is None else stream.params.temperature
        name = f"spec.{stream.kind}.logprob"
        if t in (0.0, 1.0) or name not in item.tensors:
            drawn.append(stream)
            continue
        values = (_wide(item, name) / t).astype(np.float32)
        told = tuple(float(value) if np.isfinite(value) else None for value in values)
        drawn.append(stream.model_copy(update={"logprobs": told}))
        if judged:
            made[name] = values
    return replace(item.with_arrays(made), drawn=tuple(drawn))


def _la_02(items: list[Item], severity: str) -> list[Item]:
    del severity
    made: list[Item] = []
    before: dict[str, Array] = {}
    for item in items:
        names = [name for name in item.tensors if name.startswith("state.chunked.kda.")]
        stale = {name: before.get(name, 0.0 * item.tensors[name].array) for name in names}
        made.append(item.with_arrays(stale))
        before.update({name: item.tensors[name].array for name in names})
    return made


def _sp_13(item: Item, severity: str) -> Item:
    del severity
    made = {}
    for name in [name for name in item.tensors if name.endswith(".count")]:
        count = item.tensors[name].array.copy()
        step = int(count.argmax())
        count[step] -= min(1, int(count[step]))
        made[name] = count
    return item.with_arrays(made)


def _vx_140(item: Item, severity: str) -> Item:
    del severity
    kept = {name: held for name, held in item.tensors.items() if name != "stream.logits"}
    return replace(item, tensors=kept)


def _vx_141(items: list[Item], severity: str) -> list[Item]:
    del severity
    return items[:-1]


def _vx_142(item: Item, severity: str) -> Item:
    del severity
    stream = item.stream
    if stream is None:
        return item
    short = stream.model_copy(
        update={"token_ids": stream.token_ids[:5], "logprobs": stream.logprobs[:5]}
    )
    rows = item.tensors["stream.logits"]
    cut = {**item.tensors, "stream.logits": Tensor(rows.array[:5], rows.axes)}
    return replace(item, tensors=cut, stream=short)


def _vx_143(items: list[Item], severity: str) -> list[Item]:
    del severity
    made = list(items)
    for i, one in enumerate(items):
        for j, other in enumerate(items[:i]):
            same = len(one.tensors["logits"].array) == len(other.tensors["logits"].array)
            if same and one.prompt.token_ids != other.prompt.token_ids:
                made[i] = one.with_arrays({"logits": items[j].tensors["logits"].array})
                return made
    msg = "no two prompts have as many rows"
    raise InputError(msg)


def _vx_145(item: Item, severity: str) -> Item:
    del severity
    logits = _wide(item)
    logits[-1, int(logits[-1].argmin())] += 30.0
    return item.with_arrays({"logits": logits})


def _vx_146(items: list[Item], severity: str) -> list[Item]:
    role = severity.partition(":")[0]
    logits = _wide(items[0])
    logits[0, 0] = -np.inf if role == "ref" else np.inf
    return [items[0].with_arrays({"logits": logits}), *items[1:]]


def _vx_147(item: Item, severity: str) -> Item:
    del severity
    made = dict(item.tensors)
    for name in ("logits", "stream.logits", "decode.logits"):
        if name in made:
            made[name] = Tensor(made[name].array[:, :-1].copy(), made[name].axes)
    return replace(item, tensors=made)


def _nothing(items: list[Item], severity: str) -> list[Item]:
    del severity
    return items


_ELSEWHERE = {"VX-144"}
"""Planted in the manifest: prompts stay as they were."""
PLANTS: Mapping[str, Change] = {
    "TV-01": partial(_first, _tv_01),
    "TV-02": partial(_each, _tv_02),
    "TV-04": partial(_each, _tv_04),
    "TV-05": partial(_each, _tv_05),
    "TV-09": _tv_09,
    "TV-10": partial(_each, _tv_10),
    "TV-15": partial(_each, _tv_15),
    "TV-16": partial(_each, _tv_16),
    "LA-02": _la_02,
    "SP-13": partial(_each, _sp_13),
    "VX-140": partial(_first, _vx_140),
    "VX-141": _vx_141,
    "VX-142": partial(_each, _vx_142),
    "VX-143": _vx_143,
    "VX-144": _nothing,
    "VX-145": partial(_first, _vx_145),
    "VX-146": _vx_146,
    "VX-147": partial(_each, _vx_147),
    "VX-148": partial(_first, _tv_01),
    "VX-149": partial(_each, partial(_tv_16, judged=False)),
}
"""Fault id to what it does to a capture."""
SIDES: Mapping[str, tuple[Role, ...]] = {"TV-01": ("ref", "cand"), "VX-146": ("ref", "cand")}
"""Sides that a fault is planted in, where cand is not the only one."""
_BY_ROLE = frozenset({"VX-146"})
