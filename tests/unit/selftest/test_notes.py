"""Rows that were kept: believed only where they are whole, of their case, and add up."""

import json
import logging
from pathlib import Path

import pytest

from tests.unit.selftest.test_area import SUPPORT, UNIFORM, case, gate, row
from validate.errors import CaptureError
from validate.schema.conformance import PlantedReport
from validate.schema.selftest import CaseReport
from validate.schema.verdict import Outcome
from validate.selftest.cases import Case
from validate.selftest.notes import read_planted, read_row, write_note

GATES = (UNIFORM, SUPPORT)


def kept(folder: Path, told: CaseReport, **changes) -> Path:
    """The row's file, edited by hand."""
    note = folder / "VX-01-0.json"
    write_note(note, json.dumps(told.model_dump(mode="json") | changes))
    return note


def caught(one: Case | None = None) -> CaseReport:
    return row(one or case(), gate(UNIFORM, Outcome.FAIL), gate(SUPPORT, Outcome.PASS))


def missed() -> CaseReport:
    return row(case(), gate(UNIFORM, Outcome.PASS), gate(SUPPORT, Outcome.PASS))


def test_row_that_was_kept_is_taken_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert read_row(kept(tmp_path, caught()), case(), gates=GATES) == caught()
    assert read_row(tmp_path / "none.json", case(), gates=GATES) is None
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("told", "changes", "said"),
    [
        (missed(), {"held": True}, "it says held True, its gates and its record say False"),
        (
            missed(),
            {"held": True, "missed_by": []},
            "it says missed_by (none), its gates and its record say speculative.uniform",
        ),
        (caught(), {"verdict": "PASS", "caught_by": []}, "it says verdict PASS"),
        (caught(), {"caught_by": []}, "it says caught_by (none)"),
        (caught(), {"gates": []}, "it holds 0 gates of 0 names"),
        (missed(), {"expected_gates": [], "missed_by": []}, "its expected_gates is ()"),
        (missed(), {"expect": "PASS", "held": True, "missed_by": []}, "its expect is 'PASS'"),
        (caught(), {"kind": "control", "held": False}, "its kind is 'control'"),
        (missed(), {"leading": False, "held": True}, "its leading is False"),
        (caught(), {"id": "B"}, "its id is 'B', that of the case is 'A'"),
        (caught(), {"seconds": "much"}, "it holds no row of this version (seconds: Input"),
        (row(case(), gate(UNIFORM, Outcome.FAIL)), {}, "it lacks the gate speculative.support"),
    ],
)
def test_row_that_does_not_add_up_is_named_and_judged_anew(
    told: CaseReport,
    changes: dict[str, object],
    said: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    note = kept(tmp_path, told, **changes)

    assert read_row(note, case(), gates=GATES) is None
    assert caplog.record_tuples == [
        ("validate.selftest.notes", logging.WARNING, caplog.messages[0]),
    ]
    assert f"{note}: {said}" in caplog.text
    assert caplog.messages[0].endswith("; the row is judged anew")


@pytest.mark.parametrize("text", ["", "{", '{"id": "VX-01"', "null", "[]", '{"a": 1}', "\xff"])
def test_truncated_or_foreign_file_is_named_and_judged_anew(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    note = tmp_path / "VX-01-0.json"
    note.write_bytes(text.encode("latin-1"))

    assert read_row(note, case(), gates=GATES) is None
    assert read_planted(note, kind="fault", op="mla_decode", name="HD-01") is None
    for message in caplog.messages:
        assert message.startswith(f"{note}: it holds no row of this version (")
        assert "\n" not in message
        assert "pydantic" not in message


def test_folder_in_place_of_a_row_cannot_be_read_or_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert read_row(tmp_path, case(), gates=GATES) is None
    assert f"{tmp_path}: it cannot be read: Is a directory" in caplog.text
    with pytest.raises(CaptureError, match="the row cannot be kept: Is a directory"):
        write_note(tmp_path, "{}")


def planted(**changes) -> PlantedReport:
    fields = {
        "id": "HD-01",
        "op": "mla_decode",
        "kind": "fault",
        "title": "t",
        "source": "s",
        "settings": {},
        "effort": "quick",
        "points": 5,
        "points_failed": 2,
        "clauses": {"value": 2},
        "first": "p",
        "finding": "value: x",
        "pattern": (),
        "held": True,
        "seconds": 1.0,
    }
    return PlantedReport.model_validate(fields | changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"points_failed": 0}, "it says held True of a fault that failed at 0 points"),
        ({"points_failed": 6}, "it says 6 of 5 points failed"),
        ({"points": 0, "points_failed": 0}, "it says 0 of 0 points failed"),
        ({"held": False}, "it says held False of a fault that failed at 2 points"),
        ({"first": None}, "clauses, first and finding say otherwise"),
        ({"clauses": {"value": 3}}, "a clause counts another number"),
        ({"id": "HD-02"}, "it is of fault HD-02 in mla_decode, not of fault HD-01 in mla_decode"),
    ],
)
def test_planted_row_that_does_not_add_up_is_judged_anew(
    changes: dict[str, object], said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    note = tmp_path / "row.json"
    for told in (planted(), planted(**changes)):
        write_note(note, told.model_dump_json())
        found = read_planted(note, kind="fault", op="mla_decode", name="HD-01")
        assert found == (None if told != planted() else told)

    assert said in caplog.text
