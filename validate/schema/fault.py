"""One planted fault: a mechanism at its code site that a comparison must catch."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Expect", "Fault", "Where"]

Where = Literal["cand", "ref", "capture", "evals"]
Expect = Literal["FAIL", "INCOMPARABLE", "REF_BLAMED", "INCONCLUSIVE", "DEVIATION", "PASS"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One record of the catalogue; ``validate list faults --format json`` prints these fields."""

    id: str
    """Id of the public fault it re-creates, else ``VX-nn``."""
    title: str
    where: Where
    """Side whose code or data is made wrong."""
    expect: Expect
    """Outcome that the comparison must reach."""
    gates: tuple[str, ...]
    """Gates of the default suite that must reach it; others may too."""
    severities: tuple[str, ...] = ()
    """Sizes it can be planted at; empty when it has one size only."""
    source: str
    """Where the mechanism was seen, and how it is planted."""
