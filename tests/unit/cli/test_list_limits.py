"""``validate list limits``: every number a verdict depends on, each with where it comes from."""

import json
from pathlib import Path

import pytest

from validate.cli import main
from validate.suite import UNKEPT, load_suite

ROOT = Path(__file__).parents[3]


@pytest.fixture
def _here(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.usefixtures("_here")
def test_every_gate_has_its_limit_with_its_origin(monkeypatch, capsys):
    """Source, pointer and basis; clean wherever it was measured; fault with its id."""
    monkeypatch.setattr("sys.argv", ["validate", "list", "limits", "--format", "json"])
    code = main()
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["limits"]}
    suite = load_suite(ROOT / "suites/default.toml")
    needed = [
        gate.name if gate.kind in UNKEPT else f"{gate.limit_key}.bfloat16" for gate in suite.gates
    ]

    assert code == 0
    assert set(needed) <= set(rows)
    assert {"near_tie.bfloat16", "route_gap.bfloat16"} <= set(rows)
    assert rows["speculative.acceptance_z"]["value"] == 0.08
    for row in rows.values():
        assert row["source"] in {"measured", "derived", "published"}
        assert "#" in row["pointer"]
        assert row["basis"]
        assert (row["fault"] is None) == (row["fault_id"] is None)
    assert all(rows[name]["clean"] is not None for name in needed if name.endswith(".bfloat16"))


@pytest.mark.usefixtures("_here")
def test_the_table_tells_what_each_limit_rests_on(monkeypatch, capsys):
    """A basis is a sentence, so it stands below the columns."""
    monkeypatch.setattr("sys.argv", ["validate", "list", "limits"])
    main()
    text = capsys.readouterr().out

    assert "what each rests on\n  near_tie.bfloat16: " in text
    assert "  greedy.invalid_ids: exact gate: the demanded value, by definition" in text
    seen = "lossless gate: the effect that it must see, share of tokens drawn from the argmax"
    assert f"  speculative.uniform: {seen}" in text
