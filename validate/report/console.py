"""The report for a terminal: a verdict in words, a table, and a block for what is not PASS."""

import io
import shlex
from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from validate.report.claims import claims_lines
from validate.report.evals_table import first_flips, score_rows
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
    headline,
    label_of,
    limit_text,
    machine,
    mark,
    origin,
    selftest_lines,
    shown,
    value_text,
    verdict_words,
    waiver_lines,
    worst_text,
)
from validate.schema.report import GateReport, Report, SideReport
from validate.schema.verdict import Outcome

__all__ = ["render_console", "render_gate"]

FULL_BLOCKS = 5
"""Failures told in full; the others get their headline."""
PLAIN_WIDTH = 120
CAND = "cand"

_STYLES = {
    Outcome.PASS: "green",
    Outcome.FAIL: "bold red",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.INCOMPARABLE: "bold magenta",
}


def render_console(report: Report, *, terminal: bool = False, width: int = PLAIN_WIDTH) -> str:
    """The whole report as text.

    Args:
        report: What to show.
        terminal: Colours and box characters; False gives plain ASCII but for what the
            captures themselves contain.
        width: Columns of the terminal.
    """
    out = io.StringIO()
    console = Console(
        file=out,
        force_terminal=terminal,
        no_color=None if terminal else True,
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
    )
    _say(console, _head(report))
    console.print(_verdict(report))
    _say(console, _sides(report))
    _section(console, "limits since the golden report", golden_lines(report), report)
    _section(console, "waivers", waiver_lines(report), report)
    _section(console, "declared deviations", deviation_lines(report), report)
    _section(console, "notes", report.notes, report)
    console.print()
    console.print(_table(report, terminal=terminal), soft_wrap=False)
    _scores(console, report, terminal=terminal)
    for block in _blocks(report):
        console.print()
        _say(console, block)
    _explained(console, report, terminal=terminal)
    _section(console, "claims beside the verdict", claims_lines(report), report)
    _section(console, "selftest of the gates", selftest_lines(report), report)
    _section(console, "not tested", report.not_tested, report)
    return out.getvalue()


def render_gate(gate: GateReport, report: Report) -> str:
    """One gate as text: of a FAIL all that is known, else its headline, reason and command.

    Args:
        gate: One of ``report.gates``.
        report: What it belongs to.
    """
    if gate.outcome is Outcome.FAIL:
        lines = _failure(gate, report)
    else:
        reason = "" if gate.reason is None else f": {gate.reason}"
        lines = [
            _told(f"{shown(gate)} {gate.name}{reason}", report),
            f"  rerun: {_told(gate.rerun, report, comment='#')}",
        ]
    return "\n".join(clean(line) for line in lines)


def _told(text: str, report: Report, *, comment: str = "") -> str:
    """``text``, cut where it is long; the candidate's evidence outlasts the cut."""
    kept, marked = visible(text), mark(text, report, comment=comment)
    lost = report.cand.evidence in text and report.cand.evidence not in kept
    beside = mark(CAND, report, comment=comment)[len(CAND) :] if lost else marked[len(text) :]
    return f"{kept}{beside}"


