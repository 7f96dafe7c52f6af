"""The shipped golden reports: of the shipped suites and limits, with the verdicts they promise."""

from pathlib import Path

import pytest

from validate.report import load_report, render_json, render_markdown
from validate.run import golden_path
from validate.run.since_golden import since_golden
from validate.suite import load_limits, load_suite

ROOT = Path(__file__).parents[3]
VERDICTS = {"default": "PASS", "release": "INCOMPARABLE"}
pytestmark = pytest.mark.golden


@pytest.mark.parametrize("name", VERDICTS)
def test_no_limit_moved_unsigned(name):
    """Whoever moves a limit makes the golden report anew, as golden/reports/README.md says."""
    suite = load_suite(ROOT / f"suites/{name}.toml")
    limits = load_limits(ROOT / suite.limits)
    golden = load_report(ROOT / golden_path(name))

    assert golden is not None
    assert since_golden(suite, limits, golden=golden).changes == ()
    assert [gate.name for gate in golden.gates] == [gate.name for gate in suite.gates]


@pytest.mark.parametrize("name", VERDICTS)
def test_golden_reports_say_what_the_captures_give(name):
    """PASS on emulated evidence; a release names the evidence that is missing."""
    path = ROOT / golden_path(name)
    golden = load_report(path)

    assert golden is not None
    assert golden.verdict == VERDICTS[name]
    assert render_json(golden) == path.read_text(encoding="utf-8")
    assert render_markdown(golden) == path.with_suffix(".md").read_text(encoding="utf-8")
    if name == "release":
        assert golden.exit_code == 4
        assert "missing evidence: cand 'rocm' is emulated" in (golden.gates[0].reason or "")
