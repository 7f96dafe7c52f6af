"""The report on flashinfer's renorm kernels: made on a CPU, where flashinfer is told as not run."""

import json

import pytest

from validate.conformance import flashinfer_renorm
from validate.conformance.flashinfer_renorm import Entry, judged, main, timed
from validate.conformance.flashinfer_renorm_page import page
from validate.conformance.records import Effort

FLASHINFER = Entry(op="top_k_renorm_prob", name="flashinfer:renorm", settings={})


@pytest.fixture
def small(monkeypatch):
    """Sweeps of the points of eight entries a row alone."""
    for name in ("TOP_K_WHOLE", "TOP_P_WHOLE"):
        operation = getattr(flashinfer_renorm, name)

        def few(effort, settings, cases=operation.cases):
            return (case for case in cases(effort, settings) if case.axes["vocab"] == 8)

        from dataclasses import replace

        monkeypatch.setattr(flashinfer_renorm, name, replace(operation, cases=few))
    entries = (
        FLASHINFER,
        Entry(
            op="top_k_renorm_prob", name="torch:exactly_k", settings={"ties": "all"}, why="a test"
        ),
        Entry(op="top_p_renorm_prob", name="torch:sort", settings={}),
    )
    monkeypatch.setattr(flashinfer_renorm, "ENTRIES", entries)
    monkeypatch.setattr(flashinfer_renorm, "BESIDE", ())


def test_report_is_written_with_verdicts_costs_findings_and_what_did_not_run(small, tmp_path):
    assert main(["--device", "cpu", "--out", str(tmp_path), "--rows", "2", "--vocab", "64"]) == 0

    report = json.loads((tmp_path / "flashinfer-renorm.json").read_text("utf-8"))
    text = (tmp_path / "flashinfer-renorm.md").read_text("utf-8")
    assert text == page(report)
    verdicts = [[one["verdict"] for one in entry["results"]] for entry in report["entries"]]
    assert verdicts == [[], ["FAIL"], ["PASS", "PASS"]]
    assert report["entries"][0]["not_run"].startswith("flashinfer: not installed")
    assert set(report["costs"]["ops"]["top_k_renorm_prob"]) == {"torch:exactly_k"}
    assert "**No kernel of flashinfer ran here**" in text
    assert "ties: row 0, k 3: tie at 0.114286: 1 of 2 equal entries kept" in text
    assert "| top_k_renorm_prob | torch:exactly_k | 0." in text
    assert "- top_k_renorm_prob flashinfer:renorm: flashinfer: not installed" in text
    assert "`python -m validate.conformance.flashinfer_renorm --device cpu" in text


def test_damaged_rows_are_apart_and_cover_the_sweep():
    operation, settings = flashinfer_renorm.TOP_K_WHOLE, {"low_k": "clamp"}
    whole = [case.id for case in operation.cases(Effort.QUICK, settings)]
    damaged = [case.id for case in flashinfer_renorm.TOP_K_DAMAGED.cases(Effort.QUICK, settings)]
    assert not set(whole) & set(damaged)
    assert len(damaged) == 2
    assert all("nan-row" in name or "inf-row" in name for name in damaged)


def test_what_cannot_run_is_told_and_not_timed():
    record = judged(FLASHINFER, device="cpu")
    assert (record["results"], record["not_run"] is None) == ([], False)
    costs = timed("cpu", rows=1, vocab=32, rounds=1)
    assert "flashinfer:renorm" not in costs["ops"]["top_k_renorm_prob"]
    assert min(costs["ops"]["top_p_renorm_prob"].values()) > 0


def test_ratio_is_of_the_kernel_of_flashinfer():
    report = {
        "device": "cuda",
        "versions": {"torch": "2"},
        "compile_seconds": 60.0,
        "command": "c",
        "seconds": 1.0,
        "entries": [],
        "costs": {
            "rows": 64,
            "vocab": 163_840,
            "top_k": 50,
            "top_p": 0.95,
            "rounds": 20,
            "ops": {"top_k_renorm_prob": {"flashinfer:renorm": 0.25, "torch:all_ties": 1.0}},
        },
    }
    text = page(report)
    assert "| top_k_renorm_prob | torch:all_ties | 1.000 | 4.00x |" in text
    assert "| top_k_renorm_prob | flashinfer:renorm | 0.250 | 1.00x |" in text
