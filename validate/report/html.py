"""The report as one self-contained page: no request, no script, every text escaped."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from validate.gates.outcome import number, percent
from validate.report import explained, wording
from validate.report.claims import claim_rows, conditions_line, verdict_line
from validate.report.plots import Plot, draw
from validate.report.visible import visible
from validate.schema.report import GateReport, IntervalReport, OtherSide, Report, SideReport
from validate.schema.series import WorstCase
from validate.schema.suite import AREAS
from validate.schema.verdict import GRAVITY, Outcome

__all__ = ["render_html"]

MOST_COMPANIONS = 60
"""Companions of one measurement on the page; report.json has all."""
MOST_LINES = 200
"""Entries of one list."""
SYMBOLS = {
    "PASS": "\u2713",
    "FAIL": "\u2717",
    "INCONCLUSIVE": "?",
    "INCOMPARABLE": "\u2260",
    "WAIVED": "~",
}
EVIDENCE = {
    "hardware": "measured on the real device, proven by the kernels that ran",
    "emulated": "nothing here ran on the real device of this path",
    "unproven": "the capture does not show which path ran",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Area:
    """One section of the page."""

    name: str
    gates: tuple[GateReport, ...]
    plots: tuple[Plot, ...]
    cases: tuple[WorstCase, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Gates that are not PASS for one and the same reason."""

    gates: tuple[GateReport, ...]
    words: str


def render_html(report: Report) -> str:
    """The whole page.

    Args:
        report: What to show. Texts of captures and manifests may hold anything.

    Returns:
        UTF-8-encodable HTML that asks for nothing outside itself.
    """
    css = _source("style.css")
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    template = _environment().get_template("report.html.j2")
    page: str = template.render(
        report=report,
        areas=_areas(report),
        open_gates=[gate for gate in report.gates if gate.outcome is not Outcome.PASS],
        anchors={gate.name: f"gate-{at}" for at, gate in enumerate(report.gates)},
        sides=_sides(report),
        css=css,
        css_digest=digest,
    )
    return page


