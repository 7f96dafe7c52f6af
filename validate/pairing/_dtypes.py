"""Reasons that the dtypes give: a tensor held otherwise than its own manifest and the format say."""

import re

from validate.pairing._reasons import Reason
from validate.schema import Side

__all__ = ["dtype_reasons"]

FLOATS = ("float64", "float32", "float16", "bfloat16")
"""Working dtypes that a tensor can be stored in."""
WIDE = re.compile(r"(?:prefill|decode)\..*\.lse|.*\.router\..*|state\.[a-z]+\.kda\..*")
"""Float32 by the format, or float64 where the path works in it."""
BOOKS = re.compile(r"spec\.[a-z-]+\.(?!.*logits$).*")
"""Figures of drawn streams, made in float64 from the raw rows and stored in float32 by every path."""
FREE = re.compile(
    r"renorm\..*|[0-9]+\.(?:loglikelihoods|scores)|.*\.topk\.(?:ids|logits)|(?:decode\.)?logits\.(?:lse|tail_mass|row_min)"
)
"""Tensors whose writer chooses; their own readers look at them."""


def dtype_reasons(ref: Side, other: Side, *, name: str) -> list[Reason]:
    """Require the float tensors of both sides in the dtype that each side's own manifest tells.

    Logits that a path of bfloat16 stores in float32 were never rounded, or were computed by
    another path than the one that is named; either way limits of bfloat16 say nothing of them.

    Args:
        ref: The reference side.
        other: Candidate or oracle.
        name: ``cand`` or ``oracle``.

    Returns:
        One reason with every tensor that is held in another dtype; empty where none is.
    """
    of_ref = _facts(ref, "ref") if name == "cand" else []
    of_other = _facts(other, name)
    facts = [*of_ref, *of_other]
    blamed = [side for side, told in (("ref", of_ref), (name, of_other)) if told]
    if not facts:
        return []
    return [
        Reason(
            other=name,
            kind="dtypes",
            headline=f"hold {len(facts)} tensors in another dtype than their manifest tells",
            facts=tuple(facts),
            cause="a writer that widened or narrowed what the path made, or a dtype written by hand",
            next_step=f"capture {' and '.join(blamed)} anew, with each tensor as "
            "docs/capture-format.md says",
        )
    ]


def _facts(side: Side, name: str) -> list[str]:
    """Float tensors of one side in another dtype than they should be, with both dtypes."""
    told = side.manifest.dtype
    facts = []
    for entry in (entry for file in side.manifest.artifacts for entry in file.tensors):
        tensor = entry.name.partition("/")[2]
        if entry.dtype not in FLOATS or FREE.fullmatch(tensor):
            continue
        right = _prescribed(side, tensor, told)
        if entry.dtype not in right:
            facts.append(
                f"{entry.name}: {name} holds {entry.dtype}, its manifest's dtype {told} "
                f"asks for {' or '.join(right)}"
            )
    return facts


def _prescribed(side: Side, tensor: str, told: str) -> tuple[str, ...]:
    """Dtypes that a tensor may have; a path of some narrower dtype may store any."""
    if side.manifest.path_proof.path == "oracle":
        return ("float32", told) if told in FLOATS and told != "float32" else ("float32",)
    if BOOKS.fullmatch(tensor):
        return ("float32",)
    if told == "float64" and WIDE.fullmatch(tensor):
        return ("float32", "float64")
    if WIDE.fullmatch(tensor):
        return ("float32",)
    return (told,) if told in FLOATS else FLOATS
