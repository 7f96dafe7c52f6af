"""The table of planted operation faults: what caught each, and that no control was flagged."""

from collections.abc import Iterator

from validate.report.wording import clean
from validate.schema.conformance import ConformanceSelftest, PlantedReport

__all__ = ["selftest_console", "selftest_markdown"]

HEADING = ("", "id", "operation", "points", "caught by", "first at", "title")


def selftest_console(result: ConformanceSelftest) -> str:
    """Aligned columns, then what did not hold."""
    rows = [HEADING, *(_row(row) for row in result.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADING))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join(clean(line) for line in [*lines, "", *_summary(result)])


def selftest_markdown(result: ConformanceSelftest) -> str:
    """The same for a page."""
    lines = ["# Planted operation faults", "", *_summary(result), ""]
    lines += [f"| {' | '.join(HEADING)} |", "|---" * len(HEADING) + "|"]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in _row(r))} |" for r in result.rows]
    return "\n".join(clean(line) for line in lines) + "\n"


def _row(row: PlantedReport) -> tuple[str, ...]:
    by = ", ".join(f"{clause} {count}" for clause, count in row.clauses.items())
    word = {("fault", True): "caught", ("fault", False): "MISSED", ("control", True): "left alone"}
    return (
        word.get((row.kind, row.held), "FLAGGED"),
        row.id,
        row.op,
        f"{row.points_failed}/{row.points}",
        by or "-",
        row.first or "-",
        row.title,
    )


def _summary(result: ConformanceSelftest) -> Iterator[str]:
    faults = [row for row in result.rows if row.kind == "fault"]
    controls = [row for row in result.rows if row.kind == "control"]
    yield (
        f"{sum(row.held for row in faults)} of {len(faults)} planted faults are caught, "
        f"{sum(not row.held for row in controls)} of {len(controls)} controls are flagged "
        f"({result.seconds:.3g} s)"
    )
    for row in result.rows:
        if not row.held:
            what = f"no point of {row.points} failed" if row.kind == "fault" else row.finding
            yield f"{'MISSED' if row.kind == 'fault' else 'FLAGGED'} {row.id} in {row.op}: {what}"
    if result.unplanted:
        yield f"no fault is planted in: {', '.join(result.unplanted)}"
