"""The table of an area's planted faults: fault by gate, and what was left alone."""

from collections.abc import Iterator

from validate.report.wording import clean
from validate.schema.selftest import CaseReport, Selftest

__all__ = ["area_selftest_console", "area_selftest_markdown"]

HEADING = ("", "id", "expected", "verdict", "caught by", "missed by", "needed", "title")
NOTHING = "-"


def area_selftest_console(result: Selftest) -> str:
    """Aligned columns, then what did not hold and what the gates saw."""
    rows = [HEADING, *(_row(row) for row in result.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADING))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join(clean(line) for line in [*lines, "", *_summary(result)])


def area_selftest_markdown(result: Selftest) -> str:
    """The same for a page, with the matrix of faults and gates, and every finding in words."""
    lines = [f"# Selftest of {result.area}", "", *(f"- {one}" for one in _summary(result)), ""]
    lines += _table(HEADING, [_row(row) for row in result.rows])
    lines += ["", "## Fault by gate", "", "F: FAIL, X: INCOMPARABLE, ?: INCONCLUSIVE, ·: PASS."]
    lines += ["An outcome that the record asks for stands in brackets.", "", *_matrix(result)]
    lines += ["", "## Findings", ""]
    lines += [f"- {_name(row)}: {row.finding}" for row in result.rows if row.finding is not None]
    lines += ["", f"Sources {result.sources_digest[:12]}, {result.date}, suite {result.suite}."]
    return "\n".join(clean(line) for line in lines) + "\n"


def _table(heading: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = [f"| {' | '.join(heading)} |", "|---" * len(heading) + "|"]
    return lines + [f"| {' | '.join(c.replace('|', '/') for c in row)} |" for row in rows]


def _matrix(result: Selftest) -> list[str]:
    gates = list(dict.fromkeys(f.gate for row in result.rows for f in row.gates))
    mark = {"FAIL": "F", "INCOMPARABLE": "X", "INCONCLUSIVE": "?", "PASS": "·"}
    rows = []
    for row in result.rows:
        told = {f.gate: mark[f.outcome.value] for f in row.gates}
        cells = (told.get(gate, " ") for gate in gates)
        asked = (
            f"[{c}]" if g in row.expected_gates else c for g, c in zip(gates, cells, strict=True)
        )
        rows.append((_name(row), *asked))
    return _table(("id", *(gate.partition(".")[2] for gate in gates)), rows)


def _name(row: CaseReport) -> str:
    return row.id if row.severity is None else f"{row.id} at {row.severity}"


def _row(row: CaseReport) -> tuple[str, ...]:
    return (
        _word(row),
        _name(row),
        row.expect,
        row.verdict.value,
        _short(row.caught_by),
        _short(row.missed_by),
        NOTHING if row.needed is None else f"{row.needed}",
        row.title,
    )


def _word(row: CaseReport) -> str:
    if row.kind == "control":
        return "left alone" if row.held else "FLAGGED"
    if not row.held:
        return "MISSED"
    return "caught" if row.caught_by else "too few"


def _short(gates: tuple[str, ...]) -> str:
    return ", ".join(gate.partition(".")[2] for gate in gates) or NOTHING


def _summary(result: Selftest) -> Iterator[str]:
    faults = [row for row in result.rows if row.kind == "fault"]
    controls = [row for row in result.rows if row.kind == "control"]
    few = [row for row in faults if row.held and not row.caught_by]
    yield (
        f"{sum(row.held for row in faults)} of {len(faults)} planted faults do what their record "
        f"says ({sum(bool(row.caught_by) for row in faults)} caught, {len(few)} beyond this "
        f"sample), {sum(not row.held for row in controls)} of {len(controls)} controls are flagged "
        f"({result.seconds:.3g} s)"
    )
    for row in few:
        yield f"{_name(row)}: INCONCLUSIVE as its record says; about {row.needed} units needed"
    for row in result.rows:
        if not row.held:
            missed = f"; not by {_short(row.missed_by)}" if row.missed_by else ""
            yield f"{_word(row)} {_name(row)}: {row.verdict.value}{missed}; {row.finding or 'all PASS'}"
    for fault, severity in result.smallest.items():
        yield f"{fault}: smallest severity caught {severity}"
    for gate, alone in result.alone.items():
        yield f"{gate} alone catches {', '.join(alone)}"
    if result.silent:
        yield f"no fault makes these gates FAIL: {', '.join(result.silent)}"
