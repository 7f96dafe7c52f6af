"""Reasons that the tensors give: missing, extra, of another shape, axis, kind or position."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from validate.pairing._reasons import Reason, lacking
from validate.schema import Side, TensorEntry

__all__ = ["tensor_reasons"]

OWN_LENGTH = "stream.logits"
"""The one tensor whose row count each side sets for itself: one row a token of its own stream."""

APART = ("renorm.", "spec.")
"""Prefixes of tensors that are judged on their own side alone, so that nothing is paired."""

TOPK = (".topk.ids", ".topk.logits")
"""Logits stored as top-k: each side chooses how many ids it keeps."""
TOPK_PARTS = (*TOPK, ".lse", ".tail_mass", ".row_min")
"""All that such logits are stored as; the row minimum may be left out."""

MODES = ("prefill", "decode")
"""Prefixes of tensors whose rows are those of ``MODE.positions``."""


def tensor_reasons(ref: Side, other: Side, *, name: str) -> list[Reason]:
    """Require the same tensor names, shapes, axes and kinds for every shared prompt.

    Kinds (float against int) may not differ; ``dtype_reasons`` looks at dtypes. ``stream.logits`` may differ in rows, but must fit the side's own stream.

    Args:
        ref: The reference side.
        other: Candidate or oracle.
        name: ``cand`` or ``oracle``.

    Returns:
        Every reason; empty when the tensors match.
    """
    shared = [prompt for prompt in ref.prompts if prompt in other.prompts]
    reasons = [*_names(ref, other, shared, name), *_rowless(ref, other, shared, name)]
    entries = _entries(ref), _entries(other)
    shapes: list[str] = []
    positions: list[str] = []
    blamed: set[str] = set()
    for key in _common(ref, other, shared):
        unlike = _unlike(key, entries[0].get(key), entries[1].get(key), name)
        if unlike is not None:
            shapes.append(unlike.fact)
            blamed.update(unlike.sides)
        elif key.endswith(".positions"):
            positions += _positions(ref, other, key, name)
    for side, held, found in (("ref", ref, entries[0]), (name, other, entries[1])):
        own = _steps(held, found, side)
        own += [fact for prompt in shared for fact in _layout(held, found, prompt, side)]
        shapes += own
        blamed.update([side] if own else [])
    if shapes:
        reasons.append(
            Reason(
                other=name,
                kind="shapes",
                headline=f"differ in shape, axes or kind of {len(shapes)} tensors",
                facts=tuple(shapes),
                cause="another head count, shard layout or layer width, or a writer of its own axis order",
                next_step=f"capture {' and '.join(side for side in ('ref', name) if side in blamed)} "
                "in the layout of docs/capture-format.md",
            )
        )
    if positions:
        reasons.append(
            Reason(
                other=name,
                kind="positions",
                headline=f"hold other positions in {len(positions)} tensors",
                facts=tuple(positions),
                cause="another score stride or another split between prefill and decode",
                next_step=f"capture {name} on ref's prompt set",
            )
        )
    return reasons


def _names(ref: Side, other: Side, shared: list[str], name: str) -> list[Reason]:
    """Missing and extra tensors over the shared prompts, and captures without any."""
    only_ref: list[str] = []
    only_other: list[str] = []
    total = common = 0
    held = {"ref": 0, name: 0}
    for prompt in shared:
        a, b = _sections(_paired(ref, prompt)), _sections(_paired(other, prompt))
        only_ref += [f"{prompt}/{tensor}" for tensor in sorted(a - b)]
        only_other += [f"{prompt}/{tensor}" for tensor in sorted(b - a)]
        total += len(a | b)
        common += len(a & b)
        held["ref"] += len(a)
        held[name] += len(b)
    reasons = [
        Reason(
            other=name,
            kind="empty",
            headline=f"cannot be compared: {side} holds no tensors for the prompts they share",
            facts=(f"{side} holds no tensors for the {len(shared)} shared prompts",),
            cause="the capture stopped before its first tensor",
            next_step=f"capture {side} anew",
        )
        for side, count in held.items()
        if shared and count == 0
    ]
    if only_ref or only_other:
        reasons.append(
            Reason(
                other=name,
                kind="tensors",
                headline=f"share {common} of {total} tensors",
                only_ref=tuple(only_ref),
                only_other=tuple(only_other),
                cause=_cause(ref, other, only_ref, only_other, name),
                next_step=lacking(only_ref, only_other, name=name, what="the tensors"),
            )
        )
    return reasons


def _rowless(ref: Side, other: Side, shared: list[str], name: str) -> list[Reason]:
    """Passes whose positions neither side holds; where one side holds them, names differ."""
    facts = []
    for prompt in shared:
        held = {*ref.names(prompt), *other.names(prompt)}
        for mode in MODES:
            rows = [tensor for tensor in held if _has_rows(tensor, mode)]
            if rows and f"{mode}.positions" not in held:
                facts.append(f"{prompt}: no {mode}.positions for {len(rows)} tensors")
    if not facts:
        return []
    return [
        Reason(
            other=name,
            kind="rows",
            headline=f"hold no positions for {len(facts)} passes",
            facts=tuple(facts),
            cause="a writer that leaves out the positions of a pass, so that no row can be matched",
            next_step=f"capture ref and {name} anew with the positions that docs/capture-format.md "
            "asks for",
        )
    ]


def _has_rows(tensor: str, mode: str) -> bool:
    """Whether the rows of a tensor are those of ``MODE.positions``."""
    return tensor.startswith(f"{mode}.") and not tensor.startswith(f"{mode}.prefix.")


def _sections(names: Iterable[str]) -> set[str]:
    """Names as they are paired: logits count as one tensor, in full or as top-k."""
    held = set(names)
    narrow = {name.removesuffix(TOPK[0]) for name in held if name.endswith(TOPK[0])}
    parts = {f"{section}{part}" for section in narrow for part in TOPK_PARTS}
    return (held - parts) | narrow


def _cause(ref: Side, other: Side, only_ref: list[str], only_other: list[str], name: str) -> str:
    """Guess why names differ: one side stopped early, or the sides captured other artifacts."""
    if only_ref and not only_other:
        return f"the {name} capture ({other.manifest.target}) stopped early or left out an artifact"
    if only_other and not only_ref:
        return f"the ref capture ({ref.manifest.target}) stopped early or left out an artifact"
    return "the two captures name their layers or artifacts differently"


def _common(ref: Side, other: Side, shared: list[str]) -> Iterator[str]:
    """Keys ``<prompt>/<tensor>`` held by both sides, prompts in ref's order."""
    for prompt in shared:
        theirs = _paired(other, prompt)
        yield from (f"{prompt}/{tensor}" for tensor in ref.names(prompt) if tensor in theirs)