def _say(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(Text(clean(line)))


def _section(console: Console, title: str, lines: Iterable[str], report: Report) -> None:
    told = [f"  {_told(line, report)}" for line in lines]
    if told:
        console.print()
        _say(console, [title, *told])


def _head(report: Report) -> list[str]:
    suite = report.suite
    judged = f"alpha {suite.alpha:g}, power {suite.power:g}, limits {visible(suite.limits)}"
    version, name, path = (visible(text) for text in (report.tool_version, suite.name, suite.path))
    return [f"validate {version}, suite {name} ({path}), {judged}"]


def _verdict(report: Report) -> Text:
    text = Text(f"{report.verdict}", style=_STYLES[report.verdict])
    text.append(f": {_told(verdict_words(report), report)}", style="default")
    return text


def _sides(report: Report) -> list[str]:
    lines = []
    for role, side in (("ref ", report.ref), ("cand", report.cand)):
        lines.append(f"  {role}   : {_label(side, report)}  {visible(machine(side))}")
        lines.append(
            f"           {visible(origin(side))}  evidence {side.evidence}{_reused(reused=side.reused)}"
        )
    if report.oracle is not None:
        lines.append(f"  oracle : {visible(report.oracle.target)}")
    if report.repeats:
        targets = ", ".join(repeat.target for repeat in report.repeats)
        lines.append(f"  repeats: {visible(targets)} (noise floor)")
    return lines


def _label(side: SideReport, report: Report) -> str:
    """The name of a side, cut where it is long, with the candidate's evidence behind it."""
    beside = label_of(report)[len(side.label) :] if side is report.cand else ""
    return f"{visible(side.label)}{beside}"


def _reused(*, reused: bool) -> str:
    return "  reused" if reused else ""


def _table(report: Report, *, terminal: bool) -> Table:
    table = Table(box=box.SIMPLE if terminal else box.ASCII2, pad_edge=False)
    for name in ("verdict", "gate"):
        table.add_column(name, no_wrap=True, overflow="fold")
    for name in ("value", "limit", "floor", "n"):
        table.add_column(name, overflow="fold")
    for gate in report.gates:
        n = "" if gate.measurement is None else f"{gate.measurement.n}"
        cells = (gate.name, value_text(gate), limit_text(gate), floor_text(gate), n)
        table.add_row(
            Text(shown(gate), style=_style(gate)), *(Text(visible(cell)) for cell in cells)
        )
    return table


def _scores(console: Console, report: Report, *, terminal: bool) -> None:
    """Evals item by item, where scores were compared."""
    rows = score_rows(report)
    if not rows:
        return
    table = Table(box=box.SIMPLE if terminal else box.ASCII2, pad_edge=False)
    table.add_column("score", overflow="fold")
    for name in ("n", "ref", "cand", "lost", "gained", "drop", "p (Holm)", "MDE"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    console.print()
    title = "scores in points, on the same items; MDE: the smallest drop seen at this n (5 %, power 80 %)"
    _say(console, [_told(title, report)])
    console.print(table, soft_wrap=False)
    _say(console, [f"  {_told(line, report)}" for line in first_flips(report)])


def _explained(console: Console, report: Report, *, terminal: bool) -> None:
    """From a gate to its cause, where that was asked for."""
    found = report.explained
    if found is None:
        return
    console.print()
    _say(console, [_told(f"{found.status.upper()}: {found.summary}", report)])
    for head, rows, title in (
        (RUNG_HEAD, rung_rows(found), ""),
        (PLACE_HEAD, place_rows(found), "operations of cand that err on their own inputs, rel-L2"),
        (SWITCH_HEAD, switch_rows(found), switch_title(found)),
    ):
        if rows:
            _say(console, [_told(f"  {title}", report)] if title else [])
            console.print(_plain(head, rows, terminal=terminal), soft_wrap=False)
    told = (*untried_lines(found), *found.notes)
    _say(console, [f"  {_told(line, report)}" for line in told])


def _plain(head: Iterable[str], rows: Iterable[Iterable[str]], *, terminal: bool) -> Table:
    table = Table(box=box.SIMPLE if terminal else box.ASCII2, pad_edge=False)
    for name in head:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    return table


def _style(gate: GateReport) -> str:
    return _STYLES[gate.outcome] if gate.waiver is None else "bold yellow"


def _blocks(report: Report) -> list[list[str]]:
    """What is not PASS, the gravest first; gates with one and the same reason share a block."""
    blocks: list[list[str]] = []
    failed = sorted(
        (gate for gate in report.gates if gate.outcome is Outcome.FAIL),
        key=lambda gate: gate.waiver is not None,
    )
    blocks += [_failure(gate, report) for gate in failed[:FULL_BLOCKS]]
    if len(failed) > FULL_BLOCKS:
        blocks.append([_told(headline(gate), report) for gate in failed[FULL_BLOCKS:]])
    open_ = [g for g in report.gates if g.outcome not in (Outcome.PASS, Outcome.FAIL)]
    reasons = dict.fromkeys((shown(gate), gate.outcome, gate.reason) for gate in open_)
    for word, outcome, reason in reasons:
        key = (word, outcome, reason)
        names = ", ".join(g.name for g in open_ if (shown(g), g.outcome, g.reason) == key)
        head = word if word == outcome else f"{word} ({outcome})"
        blocks.append([f"{visible(f'{head} {names}')}: {_told(f'{reason}', report)}"])
    return blocks


def _failure(gate: GateReport, report: Report) -> list[str]:
    pattern = None if gate.measurement is None else gate.measurement.pattern
    lines = [
        ("ref  ", f"{report.ref.label}  {origin(report.ref)}"),
        ("cand ", f"{label_of(report)}  {origin(report.cand)}"),
        ("worst", worst_text(gate)),
        ("where", pattern or ""),
        ("noise", _noise(gate, report)),
        ("limit", _source(gate)),
    ]
    told = [_told(headline(gate), report)]
    told += [f"  {key}: {_told(text, report)}" for key, text in lines if text]
    told.append(f"  rerun: {_told(gate.rerun, report, comment='#')}")
    worst = None if gate.measurement is None else gate.measurement.worst
    if worst is not None and worst.prompt is not None and " --prompt " not in gate.rerun:
        look = f"{gate.rerun} --prompt {shlex.quote(worst.prompt)}"
        told.append(f"  look : {_told(look, report, comment='#')}")
    return told


def _noise(gate: GateReport, report: Report) -> str:
    if gate.noise is None or gate.measurement is None:
        return ""
    if gate.noise.value is None:
        return f"not known: {gate.noise.why_undefined}"
    return (
        f"{report.ref.label} against its repeats measures {floor_text(gate)} "
        f"{gate.measurement.unit} ({gate.noise.repeats} repeats)"
    )


def _source(gate: GateReport) -> str:
    if gate.limit is None:
        return ""
    file, _, key = gate.limit.pointer.partition("#")
    basis = f", {gate.limit.basis}" if gate.limit.basis else ""
    budget = f"; budget of the declared deviation {gate.deviation}" if gate.deviation else ""
    return f"{file}, {key} ({gate.limit.source}{basis}){budget}"
