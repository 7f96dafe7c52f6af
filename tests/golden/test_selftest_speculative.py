"""The whole table of the speculative area: every record holds."""

import json
from pathlib import Path

import pytest

from validate.cli import main

pytestmark = [pytest.mark.golden, pytest.mark.long]


def test_every_fault_is_caught_and_every_control_is_spared(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """SA-01 in words; no fault gives PASS."""
    monkeypatch.chdir(Path(__file__).resolve().parents[2])

    code = main(["selftest", "--area", "speculative", "--format", "json"])

    rows = {row["id"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert {name: row["finding"] for name, row in rows.items() if not row["held"]} == {}
    assert code == 0
    assert "sampling is greedy" in rows["SA-01"]["finding"]
    assert "PASS" not in {row["verdict"] for row in rows.values() if row["kind"] == "fault"}