@cache
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("validate.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
    made.globals.update(
        symbols=SYMBOLS,
        evidence=EVIDENCE,
        percent=percent,
        number=number,
        few=_few,
        companions=_companions,
        interval=_interval,
        noise=_noise,
        places=_places,
        grouped=_grouped,
        versions=_versions,
        counts=_counts,
        choice_text=_choice,
        claim_rows=claim_rows,
        conditions_line=conditions_line,
        verdict_line=verdict_line,
        **{name: getattr(explained, name) for name in explained.__all__},
        **{name: getattr(wording, name) for name in wording.__all__},
    )
    return made


def _shown(value: object) -> object:
    """Every string that reaches the page passes here; markup of our own templates does not."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return visible(value)
    return value


@cache
def _source(name: str) -> str:
    """A file of ours, as it is."""
    loader = _environment().loader
    text: str = loader.get_source(_environment(), f"{name}.j2")[0]
    return text


def _grouped(gates: Sequence[GateReport]) -> list[_Group]:
    """What is not PASS, the gravest first: FAILs by area, others by their reason; waived ones last.

    Of an area's FAILs the first is told in full, each of the others stands in its own section.
    """
    held: dict[tuple[bool, str, str], list[GateReport]] = {}
    for gate in gates:
        why = _area(gate.name) if gate.outcome is Outcome.FAIL else gate.reason or ""
        held.setdefault((gate.waiver is not None, f"{gate.outcome}", why), []).append(gate)
    return [
        _Group(gates=tuple(group), words=_finding(group))
        for _, group in sorted(held.items(), key=lambda item: _gravity(item[1][0]))
    ]


def _gravity(gate: GateReport) -> tuple[bool, int]:
    return gate.waiver is not None, GRAVITY.index(gate.outcome)


def _finding(group: Sequence[GateReport]) -> str:
    """Why these are not PASS: of FAILs what the first measured, where, and why it is one."""
    gate = group[0]
    if gate.outcome is not Outcome.FAIL:
        return gate.reason or ""
    pattern = None if gate.measurement is None else gate.measurement.pattern
    place = wording.worst_text(gate)
    said = wording.headline(gate).partition(": ")[2]
    first = f"{gate.name}: " if len(group) > 1 else ""
    told = "; ".join(part for part in (said, pattern, place and f"worst at {place}") if part)
    return f"{first}{told or gate.reason}"


def _counts(gates: Sequence[GateReport]) -> str:
    """How many gates of each word."""
    words = [wording.shown(gate) for gate in gates]
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))


def _choice(token: int, text: str | None) -> str:
    """An id with its text, quoted."""
    return f"{token}" if text is None else f"{token} '{text}'"


def _areas(report: Report) -> list[_Area]:
    """Areas that hold a gate, a plot or a worst case, in the order of a report, unknown ones last."""
    found = {_area(gate.name): None for gate in report.gates}
    found |= {one.area: None for one in report.series}
    found |= {_case_area(case): None for case in report.worst_cases}
    names = [*(name for name in AREAS if name in found), *(n for n in found if n not in AREAS)]
    return [
        _Area(
            name=name,
            gates=tuple(gate for gate in report.gates if _area(gate.name) == name),
            plots=tuple(
                draw(one, number=at) for at, one in enumerate(report.series) if one.area == name
            ),
            cases=tuple(case for case in report.worst_cases if _case_area(case) == name),
        )
        for name in names
    ]


def _case_area(case: WorstCase) -> str:
    return _area(case.gates[0]) if case.gates else "logits"


def _area(gate: str) -> str:
    return gate.partition(".")[0]


def _sides(report: Report) -> list[tuple[str, str, str]]:
    """Rows of the table of both sides: what, ref, cand."""
    ref, cand = _side(report.ref), _side(report.cand)
    return [(name, ref[name], cand[name]) for name in ref]


def _side(side: SideReport) -> dict[str, str]:
    made = side.provenance
    return {
        "target": side.target,
        "evidence": f"{side.evidence}, {EVIDENCE[side.evidence]}",
        "hardware": f"{made.hardware}, {made.arch}",
        "driver": made.driver or "none",
        "versions": _versions(side),
        "server arguments": _pairs(made.engine_args),
        "environment that changes numerics": _pairs(made.environment),
        "dtype, weights": f"{side.dtype}, {side.weights}",
        "planted fault": side.fault or "none",
        "what ran (path proof)": _pairs(side.ran),
        "captured": f"{made.created}{', reused' if side.reused else ''}",
        "source": f"commit {made.source_commit or 'not known'}, patch {made.patch_digest or 'none'}",
        "capture digest": side.digest,
        "timing of the capture": ", ".join(
            f"{name} {number(value)}" for name, value in side.timing.items()
        )
        or "none",
    }


def _versions(side: OtherSide) -> str:
    return _pairs(side.provenance.versions)


def _pairs(held: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in held.items()) or "none"


def _few(lines: Sequence[str]) -> list[str]:
    """At most ``MOST_LINES``, with how many are left out."""
    kept = list(lines[:MOST_LINES])
    rest = len(lines) - len(kept)
    return kept if rest <= 0 else [*kept, f"{rest:,} more in report.json"]


def _companions(gate: GateReport) -> list[tuple[str, str]]:
    """Companions of a measurement that fit the page, and how many more there are."""
    held = {} if gate.measurement is None else gate.measurement.breakdown
    rows = [
        (name, "not finite" if value is None else number(value))
        for name, value in list(held.items())[:MOST_COMPANIONS]
    ]
    rest = len(held) - len(rows)
    return [*rows, (f"{rest:,} more", "in report.json")] if rest > 0 else rows


def _interval(gate: GateReport) -> str:
    """Both confidence limits with their levels."""
    found = None if gate.measurement is None else gate.measurement.interval
    if found is None:
        return "none: deterministic" if gate.measurement is not None else "-"
    return f"{_ends(found)}; {found.method}"


def _ends(found: IntervalReport) -> str:
    low = "none" if found.low is None else number(found.low)
    high = "none" if found.high is None else number(found.high)
    return f"low {low} at {percent(found.low_level)}, high {high} at {percent(found.high_level)}"


def _noise(gate: GateReport) -> str:
    """The floor in a sentence."""
    if gate.noise is None:
        return ""
    if gate.noise.value is None:
        return f"not known: {gate.noise.why_undefined}"
    values = ", ".join(number(value) for value in gate.noise.values)
    told = f"{number(gate.noise.value)} over {gate.noise.repeats} repeats of ref"
    return f"{told} ({values})" if values else told


def _places(plot: Plot) -> list[tuple[str, tuple[str, ...]]]:
    """Rows of the table beneath a plot: a place, and the value of every line there."""
    return [
        (place, tuple(_cell(plot, line, at) for line in range(len(plot.series.lines))))
        for at, place in enumerate(plot.series.x.places)
    ]


def _cell(plot: Plot, line: int, at: int) -> str:
    found = plot.series.lines[line]
    value = found.values[at]
    if value is None:
        return "-"
    if not found.low or not found.high:
        return number(value)
    ends = [end[at] for end in (found.low, found.high)]
    low, high = ("-" if end is None else number(end) for end in ends)
    return f"{number(value)} ({low} to {high})"
