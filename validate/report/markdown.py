"""The report for a pull-request comment: short, with everything else folded away."""

import re
from collections.abc import Iterable, Sequence

from validate.report.claims import claim_rows, conditions_line, verdict_line
from validate.report.explained import (
    PLACE_HEAD,
    RUNG_HEAD,
    SWITCH_HEAD,
    place_rows,
    rung_rows,
    switch_rows,
    switch_title,
    untried_lines,
)
from validate.report.visible import visible
from validate.report.wording import (
    clean,
    deviation_lines,
    floor_text,
    golden_lines,
    label_of,
    limit_text,
    machine,
    mark,
    selftest_lines,
    shown,
    value_text,
    verdict_words,
    waiver_lines,
    worst_text,
)
from validate.schema.report import GateReport, Report
from validate.schema.verdict import Outcome

__all__ = ["MOST_CHARACTERS", "render_markdown"]

MOST_CHARACTERS = 60_000
"""A comment on the usual forges may hold 65,536."""
MOST_CELL = 300
"""Characters of one table cell; the JSON has it whole."""

_SPECIAL = re.compile(r"([\\`*|~\[\]]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z]))")
"""Characters that format; an underscore inside a word does not."""
_LIVE = re.compile(r"[&<>@]|#(?=\d)|^[#+-](?=\s)|:(?=//)|(?<=www)\.", re.IGNORECASE)
"""Characters that start HTML, mentions, references, headings, lists or links."""


def render_markdown(report: Report) -> str:
    """The report as GitHub-flavoured Markdown, escaped and of bounded size.

    Args:
        report: What to show.
    """
    top = [
        f"### validate: {report.verdict}",
        "",
        f"**{report.verdict}**: {_told(verdict_words(report), report)}",
        "",
        *_sides(report),
        *_listed("Limits since the golden report", golden_lines(report), report),
        *_listed("Waivers", waiver_lines(report), report),
        *_listed("Declared deviations", deviation_lines(report), report),
        *_listed("Notes", report.notes, report),
        *_open_gates(report),
        *_explained(report),
    ]
    bottom = [
        *_claims(report),
        *_listed("Selftest of the gates", selftest_lines(report), report),
        *_listed("Not tested", report.not_tested, report),
        *_rerun(report),
    ]
    whole = "\n".join([*top, *_all_gates(report), *bottom]) + "\n"
    if len(whole) <= MOST_CHARACTERS:
        return whole
    short = "\n".join([*top, "", "The table of all gates is in report.json.", *bottom]) + "\n"
    return short if len(short) <= MOST_CHARACTERS else _cut(short)


def escape(text: str) -> str:
    r"""``text`` as Markdown that shows it and does nothing else.

    Example:
        >>> escape("<b>|@team #7 logits.kl_p90")
        '&#60;b&#62;\\|&#64;team &#35;7 logits.kl_p90'
    """
    formatted = _SPECIAL.sub(r"\\\1", clean(text))
    return _LIVE.sub(lambda found: f"&#{ord(found.group())};", formatted)


def _told(text: str, report: Report) -> str:
    marked = mark(text, report)
    rest = len(marked) - MOST_CELL
    return escape(marked[:MOST_CELL]) + (f"... ({rest:,} more characters)" if rest > 0 else "")


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _head(names: Sequence[str]) -> list[str]:
    return [_row(names), _row("---" for _ in names)]


def _sides(report: Report) -> list[str]:
    rows = []
    for role, side in (("ref", report.ref), ("cand", report.cand)):
        label = label_of(report) if role == "cand" else side.label
        reused = "reused" if side.reused else "given, or made now"
        cells = (label, machine(side), side.dtype, side.evidence, reused)
        rows.append(_row([role, *(_told(cell, report) for cell in cells)]))
    names = ("", "target", "machine", "dtype", "evidence", "capture")
    suite = f"suite {report.suite.name}, alpha {report.suite.alpha:g}, power {report.suite.power:g}"
    return [*_head(names), *rows, "", _told(f"{suite}, validate {report.tool_version}", report)]


