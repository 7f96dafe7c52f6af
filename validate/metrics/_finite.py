"""Non-finite values of both sides, kept with their places, before any arithmetic."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Shaped
from numpy.typing import NDArray

from validate.numerics import DTYPES, count_nonfinite, unlike_nonfinite

__all__ = ["Finding", "Findings", "look", "why_undefined"]

SHOWN = 3
BFLOAT16 = DTYPES["bfloat16"]
EXPONENT = np.uint16(0x7F80)
"""Exponent bits of bfloat16; all are set in NaN and infinities alone (IEEE 754)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One tensor of one prompt that holds non-finite values on some side."""

    prompt: str
    name: str
    counts: Mapping[str, int]
    """Non-finite values by side; only sides that hold any."""
    kinds: Mapping[str, str]
    """The same in words by side, e.g. ``2 NaN, 1 +inf``."""
    unlike: int
    """Places that are not finite in the same way on ref and cand; signs count."""
    first: tuple[int, ...]
    """First such index, on the first side that holds any."""

    def text(self) -> str:
        """One line: place, sides and kinds, first index."""
        sides = "; ".join(f"{side} {words}" for side, words in self.kinds.items())
        return f"{self.prompt} {self.name}: {sides}, first at {self.first}"


Findings = list[Finding]


def look(
    prompt: str, name: str, sides: Mapping[str, Shaped[NDArray[Any], "..."]]
) -> Finding | None:
    """Look for NaN and infinities on every side of one tensor.

    Args:
        prompt: Prompt id.
        name: Tensor name.
        sides: Arrays by ``ref``, ``cand`` and, where there is one, ``oracle``; equal shapes.

    Returns:
        What was found; None when every value of every side is finite. Arrays of
        integers are always finite.
    """
    found = {
        side: count_nonfinite(array)
        for side, array in sides.items()
        if array.dtype.name in DTYPES and not _all_finite(array)
    }
    bad = {side: count for side, count in found.items() if count.total > 0}
    if not bad:
        return None
    words = {
        side: ", ".join(
            f"{count} {kind}"
            for count, kind in ((one.nan, "NaN"), (one.positive, "+inf"), (one.negative, "-inf"))
            if count
        )
        for side, one in bad.items()
    }
    firsts = [count.first for count in bad.values() if count.first is not None]
    unlike = 0
    if "ref" in sides and "cand" in sides:
        unlike = int(np.count_nonzero(unlike_nonfinite(sides["ref"], sides["cand"])))
    return Finding(
        prompt=prompt,
        name=name,
        counts={side: count.total for side, count in bad.items()},
        kinds=words,
        unlike=unlike,
        first=firsts[0],
    )


def _all_finite(array: NDArray[Any]) -> bool:
    """Quick look without a widened copy; a sum is finite only if every value is."""
    if array.dtype == BFLOAT16:
        return not ((array.view(np.uint16) & EXPONENT) == EXPONENT).any()
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.sum(array, dtype=np.float64)))


def why_undefined(findings: Iterable[Finding]) -> str | None:
    """A sentence for measurements that cannot be made; None when nothing was found."""
    held = list(findings)
    if not held:
        return None
    total = sum(sum(finding.counts.values()) for finding in held)
    shown = " | ".join(finding.text() for finding in held[:SHOWN])
    more = f" | and {len(held) - SHOWN} more tensors" if len(held) > SHOWN else ""
    return f"{total} values are not finite in {len(held)} tensors: {shown}{more}"
