"""Records of a planted operation fault and of a control: what conformance must and must not flag.

A fault is the mechanism at its code site inside an otherwise right implementation
(the wrong stride, index or base), never added noise. A control differs from our
implementation for a legitimate reason.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from validate.conformance.records import Effort

__all__ = ["OperationControl", "OperationFault"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationFault:
    """A faulty implementation of one operation; at least one sweep point must catch it."""

    id: str
    """Id of the public fault it re-creates, else ``VX-nn``; unique within its operation."""
    op: str
    """Operation whose contract it breaks."""
    title: str
    source: str
    """Where the mechanism was seen, and which line is wrong here."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Contract settings it is judged under; the others stand at their defaults."""
    effort: Effort = Effort.QUICK
    """The smallest effort that must catch it."""
    make: Callable[[], Callable[..., Any]]
    """Gives the faulty implementation; torch is imported inside it only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationControl:
    """A right implementation that differs legitimately; no sweep point may flag it."""

    id: str
    """Id of the public control it re-creates, else ``OK-VX-nn``; unique within its operation."""
    op: str
    """Operation whose contract it keeps."""
    title: str
    source: str
    """Where the difference was seen, and why it is none that counts."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Contract settings it is judged under; the others stand at their defaults."""
    effort: Effort = Effort.QUICK
    """How much of the sweep it must pass."""
    make: Callable[[], Callable[..., Any]]
    """Gives the implementation; torch is imported inside it only."""