def _paired(side: Side, prompt: str) -> set[str]:
    """Names of the tensors that the other side must have too."""
    return {tensor for tensor in side.names(prompt) if not tensor.startswith(APART)}


def _entries(side: Side) -> Mapping[str, TensorEntry]:
    """Tensor entries of a manifest by key."""
    return {entry.name: entry for file in side.manifest.artifacts for entry in file.tensors}


def _kind(entry: TensorEntry) -> str:
    return "float" if "float" in entry.dtype else "int"


def _shape(entry: TensorEntry) -> str:
    """Shape with axis names, e.g. ``(positions 12, heads 12)``."""
    if len(entry.axes) != len(entry.shape):
        return f"{entry.shape} with axes {entry.axes}"
    named = [f"{axis} {size}" for axis, size in zip(entry.axes, entry.shape, strict=True)]
    return f"({', '.join(named)})"


class _Unlike(NamedTuple):
    """What differs between two entries of one key."""

    fact: str
    sides: tuple[str, ...]
    """Whose capture is to be made anew; the other side's where neither is wrong in itself."""


def _unlike(
    key: str, ref: TensorEntry | None, other: TensorEntry | None, name: str
) -> _Unlike | None:
    """What differs between two entries of one key; None where nothing does."""
    if ref is None or other is None:
        side = "ref" if ref is None else name
        return _Unlike(f"{key}: the manifest of {side} does not list it", (side,))
    if _kind(ref) != _kind(other):
        return _Unlike(f"{key}: ref holds {ref.dtype}, {name} {other.dtype}", (name,))
    if ref.axes != other.axes or not _same_shape(ref, other):
        return _Unlike(f"{key}: ref {_shape(ref)}, {name} {_shape(other)}", (name,))
    if 0 in ref.shape:
        return _Unlike(f"{key}: both are empty, {_shape(ref)}", ("ref", name))
    return None


def _same_shape(ref: TensorEntry, other: TensorEntry) -> bool:
    """Equal sizes, but for the rows of ``stream.logits`` and the ids kept of top-k logits."""
    free = 1 if ref.name.endswith(f"/{OWN_LENGTH}") else 0
    kept = 1 if ref.name.endswith(TOPK) else len(ref.shape)
    return len(ref.shape) == len(other.shape) and ref.shape[free:kept] == other.shape[free:kept]


def _steps(side: Side, entries: Mapping[str, TensorEntry], name: str) -> list[str]:
    """``stream.logits`` must have as many rows as the side's own stream has tokens."""
    facts = []
    for prompt in side.prompts:
        entry = entries.get(f"{prompt}/{OWN_LENGTH}")
        if entry is None:
            continue
        stream = side.streams.get(prompt)
        tokens = 0 if stream is None else len(stream.token_ids)
        if entry.shape[:1] != (tokens,):
            facts.append(
                f"{entry.name}: {name} holds {_shape(entry)}, its stream has {tokens} tokens"
            )
    return facts


def _layout(side: Side, entries: Mapping[str, TensorEntry], prompt: str, name: str) -> list[str]:
    """Tensors of a pass have a row a position; ``MODE.prefix`` tensors come before them."""
    facts = []
    for tensor in side.names(prompt):
        mode = tensor.partition(".")[0]
        entry = entries.get(f"{prompt}/{tensor}")
        rows = entries.get(f"{prompt}/{mode}.positions")
        if mode not in MODES or not _has_rows(tensor, mode) or entry is None or rows is None:
            continue
        if entry.shape[:1] != rows.shape[:1]:
            facts.append(
                f"{entry.name}: {name} holds {_shape(entry)}, {mode}.positions {_shape(rows)}"
            )
    return facts


def _positions(ref: Side, other: Side, key: str, name: str) -> list[str]:
    """Positions must be equal element by element."""
    prompt, _, tensor = key.partition("/")
    a, b = ref.tensor(prompt, tensor), other.tensor(prompt, tensor)
    unequal = np.flatnonzero(a != b)
    if unequal.size == 0:
        return []
    row = int(unequal[0])
    return [f"{key}: row {row} is position {int(a[row])} in ref, {int(b[row])} in {name}"]
