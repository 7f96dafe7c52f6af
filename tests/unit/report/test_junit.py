"""report.xml: what build servers make of every outcome."""

import xml.etree.ElementTree as ET

import pytest

from tests.pages import full_report, hostile_report, report_with
from validate.report import render_junit
from validate.report.visible import MOST_TEXT

TREE = ET.fromstring(render_junit(full_report()))


def case(name, tree=TREE):
    """One test case."""
    return next(found for found in tree.iter("testcase") if found.get("name") == name)


def properties(of):
    """Its properties by name."""
    return {found.get("name"): found.get("value") for found in of.find("properties")}


def test_one_test_case_a_gate():
    """In the order of the suite, named by suite, area and gate."""
    report = full_report()
    cases = list(TREE.iter("testcase"))

    assert [one.get("name") for one in cases] == [gate.name for gate in report.gates]
    assert cases[0].get("classname") == "validate.default.yardstick"


@pytest.mark.parametrize(
    ("gate", "child", "kind", "message"),
    [
        ("attention.head_rel_l2", "failure", "FAIL", "FAIL attention.head_rel_l2: 0.01236 rel-L2"),
        ("logits.kl_p90", "error", "INCONCLUSIVE", "INCONCLUSIVE logits.kl_p90"),
        ("renorm.kept_set", "error", "INCOMPARABLE", "INCOMPARABLE renorm.kept_set"),
        ("state.kda_rel_l2", "skipped", None, "WAIVED (FAIL) state.kda_rel_l2"),
    ],
)
def test_what_is_no_pass_never_looks_like_one(gate, child, kind, message):
    """FAIL is a failure; INCONCLUSIVE and INCOMPARABLE are errors, never skipped."""
    found = [one for one in case(gate) if one.tag != "properties"]

    assert [one.tag for one in found] == [child]
    assert found[0].get("type") == kind
    assert found[0].get("message").startswith(message)
    assert "rerun: validate compare --ref cuda --cand rocm --only" in found[0].text


def test_a_waiver_stands_in_the_properties_with_the_outcome_it_covers():
    """Who reads the XML alone still sees a FAIL."""
    held = properties(case("state.kda_rel_l2"))

    assert held["verdict"] == "WAIVED"
    assert held["outcome"] == "FAIL"
    assert held["waiver"] == "known, issue 12, until 2027-01-31"


def test_a_pass_has_no_child_but_its_properties():
    """And those hold the numbers."""
    found = case("attention.rel_l2")

    assert [one.tag for one in found] == ["properties"]
    assert properties(found)["limit from"] == "golden/tolerances.toml#attention.rel_l2.bfloat16"


def test_counts_add_up():
    """65 gates: one FAIL, one INCONCLUSIVE, one INCOMPARABLE, one WAIVED."""
    for suite in (TREE, next(TREE.iter("testsuite"))):
        held = {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")}
        assert held == {"tests": "65", "failures": "1", "errors": "2", "skipped": "1"}


def test_the_suite_names_both_sides_and_both_risks():
    """Hardware, evidence, deviations."""
    held = properties(TREE.find("testsuite"))

    assert held["ref"].startswith("cuda, NVIDIA H200, sm_90")
    assert held["cand.evidence"] == "emulated"
    assert held["alpha"] == "1 % for the whole suite"
    assert held["deviation.0"].startswith("prefill-fp8")


def test_hostile_text_is_still_xml():
    """What XML forbids arrives spelled out; what is long arrives cut."""
    text = render_junit(hostile_report())
    tree = ET.fromstring(text.encode("utf-8"))

    assert len(list(tree.iter("testcase"))) == 65
    assert "\\x1b[31mred" in (tree.findtext("testsuite/system-out") or "")
    assert "<script" not in text
    long = render_junit(report_with("x" * 1_000_000))
    assert f"({1_000_000 - MOST_TEXT:,} more characters)" in long
