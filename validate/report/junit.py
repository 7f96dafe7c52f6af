"""``report.xml``: one test case a gate, for build servers that read JUnit."""

from collections.abc import Mapping
from xml.etree import ElementTree as ET

from validate.gates.outcome import percent
from validate.report.visible import visible
from validate.report.wording import (
    deviation_lines,
    floor_text,
    headline,
    interval_text,
    label_of,
    limit_text,
    machine,
    mark,
    shown,
    value_text,
    verdict_words,
    worst_text,
)
from validate.schema.report import GateReport, Report
from validate.schema.verdict import Outcome

__all__ = ["render_junit"]


def render_junit(report: Report) -> str:
    """The report as JUnit XML.

    FAIL is a ``failure``; INCONCLUSIVE and INCOMPARABLE are ``error``, for neither is a PASS. A
    waived gate is ``skipped`` with the waiver's words, and its properties keep the outcome.

    Args:
        report: What to show. Characters that XML forbids arrive spelled out.
    """
    words = [_word(gate) for gate in report.gates]
    counts = {
        "tests": len(words),
        "failures": words.count("failure"),
        "errors": words.count("error"),
        "skipped": words.count("skipped"),
    }
    root = _element(None, "testsuites", {"name": "validate", **counts})
    suite = _element(root, "testsuite", {"name": f"validate.{report.suite.name}", **counts})
    _properties(suite, _of_run(report))
    for gate, word in zip(report.gates, words, strict=True):
        _case(suite, gate, report, word)
    told = [f"{report.verdict}: {verdict_words(report)}", *report.notes, *_not_tested(report)]
    out = _element(suite, "system-out", {})
    out.text = "\n".join(visible(mark(line, report)) for line in told)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _element(parent: ET.Element | None, tag: str, attributes: Mapping[str, object]) -> ET.Element:
    held = {name: visible(f"{value}") for name, value in attributes.items()}
    return ET.Element(tag, held) if parent is None else ET.SubElement(parent, tag, held)


def _word(gate: GateReport) -> str:
    if gate.waiver is not None:
        return "skipped"
    return {Outcome.PASS: "", Outcome.FAIL: "failure"}.get(gate.outcome, "error")


def _of_run(report: Report) -> dict[str, object]:
    ref, cand, suite = report.ref, report.cand, report.suite
    held: dict[str, object] = {
        "verdict": report.verdict,
        "validate": report.tool_version,
        "suite": f"{suite.path} {suite.digest}",
        "limits": f"{suite.limits} {suite.limits_digest}",
        "alpha": f"{percent(suite.alpha)} for the whole suite",
        "power": f"{percent(suite.power)} a gate",
        "ref": f"{ref.label}, {machine(ref)}, {ref.dtype}",
        "ref.evidence": ref.evidence,
        "ref.digest": ref.digest,
        "cand": f"{label_of(report)}, {machine(cand)}, {cand.dtype}",
        "cand.evidence": cand.evidence,
        "cand.digest": cand.digest,
    }
    for at, line in enumerate(deviation_lines(report)):
        held[f"deviation.{at}"] = line
    return held


def _not_tested(report: Report) -> list[str]:
    return [f"not tested: {line}" for line in report.not_tested]


def _case(suite: ET.Element, gate: GateReport, report: Report, word: str) -> None:
    area = gate.name.partition(".")[0]
    case = _element(
        suite,
        "testcase",
        {"classname": f"validate.{report.suite.name}.{area}", "name": gate.name},
    )
    _properties(case, _of_gate(gate, report))
    if not word:
        return
    message = {"message": mark(_message(gate), report)}
    if word != "skipped":
        message["type"] = f"{gate.outcome}"
    found = _element(case, word, message)
    lines = [
        gate.reason or "",
        worst_text(gate),
        (None if gate.measurement is None else gate.measurement.pattern) or "",
        f"rerun: {mark(gate.rerun, report, comment='#')}",
    ]
    found.text = "\n".join(visible(line) for line in lines if line)


def _message(gate: GateReport) -> str:
    said = headline(gate)
    return said if gate.waiver is None else f"{said}; waived: {gate.waiver}"


def _of_gate(gate: GateReport, report: Report) -> dict[str, object]:
    held: dict[str, object] = {
        "verdict": shown(gate),
        "outcome": gate.outcome,
        "value": value_text(gate),
        "limit": limit_text(gate),
        "floor": floor_text(gate),
        "interval": interval_text(gate),
        "limit from": "" if gate.limit is None else gate.limit.pointer,
        "n": "" if gate.measurement is None else f"{gate.measurement.n} {gate.measurement.n_of}",
        "cand.evidence": report.cand.evidence,
        "rerun": gate.rerun,
        "waiver": gate.waiver or "",
        "deviation": gate.deviation or "",
    }
    return {name: value for name, value in held.items() if value != ""}


def _properties(parent: ET.Element, held: Mapping[str, object]) -> None:
    properties = _element(parent, "properties", {})
    for name, value in held.items():
        _element(properties, "property", {"name": name, "value": value})
