"""The renorm rows of one side: read, checked for form, and judged row by row on their own inputs."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.metrics._reason import Reason
from validate.metrics._renorm_judge import Judged, RowCase, judge_row
from validate.metrics._renorm_tie import untied
from validate.numerics import DTYPES, to_float64, unit_roundoff
from validate.oracle.renorm import Ties
from validate.schema import Side

__all__ = ["DECLARED", "NAMES", "Row", "SideRows", "read_side", "tie_rule"]

NAMES = ("positions", "in", "top_k", "top_p", "out", "in_after_sha256")
"""Tensors of a prompt, each after ``renorm.``."""
DECLARED = "renorm"
"""Key of the manifest's ``options`` that says what a side does with ties."""
RULES: Mapping[str, Ties] = {"all": "all", "exactly_k": "exactly_k"}
Tensors = Mapping[str, NDArray[Any]]
_MATRIX = 2
_DIGEST = hashlib.sha256().digest_size
_KINDS = {
    "in": "a float format",
    "out": "a float format",
    "top_p": "a float format",
    "positions": "integers",
    "top_k": "integers",
}


class Row(NamedTuple):
    """One judged row and where it comes from."""

    prompt: str
    row: int
    """Of the prompt's rows, from 0."""
    position: int
    k: int
    p: float
    vocab: int
    u_out: float
    judged: Judged


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRows:
    """All rows of one side."""

    rows: tuple[Row, ...]
    prompts: frozenset[str]
    """Prompts that hold rows."""
    changed: tuple[str, ...]
    """Of those, the ones whose input was another after the call."""
    ties: Ties


def tie_rule(side: Side) -> Ties | None:
    """The tie rule that a side's manifest declares; None where it declares none that is known."""
    return RULES.get(side.manifest.options.get(DECLARED, ""))


def read_side(side: Side, prompts: tuple[str, ...], *, role: str) -> SideRows | Reason:
    """Read and judge every renorm row of ``prompts``.

    Args:
        side: Ref or cand.
        prompts: Prompts of the pair.
        role: ``ref`` or ``cand``, for messages.

    Returns:
        The rows, or why there are none that could be judged.
    """
    found: dict[str, Tensors] = {}
    for prompt in prompts:
        held = {name for name in side.names(prompt) if name.startswith("renorm.")}
        if not held:
            continue
        lacking = [name for name in NAMES if f"renorm.{name}" not in held]
        if lacking:
            names = ", ".join(f"renorm.{name}" for name in lacking)
            return Reason(
                f"{role} '{side.label}' {prompt} holds renorm rows without {names}", "unlike"
            )
        found[prompt] = {name: side.tensor(prompt, f"renorm.{name}") for name in NAMES}
        why = _misshapen(found[prompt])
        why = why or untied(side, prompt, found[prompt])
        if why is not None:
            return Reason(f"{role} '{side.label}' {prompt}: {why}", "unlike")
    if not found:
        return Reason(f"{role} '{side.label}' holds no renorm rows; capture it with them")
    ties = tie_rule(side)
    if ties is None:
        told = side.manifest.options.get(DECLARED)
        return Reason(
            f"{role} '{side.label}' declares no tie rule: its manifest's options have {DECLARED} = "
            f"{told!r}, known are {' and '.join(RULES)}",
            "unlike",
        )
    rows = [row for prompt, tensors in found.items() for row in _judged(prompt, tensors, ties)]
    changed = tuple(prompt for prompt, tensors in found.items() if _changed(tensors))
    return SideRows(rows=tuple(rows), prompts=frozenset(found), changed=changed, ties=ties)


def _misshapen(held: Tensors) -> str | None:
    """What does not fit in the tensors of one prompt; None where all does."""
    given, out, digest = held["in"], held["out"], held["in_after_sha256"]
    if given.ndim != _MATRIX or given.shape != out.shape or 0 in given.shape:
        return f"renorm.in {given.shape} and renorm.out {out.shape} are not the same rows"
    for name, kind in _KINDS.items():
        dtype = held[name].dtype
        if not (dtype.name in DTYPES if kind == "a float format" else dtype.kind in "iu"):
            return f"renorm.{name} holds {dtype.name}, not {kind}"
    for name in ("positions", "top_k", "top_p"):
        if held[name].shape != (len(given),):
            return (
                f"renorm.{name} {held[name].shape} is not one number for each of {len(given)} rows"
            )
    if digest.dtype != np.uint8 or digest.shape != (_DIGEST,):
        return f"renorm.in_after_sha256 is {digest.dtype.name} {digest.shape}, not {_DIGEST} bytes"
    return "renorm.top_p holds NaN" if np.isnan(to_float64(held["top_p"])).any() else None


def _judged(prompt: str, held: Tensors, ties: Ties) -> list[Row]:
    given, out, p = (to_float64(held[name]) for name in ("in", "out", "top_p"))
    u_out = unit_roundoff(held["out"].dtype.name)
    rows = []
    for index in range(len(given)):
        k = int(held["top_k"][index])
        case = RowCase(given[index], out[index], k, float(p[index]), ties, u_out)
        rows.append(
            Row(
                prompt=prompt,
                row=index,
                position=int(held["positions"][index]),
                k=k,
                p=case.p,
                vocab=given.shape[1],
                u_out=u_out,
                judged=judge_row(case),
            )
        )
    return rows


def _changed(held: Tensors) -> bool:
    """Whether the bytes of the input were others after the call."""
    before = hashlib.sha256(np.ascontiguousarray(held["in"]).tobytes()).digest()
    return bytes(np.ascontiguousarray(held["in_after_sha256"]).tobytes()) != before
