"""What reports say of the selftest of the tool that made them."""

from pathlib import Path

from pydantic import ValidationError

from validate.capture.provenance import sources_digest
from validate.schema.selftest import Selftest, SelftestSummary, table_contradiction
from validate.schema.verdict import Outcome

__all__ = ["SELFTEST_PATH", "load_summary", "selftest_sources", "summary_of"]

SELFTEST_PATH = "golden/reports/selftest.json"
"""Where the whole table lies, below the project's root."""
JUDGING = (
    *("schema", "numerics", "stats", "oracle", "pairing", "metrics", "gates"),
    *("conformance", "faults", "suite", "run", "selftest"),
)
"""Rooms whose source could change a row, beside those that a capture's key holds."""


def selftest_sources() -> str:
    """Digest of every source that could change a row."""
    return sources_digest(*JUDGING, "models", "capture")


def summary_of(table: Selftest) -> SelftestSummary:
    """The figures of a table, with whether the sources have changed since."""
    rows = [row for row in table.rows if row.leading]
    faults = [row for row in rows if row.kind == "fault"]
    controls = [row.held for row in rows if row.kind == "control"]
    planted = [row for row in table.conformance if row.kind == "fault"]
    controls += [row.held for row in table.conformance if row.kind == "control"]
    few = sum(row.verdict is Outcome.INCONCLUSIVE and row.held for row in faults)
    digest = selftest_sources()
    return SelftestSummary(
        faults=len(faults) + len(planted),
        caught=sum(bool(row.caught_by) for row in faults) + sum(row.held for row in planted),
        inconclusive=few,
        controls=len(controls),
        flagged=controls.count(False),
        clean=0 if table.clean is None else table.clean.runs,
        alarms=0 if table.clean is None else table.clean.alarms,
        date=table.date,
        sources_digest=table.sources_digest,
        complete=not table.left,
        stale=digest != table.sources_digest
        or (table.clean is not None and digest != table.clean.sources_digest),
    )


def load_summary(root: Path) -> SelftestSummary | None:
    """The summary of the table below the project's ``root``; None where there is none.

    A table of another form than this version's, or one that contradicts its own rows, is no table:
    reports say that there is none.
    """
    path = root / SELFTEST_PATH
    if not path.is_file():
        return None
    try:
        table = Selftest.model_validate_json(path.read_bytes())
    except ValidationError:
        return None
    return summary_of(table) if table.rows and table_contradiction(table) is None else None
