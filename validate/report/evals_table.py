"""The scores of evals, item by item, for a reader: flips both ways, p and the smallest drop seen."""

import math
from typing import NamedTuple

from validate.schema.report import Report

__all__ = ["ScoreRow", "first_flips", "score_rows"]

GATE = "evals.score_drop"
SHOWN = 3
"""Flips named each way."""
TOKEN = ": first divergent token"


class ScoreRow(NamedTuple):
    """One score of one task on both sides, in words; empty where it has no such number."""

    name: str
    items: str
    ref: str
    cand: str
    lost: str
    gained: str
    drop: str
    p: str
    mde: str


def score_rows(report: Report) -> list[ScoreRow]:
    """One row a score, in the order they were measured; none where no scores were compared."""
    held = _held(report)
    names = [key.removesuffix(": drop") for key in held if key.endswith(": drop")]
    return [
        ScoreRow(
            name,
            _number(held, f"{name}: items", "{:.0f}"),
            _number(held, f"{name}: ref", "{:.1f}"),
            _number(held, f"{name}: cand", "{:.1f}"),
            _number(held, f"{name}: lost", "{:.0f}") or _number(held, f"{name}: worse", "{:.0f}"),
            _number(held, f"{name}: gained", "{:.0f}")
            or _number(held, f"{name}: better", "{:.0f}"),
            _number(held, f"{name}: drop", "{:.2f}"),
            _number(held, f"{name}: p (Holm)", "{:.2g}"),
            _number(held, f"{name}: mde", "{:.2f}"),
        )
        for name in names
    ]


def first_flips(report: Report) -> list[str]:
    """The first flipped items each way, and from which token their responses part."""
    held = _held(report)
    told = []
    for way in ("lost", "gained"):
        flips = [key for key in held if key.startswith(f"{way} ") and key.endswith(TOKEN)]
        if not flips:
            continue
        shown = [_flip(key, held[key], way) for key in flips[:SHOWN]]
        rest = len(flips) - len(shown)
        more = f" and {rest} more in report.json" if rest else ""
        told.append(f"{way}: {', '.join(shown)}{more}")
    return told


def _flip(key: str, token: float | None, way: str) -> str:
    name = key.removesuffix(TOKEN).removeprefix(f"{way} ").rpartition(" ")[0]
    return name if token is None else f"{name} from token {token:.0f}"


def _held(report: Report) -> dict[str, float | None]:
    gate = next((gate for gate in report.gates if gate.name == GATE), None)
    if gate is None or gate.measurement is None or gate.measurement.value is None:
        return {}
    return dict(gate.measurement.breakdown)


def _number(held: dict[str, float | None], key: str, form: str) -> str:
    value = held.get(key)
    return "" if value is None or not math.isfinite(value) else form.format(value)
