"""One reason why two captures cannot be compared, and the message that tells them all."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Reason", "cut", "lacking", "message"]

SHOWN = 5
"""How many items of each kind a message spells out; the rest is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One kind of difference between ref and another side."""

    other: str
    """``cand`` or ``oracle``: which side differs from ref."""
    kind: str
    """Short noun, e.g. ``weights``; starts the reason's line."""
    headline: str
    """What the first line says when this reason stands alone, after both sides are named."""
    facts: tuple[str, ...] = ()
    """The values that differ, one an item, both sides in each."""
    only_ref: tuple[str, ...] | None = None
    """Names found only in ref; None where the reason is not about names."""
    only_other: tuple[str, ...] | None = None
    """Names found only on the other side."""
    cause: str
    """The likely cause, in words."""
    next_step: str
    """What to do next."""


def cut(items: Sequence[str]) -> str:
    """Join at most five items with commas and count the rest; ``(none)`` when empty."""
    if not items:
        return "(none)"
    rest = len(items) - SHOWN
    return ", ".join(items[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def lacking(only_ref: Sequence[str], only_other: Sequence[str], *, name: str, what: str) -> str:
    """The next step where names were found on one side alone: it names the side that lacks them.

    Args:
        only_ref: Names found only in ref.
        only_other: Names found only on the other side.
        name: ``cand`` or ``oracle``.
        what: What is missing, e.g. ``the tensors``.
    """
    if only_ref and only_other:
        return f"capture ref and {name} anew, both with {what} that either holds"
    side, holder = (name, "ref") if only_ref else ("ref", name)
    return f"capture {side} anew with {what} that only {holder} holds"


def message(labels: dict[str, str], reasons: Sequence[Reason]) -> str:
    """Write the error text: a first line that stands alone, then what, why and what next.

    Args:
        labels: Target name by side: ``ref``, ``cand`` and, where there is one, ``oracle``.
        reasons: At least one, gravest first.

    Returns:
        Several lines; sides, differences, ``likely cause`` and ``do next``, in this order.
    """
    blamed = list(dict.fromkeys(reason.other for reason in reasons))
    others = "".join(f" and {side} {labels[side]!r}" for side in blamed)
    sides = f"ref {labels['ref']!r}{others}"
    if len(reasons) == 1:
        first = f"{sides} {reasons[0].headline}"
    else:
        kinds = list(dict.fromkeys(reason.kind for reason in reasons))
        first = f"{sides} differ in {cut(kinds)} ({len(reasons)} reasons)"
    lines = [f"{first}; nothing was compared"]
    for reason in reasons:
        lines += _block(reason)
    lines.append(_line("likely cause", _joined([reason.cause for reason in reasons])))
    lines.append(_line("do next", _joined([reason.next_step for reason in reasons])))
    return "\n".join(lines)


def _block(reason: Reason) -> list[str]:
    """Lines of one reason."""
    kind = reason.kind if reason.other == "cand" else f"{reason.other} {reason.kind}"
    lines = []
    if reason.facts:
        lines.append(_line(kind, _joined(reason.facts)))
    elif reason.only_ref is not None or reason.only_other is not None:
        lines.append(_line(kind, reason.headline))
    else:
        lines.append(_line(kind, f"{reason.other} {reason.headline}"))
    if reason.only_ref is not None:
        lines.append(_line("only in ref", cut(reason.only_ref)))
    if reason.only_other is not None:
        lines.append(_line(f"only in {reason.other}", cut(reason.only_other)))
    return lines


def _line(key: str, value: str) -> str:
    return f"  {key:<12}: {value}"


def _joined(items: Sequence[str]) -> str:
    """Distinct items joined with semicolons, at most five, the rest counted."""
    distinct = list(dict.fromkeys(items))
    rest = len(distinct) - SHOWN
    return "; ".join(distinct[:SHOWN]) + (f"; and {rest} more" if rest > 0 else "")
