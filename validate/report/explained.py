"""Rows of an explanation, for every kind of text report."""

from validate.gates.outcome import number
from validate.run.explain_words import heads_text
from validate.schema.explained import Explained, FoundPlace, SwitchTried

__all__ = [
    "PLACE_HEAD",
    "RUNG_HEAD",
    "SWITCH_HEAD",
    "place_rows",
    "rung_rows",
    "switch_rows",
    "switch_title",
    "untried_lines",
]

RUNG_HEAD = ("from gate", "to cause")
PLACE_HEAD = ("tensor", "module", "layer", "heads", "cand introduces", "ref introduces", "most at")
SWITCH_HEAD = ("switch", "given", "tried", "measures", "failure", "note")
NOT_TRIED = "not tried"
MOST_PLACES = 24
"""Places shown; all of them stand in report.json."""


def rung_rows(found: Explained) -> list[tuple[str, ...]]:
    """One row a step on the way from the gate to the cause."""
    return [(rung.level, rung.text) for rung in found.rungs]


def place_rows(found: Explained) -> list[tuple[str, ...]]:
    """One row an operation that errs."""
    rows = [_place(place) for place in found.places[:MOST_PLACES]]
    rest = len(found.places) - len(rows)
    return [*rows, (f"{rest} more in report.json", "", "", "", "", "", "")] if rest > 0 else rows


def _place(place: FoundPlace) -> tuple[str, ...]:
    where = "" if place.position is None else f" position {place.position}"
    return (
        place.tensor,
        place.module,
        "-" if place.layer is None else f"{place.layer}",
        heads_text(place) or "-",
        "not finite" if place.cand is None else number(place.cand),
        "-" if place.ref is None else number(place.ref),
        "-" if place.prompt is None else f"{place.prompt}{where}",
    )


def switch_rows(found: Explained) -> list[tuple[str, ...]]:
    """One row a switch that was tried."""
    return [_switch(one) for one in found.switches if one.found != NOT_TRIED]


def untried_lines(found: Explained) -> list[str]:
    """Switches that were not tried, together where it is for the same reason."""
    held: dict[str, list[str]] = {}
    for one in found.switches:
        if one.found == NOT_TRIED and one.switch not in held.setdefault(one.note or "", []):
            held[one.note or ""].append(one.switch)
    return [f"not tried: {', '.join(names)} ({why})" for why, names in held.items()]


def _switch(one: SwitchTried) -> tuple[str, ...]:
    return (
        f"{one.switch} ({one.key})",
        one.given,
        one.tried,
        "-" if one.value is None else number(one.value),
        one.found,
        one.note or "",
    )


def switch_title(found: Explained) -> str:
    """What the switches were tried on, and what it measures with nothing changed."""
    before = "not known" if found.baseline is None else number(found.baseline, found.unit)
    prompts = len(found.prompts)
    noun = "prompt" if prompts == 1 else "prompts"
    return (
        f"switches of cand, one at a time, on {prompts} {noun} captured again beside the reference "
        f"path; with none changed {found.gate} measures {before}"
    )
