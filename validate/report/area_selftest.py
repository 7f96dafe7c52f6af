"""The table of an area's planted faults: fault by gate, and what was left alone."""

from collections.abc import Iterator, Sequence

from validate.report.wording import clean
from validate.schema.conformance import PlantedReport
from validate.schema.selftest import CaseReport, CleanReport, Selftest

__all__ = ["area_selftest_console", "area_selftest_markdown"]

HEADING = ("", "id", "expected", "verdict", "caught by", "missed by", "needed", "title")
NOTHING = "-"
SHOWN = 3
"""Gates of a cell on the console; the page and the JSON hold them all."""
KEY = "F: FAIL, X: INCOMPARABLE, ?: INCONCLUSIVE, ·: PASS; in brackets what the record asks for."


def area_selftest_console(result: Selftest) -> str:
    """Aligned columns, then what did not hold and what the gates saw."""
    rows = [HEADING, *(_row(row, most=SHOWN) for row in result.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADING))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join(clean(line) for line in [*lines, "", *_summary(result)])


def area_selftest_markdown(result: Selftest) -> str:
    """The same for a page, with the matrix of faults and gates, and every finding in words."""
    lines = [f"# Selftest of {result.area}", "", *(f"- {one}" for one in _summary(result)), ""]
    if result.rows:
        lines += _table(HEADING, [_row(row) for row in result.rows])
        lines += ["", "## Fault by gate"]
    for stage in dict.fromkeys(row.stage for row in result.rows):
        rows = [row for row in result.rows if row.stage == stage]
        lines += ["", f"Captures of {stage}. {KEY}", "", *_matrix(rows)]
    if result.conformance:
        lines += ["", "## Operations", "", *_operations(result.conformance)]
    lines += ["", "## Findings", ""]
    lines += [f"- {_name(row)}: {row.finding}" for row in result.rows if row.finding is not None]
    if result.clean is not None:
        lines += ["", "## Clean candidates", "", *_clean(result.clean)]
    lines += ["", f"Sources {result.sources_digest[:12]}, {result.date}, suite {result.suite}."]
    return "\n".join(clean(line) for line in lines) + "\n"


def _operations(rows: Sequence[PlantedReport]) -> list[str]:
    told: list[tuple[str, ...]] = [
        (
            _operation_word(row),
            row.id,
            row.op,
            f"{row.points_failed}/{row.points}",
            ", ".join(f"{clause} {count}" for clause, count in row.clauses.items()) or NOTHING,
            row.title,
        )
        for row in rows
    ]
    return _table(("", "id", "operation", "points", "caught by", "title"), told)


def _operation_word(row: PlantedReport) -> str:
    word = {("fault", True): "caught", ("fault", False): "MISSED", ("control", True): "left alone"}
    return word.get((row.kind, row.held), "FLAGGED")


def _clean(found: CleanReport) -> list[str]:
    figures = (
        f"- {found.runs} candidates on up to {found.prompts} prompts: {found.alarms} alarms "
        f"({found.allowed} allowed), {found.open} left open ({found.seconds:.3g} s)"
    )
    lines = [figures]
    lines += [f"- {name}: {', '.join(values)}" for name, values in found.options.items() if values]
    lines += [f"- {gate} alarmed {count} times" for gate, count in found.by_gate.items()]
    return lines + [f"- alarm: {one}" for one in found.alarmed]


def _table(heading: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = [f"| {' | '.join(heading)} |", "|---" * len(heading) + "|"]
    return lines + [f"| {' | '.join(c.replace('|', '/') for c in row)} |" for row in rows]


def _matrix(judged: Sequence[CaseReport]) -> list[str]:
    gates = list(dict.fromkeys(f.gate for row in judged for f in row.gates))
    mark = {"FAIL": "F", "INCOMPARABLE": "X", "INCONCLUSIVE": "?", "PASS": "·"}
    rows = []
    for row in judged:
        told = {f.gate: mark[f.outcome.value] for f in row.gates}
        cells = (told.get(gate, " ") for gate in gates)
        asked = (
            f"[{c}]" if g in row.expected_gates else c for g, c in zip(gates, cells, strict=True)
        )
        rows.append((_name(row), *asked))
    return _table(("id", *(gate.partition(".")[2] for gate in gates)), rows)


def _name(row: CaseReport) -> str:
    return row.id if row.severity is None else f"{row.id} at {row.severity}"


def _row(row: CaseReport, *, most: int | None = None) -> tuple[str, ...]:
    return (
        _word(row),
        _name(row),
        row.expect,
        row.verdict.value,
        _short(row.caught_by, most=most),
        _short(row.missed_by, most=most),
        NOTHING if row.needed is None else f"{row.needed}",
        row.title,
    )


def _word(row: CaseReport) -> str:
    if row.kind == "control":
        return "left alone" if row.held else "FLAGGED"
    if not row.held:
        return "MISSED"
    if not row.leading and not row.caught_by:
        return "too small"
    return "caught" if row.caught_by else "too few"


def _short(gates: tuple[str, ...], *, most: int | None = None) -> str:
    names = [gate.partition(".")[2] for gate in gates]
    shown, rest = names[:most], len(names[most:]) if most is not None else 0
    return ", ".join([*shown, *([f"{rest} more"] if rest else [])]) or NOTHING


def _summary(result: Selftest) -> Iterator[str]:
    yield from _figures(result)
    for row in result.rows:
        if not row.held:
            missed = f"; not by {_short(row.missed_by)}" if row.missed_by else ""
            yield f"{_word(row)} {_name(row)}: {row.verdict.value}{missed}; {row.finding or 'all PASS'}"
    for one in result.conformance:
        if not one.held:
            yield f"{_operation_word(one)} {one.id} in {one.op}: {one.finding or 'no point failed'}"
    for case in result.left:
        yield f"not judged: {case}"
    for fault, severity in result.smallest.items():
        yield f"{fault}: smallest severity caught {severity}"
    for gate, alone in result.alone.items():
        yield f"{gate} alone catches {', '.join(alone)}"
    if result.redundant:
        yield f"every fault of these gates is seen by another too: {', '.join(result.redundant)}"
    if result.silent:
        yield f"no fault makes these gates FAIL: {', '.join(result.silent)}"


def _figures(result: Selftest) -> Iterator[str]:
    """Counts at the severities of the records, then what lies beyond the sample."""
    rows = [row for row in result.rows if row.leading]
    faults = [row for row in rows if row.kind == "fault"]
    controls = [row for row in rows if row.kind == "control"]
    few = [row for row in faults if row.held and not row.caught_by]
    if rows:
        yield (
            f"{sum(row.held for row in faults)} of {len(faults)} planted faults do what their record "
            f"says ({sum(bool(row.caught_by) for row in faults)} caught, {len(few)} beyond this "
            f"sample), {sum(not row.held for row in controls)} of {len(controls)} controls are "
            f"flagged ({result.seconds:.3g} s)"
        )
    planted = [row for row in result.conformance if row.kind == "fault"]
    spared = [row for row in result.conformance if row.kind == "control"]
    if result.conformance:
        yield (
            f"operations: {sum(row.held for row in planted)} of {len(planted)} planted faults are "
            f"caught, {sum(not row.held for row in spared)} of {len(spared)} controls are flagged"
        )
    if result.clean is not None:
        one = result.clean
        yield f"clean candidates: {one.alarms} alarms in {one.runs} ({one.allowed} allowed)"
    for row in few:
        yield f"{_name(row)}: INCONCLUSIVE as its record says; about {row.needed} units needed"
