"""What moved since the golden report: every number, in words, on the first page, whatever runs."""

import pytest

from tests.unit.run.made import GATES, YARDSTICK, entry, limits, run, side, suite
from validate.errors import SuiteError
from validate.report import load_report, render_console, render_json, render_markdown
from validate.run.since_golden import golden_path, since_golden
from validate.schema.suite import Limits

BUDGET = "deviation.prefill-fp8.logits.kl_p90.bfloat16"


@pytest.fixture(scope="module")
def golden():
    """The report of a clean run."""
    return run(side("rocm", 0.2))


def told(golden, *, now=None, by=None):
    """Every change as a line."""
    found = since_golden(now or suite(), by or limits(), golden=golden)
    return [f"{c.change} {c.name}: {c.before} -> {c.after} ({c.where})" for c in found.changes]


def test_nothing_moved(golden):
    """And that is said."""
    report = run(side("rocm", 0.2), golden=golden)

    assert told(golden) == []
    assert report.since_golden is not None
    assert report.since_golden.limits_digest == golden.suite.limits_digest
    line = "none was loosened or tightened since golden/reports/small.json"
    assert line in render_console(report)
    assert "**Limits since the golden report**" in render_markdown(report)


def test_a_missing_golden_report_is_said_aloud(golden):
    """Not silently taken for no change."""
    line = (
        "there is no golden report at golden/reports/small.json, so it cannot be told whether a "
        "limit was loosened"
    )

    assert not golden.since_golden.found
    assert line in render_console(golden)
    assert line in render_markdown(golden)


def test_a_loosened_limit_shows_in_every_report(golden):
    """On the first page, before the table, though its gate does not run."""
    looser = limits(logits__kl_p90__bfloat16=entry(1.25))
    report = run(side("rocm", 0.2), golden=golden, limits=looser, only=["state"])
    text = render_console(report)
    line = "LOOSENED logits.kl_p90.bfloat16: 1 -> 1.25 (t.toml)"

    assert line in text[: text.index("yardstick.aa")]
    assert "LOOSENED logits.kl\\_p90" in render_markdown(report) or line.split()[1] in (
        render_markdown(report)
    )
    assert '"change": "loosened"' in render_json(report)


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({"logits__kl_p90__bfloat16": entry(0.5)}, ["tightened logits.kl_p90.bfloat16: 1 -> 0.5"]),
        ({"near_tie__bfloat16": entry(0.5)}, ["loosened near_tie.bfloat16: 0.25 -> 0.5"]),
        (
            {"logits__err_ratio__bfloat16": entry(1.25, worst=3.0)},
            [
                "loosened logits.err_ratio.bfloat16 worst: 2 -> 3",
                "tightened logits.err_ratio.bfloat16: 1.5 -> 1.25",
            ],
        ),
        (
            {"logits__err_ratio__bfloat16": entry(1.5)},
            ["changed logits.err_ratio.bfloat16 worst: 2.0 -> none"],
        ),
        (
            {"logits__kl_p50__bfloat16": entry(5.0, roundoff=(2.0, 1))},
            ["changed logits.kl_p50.bfloat16 roundoff: (1.0, 1) -> (2.0, 1)"],
        ),
        (
            {"logits__kl_p90__float32": entry(0.5)},
            ["changed logits.kl_p90.float32: none -> 0.5"],
        ),
    ],
)
def test_every_number_of_the_limits_file_counts(golden, changes, lines):
    """Values, worst rows, roundoff, settings; loosened ones first."""
    assert told(golden, by=limits(**changes)) == [f"{line} (t.toml)" for line in lines]


def test_a_new_budget_of_a_deviation_loosens(golden):
    """It allows what was not allowed; taking it away tightens."""
    with_budget = Limits(path="t.toml", entries={**limits().entries, BUDGET: entry(3.0)})
    before = run(side("rocm", 0.2), limits=with_budget)

    assert told(golden, by=with_budget) == [f"loosened {BUDGET}: none -> 3 (t.toml)"]
    assert told(before) == [f"tightened {BUDGET}: 3 -> none (t.toml)"]


def test_the_line_of_a_limit_is_named(golden):
    """Where the file told it."""
    moved = limits(near_tie__bfloat16=entry(0.5))
    numbered = Limits(path="t.toml", entries=moved.entries, lines={"near_tie.bfloat16": 7})

    assert told(golden, by=numbered)[0].endswith("(t.toml:7)")


def test_what_the_suite_demands_counts_too(golden):
    """Gates that went or came, kinds, demanded values, both risks, evidence."""
    kept = GATES[:1]
    assert told(golden, now=suite(*kept)) == [
        "loosened gate logits.kl_p50: gated -> none (suites/small.toml)",
        "loosened gate state.kda_rel_l2: gated -> none (suites/small.toml)",
    ]
    assert told(golden, now=suite(beta=0.1)) == [
        "loosened small beta: 0.05 -> 0.1 (suites/small.toml)"
    ]
    assert told(golden, now=suite(alpha=0.02)) == [
        "changed small alpha: 0.01 -> 0.02 (suites/small.toml)"
    ]
    assert told(golden, now=suite(evidence=("hardware",))) == [
        "tightened small evidence: emulated -> none (suites/small.toml)"
    ]
    assert told(golden, now=suite(evidence=("hardware", "emulated", "unproven"))) == [
        "loosened small evidence: none -> unproven (suites/small.toml)"
    ]


def test_kinds_and_demanded_values_count(golden):
    """Which way a kind goes cannot be told from a number, so it is shown as changed."""
    other = GATES[2].model_copy(update={"kind": "exact"})
    new = GATES[2].model_copy(update={"name": "logits.kl_max"})
    moved = (*YARDSTICK[:2], YARDSTICK[2].model_copy(update={"equals": 2.0}), YARDSTICK[3])

    assert told(golden, now=suite(*GATES[:2], other)) == [
        "changed gate state.kda_rel_l2 kind: bound -> exact (suites/small.toml)"
    ]
    assert told(golden, now=suite(*GATES, new)) == [
        "tightened gate logits.kl_max: none -> gated (suites/small.toml)"
    ]
    assert told(golden, now=suite().model_copy(update={"gates": (*moved, *GATES)})) == [
        "changed gate yardstick.path_proof equals: 0.0 -> 2.0 (suites/small.toml)"
    ]


def test_a_stored_report_is_read_back(tmp_path, golden):
    """Whole, or refused with the next step; absent is absent."""
    path = tmp_path / "small.json"
    assert load_report(path) is None
    path.write_text(render_json(golden), encoding="utf-8")
    assert load_report(path) == golden
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(SuiteError, match="the golden report cannot be read"):
        load_report(path)


def test_golden_reports_lie_by_suite():
    """One for each suite."""
    assert golden_path("default") == "golden/reports/default.json"