def _listed(title: str, lines: Iterable[str], report: Report) -> list[str]:
    told = [f"- {_told(line, report)}" for line in lines]
    return ["", f"**{title}**", "", *told] if told else []


def _open_gates(report: Report) -> list[str]:
    """Gates that are not PASS, with where and why; those that share a reason share a row."""
    gates = [gate for gate in report.gates if gate.outcome is not Outcome.PASS]
    if not gates:
        return []
    groups: dict[tuple[str, str], list[GateReport]] = {}
    for gate in gates:
        key = gate.name if gate.outcome is Outcome.FAIL else gate.reason or ""
        groups.setdefault((f"{shown(gate)} {gate.outcome}", key), []).append(gate)
    names = ("verdict", "gate", "value", "limit", "floor", "where", "why")
    return ["", *_head(names), *(_open_row(group, report) for group in groups.values())]


def _open_row(group: Sequence[GateReport], report: Report) -> str:
    first = group[0]
    if len(group) > 1:
        numbers: tuple[str, ...] = (", ".join(gate.name for gate in group), "", "", "")
        where = ""
    else:
        numbers = _numbers(first)
        pattern = "" if first.measurement is None else first.measurement.pattern or ""
        where = "; ".join(part for part in (pattern, worst_text(first)) if part)
    cells = (*numbers, where, first.reason or "")
    return _row([f"**{shown(first)}**", *(_told(cell, report) for cell in cells)])


def _numbers(gate: GateReport) -> tuple[str, str, str, str]:
    return (gate.name, value_text(gate), limit_text(gate), floor_text(gate))


def _all_gates(report: Report) -> list[str]:
    rows = [
        _row([shown(gate), *(_told(cell, report) for cell in _numbers(gate))])
        for gate in report.gates
    ]
    return [
        "",
        f"<details><summary>All {len(rows)} gates</summary>",
        "",
        *_head(("verdict", "gate", "value", "limit", "floor")),
        *rows,
        "",
        "</details>",
    ]


def _explained(report: Report) -> list[str]:
    """From a gate to its cause, where that was asked for."""
    found = report.explained
    if found is None:
        return []
    told = ["", f"**{found.status.upper()}**: {_told(found.summary, report)}"]
    for title, head, rows in (
        ("", RUNG_HEAD, rung_rows(found)),
        ("Operations of cand that err on their own inputs", PLACE_HEAD, place_rows(found)),
        (switch_title(found), SWITCH_HEAD, switch_rows(found)),
    ):
        if rows:
            told += ["", _told(title, report), ""] if title else [""]
            told += _head(head)
            told += [_row(_told(cell, report) for cell in row) for row in rows]
    notes = (*untried_lines(found), *found.notes)
    return [*told, *_listed("Notes on the explanation", notes, report)]


def _claims(report: Report) -> list[str]:
    """Claimed figures in a table, under the verdict they stand beside; folded away."""
    told = report.claims
    if told is None:
        return []
    rows = [_row(_told(cell, report) for cell in row) for row in claim_rows(told)]
    about = f"{told.claims.title}; {conditions_line(told)}"
    return [
        "",
        "<details><summary>Claimed speed and cost, beside the verdict</summary>",
        "",
        f"{_told(verdict_line(report), report)}; {_told(about, report)}",
        "",
        *_head(("system", "figure", "value", "rests on")),
        *rows,
        *_listed("What keeps these figures from the verdict", told.notes, report),
        "",
        "</details>",
    ]


def _rerun(report: Report) -> list[str]:
    gates = [gate for gate in report.gates if gate.outcome is not Outcome.PASS][:1]
    if not gates:
        return []
    command = visible(mark(gates[0].rerun, report, comment="#"))
    longest = max((len(run) for run in re.findall(r"`+", command)), default=0)
    fence = "`" * max(3, longest + 1)
    return ["", f"{fence}sh", command, fence]


def _cut(text: str) -> str:
    kept = text[: MOST_CHARACTERS - 100].rpartition("\n")[0]
    return f"{kept}\n\nThe report is longer than a comment; report.json has it whole.\n"
