"""Rows that are kept between selftests: written whole, and believed only as far as they add up."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from validate.errors import CaptureError
from validate.schema.conformance import PlantedReport
from validate.schema.selftest import PAIRING, CaseReport, contradiction
from validate.selftest.cases import Case

__all__ = ["read_planted", "read_row", "write_note"]

Row = TypeVar("Row", bound=BaseModel)
log = logging.getLogger(__name__)
"""Without a handler of somebody's own, a warning is one line on stderr, in any process."""


def write_note(note: Path, text: str) -> None:
    """Keep a row; whoever is interrupted leaves the file as it was.

    Raises:
        CaptureError: It cannot be written.
    """
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        part = note.with_suffix(f".{os.getpid()}")
        part.write_text(text + "\n", "utf-8")
        part.replace(note)
    except OSError as error:
        msg = (
            f"{note}: the row cannot be kept: {error.strerror}\n"
            "  do next: free the place, or name another folder with --rows"
        )
        raise CaptureError(msg) from error


def read_row(note: Path, case: Case, *, gates: Sequence[str]) -> CaseReport | None:
    """The row that is kept of ``case``; None where there is none that can be believed.

    Args:
        note: The file; a warning names it where it holds anything else than such a row.
        case: What the row must be of.
        gates: What it must hold, unless pairing refused.
    """
    row = _read(CaseReport, note)
    if row is None:
        return None
    why = _other_case(row, case) or contradiction(row) or _missing(row, gates)
    if why is not None:
        _doubt(note, why)
    return row if why is None else None


def read_planted(note: Path, *, kind: str, op: str, name: str) -> PlantedReport | None:
    """The row that is kept of a planted operation; None where none can be believed."""
    row = _read(PlantedReport, note)
    if row is None:
        return None
    if (row.kind, row.op, row.id) != (kind, op, name):
        why: str | None = f"it is of {row.kind} {row.id} in {row.op}, not of {kind} {name} in {op}"
    else:
        why = row.contradiction()
    if why is not None:
        _doubt(note, why)
    return row if why is None else None


def _read(kind: type[Row], note: Path) -> Row | None:
    try:
        return kind.model_validate_json(note.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        _doubt(note, f"it cannot be read: {error.strerror}")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))
        said = f"{where}: {first['msg']}" if where else first["msg"]
        _doubt(note, f"it holds no row of this version ({said})")
    return None


def _doubt(note: Path, why: str) -> None:
    log.warning("%s: %s; the row is judged anew", note, " ".join(why.split()))


def _other_case(row: CaseReport, case: Case) -> str | None:
    """Which field of the record the row tells otherwise."""
    expected = {
        "id": case.id,
        "kind": "fault" if case.is_fault else "control",
        "severity": case.severity,
        "expect": case.expect,
        "expected_gates": case.gates if case.is_fault else (),
        "leading": case.leading,
        "stage": case.stage,
        "where": case.where,
        "title": case.title,
        "source": case.source,
    }
    for name, value in expected.items():
        if getattr(row, name) != value:
            return f"its {name} is {getattr(row, name)!r}, that of the case is {value!r}"
    return None


def _missing(row: CaseReport, gates: Sequence[str]) -> str | None:
    """Which gate of the suite it lacks: a row without the gate that FAILs would hold."""
    told = [found.gate for found in row.gates]
    lacks = [name for name in gates if name not in told]
    return f"it lacks the gate {lacks[0]}" if lacks and told != [PAIRING] else None
