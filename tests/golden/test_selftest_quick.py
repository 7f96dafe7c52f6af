"""A handful of planted faults of every kind and a control each, in every run of the tests."""

import json
from pathlib import Path

import pytest

from validate.cli import main

pytestmark = [pytest.mark.golden, pytest.mark.slow]


def test_handful_of_every_kind_does_what_its_record_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Faults of cand, ref, captures, pairing, drawn streams, evals and operations; no control FAILs."""
    monkeypatch.chdir(Path(__file__).resolve().parents[2])

    code = main(
        [
            *("selftest", "--quick", "--processes", "1"),
            *("--rows", str(tmp_path), "--format", "json"),
        ]
    )

    table = json.loads(capsys.readouterr().out)
    rows = {row["id"]: row for row in table["rows"]}
    assert {name: row["finding"] for name, row in rows.items() if not row["held"]} == {}
    assert (code, table["left"]) == (0, [])
    assert {"cand", "ref", "capture", "evals"} == {row["where"] for row in table["rows"]}
    assert "PASS" not in {row["verdict"] for row in rows.values() if row["kind"] == "fault"}
    assert rows["VX-140"]["caught_by"] == ["pairing"]
    assert [row["held"] for row in table["conformance"]] == [True] * 4
