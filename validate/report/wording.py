"""Words and numbers of every text report; what comes from a capture is made harmless here."""

import unicodedata

from validate.gates.outcome import number, percent
from validate.schema.report import GateReport, MeasurementReport, OtherSide, Report, SideReport
from validate.schema.verdict import Outcome

__all__ = [
    "clean",
    "deviation_lines",
    "floor_text",
    "golden_lines",
    "headline",
    "interval_text",
    "label_of",
    "limit_text",
    "machine",
    "mark",
    "origin",
    "sample",
    "selftest_lines",
    "shown",
    "value_text",
    "verdict_words",
    "waiver_lines",
    "worst_text",
]

_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories that steer a terminal or hide text."""

_WORDS = {
    Outcome.PASS: "every gate was shown to be within its limit at the stated confidence",
    Outcome.FAIL: "cand is not the same model within the limits",
    Outcome.INCONCLUSIVE: "too little data, or too much noise, to settle every gate",
    Outcome.INCOMPARABLE: "nothing may be concluded about cand",
}


_BEYOND = "FAILS"
_RATIO_FAILS = "exceeds the limit"
_ROW_FAILS = "the worst row measures"
"""Words of a three_way gate's reason that stand there exactly where that half failed."""


def clean(text: str) -> str:
    r"""``text`` on one line, with control, format and surrogate characters spelled out.

    Example:
        >>> print(clean("a\x1b[2Jb"))
        a\x1b[2Jb
    """
    if text.isprintable():
        return text
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in _UNSEEN else char
        for char in text
    )


def label_of(report: Report) -> str:
    """The candidate as every line must name it: its evidence beside it unless it is hardware."""
    if report.cand.evidence == "hardware":
        return report.cand.label
    return f"{report.cand.label} ({report.cand.evidence})"


def mark(text: str, report: Report, *, comment: str = "") -> str:
    """``text`` with the candidate's evidence added where it mentions the candidate without it.

    Args:
        text: One line.
        report: Whose candidate.
        comment: What a reader's shell takes for a comment sign, on lines meant to be pasted.
    """
    evidence = report.cand.evidence
    mentioned = "cand" in text or report.cand.label in text or report.cand.target in text
    if evidence == "hardware" or not mentioned or evidence in text:
        return text
    return f"{text}  {comment} cand: {evidence}" if comment else f"{text} [cand: {evidence}]"


def verdict_words(report: Report) -> str:
    """The verdict as a sentence, with how many gates stand behind it."""
    gates, verdict = report.gates, report.verdict
    waived = sum(gate.waiver is not None for gate in gates)
    aside = f"; {waived} WAIVED, which were not" if waived and verdict is Outcome.PASS else ""
    if verdict is Outcome.PASS:
        return f"{_WORDS[verdict]} ({len(gates) - waived} gates{aside})"
    at_fault = sum(gate.outcome is verdict and gate.waiver is None for gate in gates)
    aside = f", {waived} more are WAIVED" if waived else ""
    return f"{_WORDS[verdict]} ({at_fault} of {len(gates)} gates are {verdict}{aside})"


def shown(gate: GateReport) -> str:
    """The word for a gate: its outcome, or WAIVED where that does not count."""
    return str(gate.outcome) if gate.waiver is None else "WAIVED"


def waiver_lines(report: Report) -> list[str]:
    """Each waived gate: what it found, and by whose word that does not count."""
    return [
        f"{gate.name} is {gate.outcome} and does not count: {gate.waiver}"
        for gate in report.gates
        if gate.waiver is not None
    ]


def machine(side: OtherSide) -> str:
    """Card, architecture, driver and framework of a capture."""
    made = side.provenance
    parts = [made.hardware, made.arch]
    parts.append(f"driver {made.driver}" if made.driver else "no driver")
    parts += [
        f"{name} {made.versions[name]}"
        for name in ("engine", "torch", "cuda", "hip", "aiter")
        if name in made.versions
    ]
    return ", ".join(parts)


def origin(side: SideReport) -> str:
    """Folder, architecture, dtype and weights of a capture."""
    parts = [side.path, side.provenance.arch, side.dtype, f"weights {side.weights}"]
    return "  ".join(part for part in parts if part)


def sample(found: MeasurementReport) -> str:
    """How many of what."""
    return f"n = {found.n} {found.n_of}"


def value_text(gate: GateReport) -> str:
    """What was measured, in its unit; for ratios to the floor that too."""
    found = gate.measurement
    if found is None:
        return "not measured"
    if found.value is None:
        return "undefined"
    lossless = gate.kind == "lossless"
    plain = f"p = {number(found.value)}" if lossless else number(found.value, found.unit)
    if gate.kind == "noise_ratio" and gate.judged is not None:
        return f"{number(gate.judged)} x floor ({plain})"
    if gate.kind != "three_way" and (gate.limit is None or gate.limit.worst is None):
        return plain
    worst = "not known" if found.worst_value is None else number(found.worst_value)
    return f"{_ratio(gate, plain, found.value)}, worst {worst}"


def _ratio(gate: GateReport, plain: str, value: float) -> str:
    return f"{number(value)} x ref" if gate.kind == "three_way" else plain


def limit_text(gate: GateReport) -> str:
    """The limit, in the terms of its kind."""
    if gate.limit is None:
        return "-"
    value = number(gate.limit.value)
    if gate.kind == "noise_ratio":
        return f"{value} x floor"
    if gate.kind == "lossless":
        return f"{number(gate.alpha_share)}, effect {value}"
    if gate.limit.worst is not None:
        unit = " x ref" if gate.kind == "three_way" else ""
        return f"{value}{unit}, worst {number(gate.limit.worst)}"
    return f"exactly {value}" if gate.kind == "exact" else value


def floor_text(gate: GateReport) -> str:
    """The noise floor, or why there is none."""
    if gate.noise is None or gate.kind == "lossless":
        return "-"
    if gate.noise.value is None:
        return "not known"
    value = number(gate.noise.value)
    return f"{value} (roundoff)" if gate.noise.derived else value


def interval_text(gate: GateReport) -> str:
    """The confidence limit that decided: the lower one of a FAIL, else the upper one."""
    interval = None if gate.measurement is None else gate.measurement.interval
    if interval is None:
        return ""
    if gate.outcome is Outcome.FAIL and interval.low is not None:
        return f"lower limit {number(interval.low)} at {percent(interval.low_level)}"
    if interval.high is not None:
        return f"upper limit {number(interval.high)} at {percent(interval.high_level)}"
    return f"no upper limit at {percent(interval.high_level)}"


def headline(gate: GateReport) -> str:
    """Outcome, gate, number and limit on one line that makes sense alone."""
    found = gate.measurement
    if found is None or found.value is None:
        return f"{_word(gate)} {gate.name}: {gate.reason}"
    details = ", ".join(part for part in (interval_text(gate), sample(found)) if part)
    if gate.kind == "three_way":
        return f"{_word(gate)} {gate.name}: {_halves(gate, found, details)}"
    return f"{_word(gate)} {gate.name}: {value_text(gate)}, limit {limit_text(gate)}  ({details})"


def _halves(gate: GateReport, found: MeasurementReport, details: str) -> str:
    """Both halves of a three_way gate, each with its own limit, and which of them failed."""
    limit, worst = gate.limit, found.worst_value
    ratio = "ratio undefined" if found.value is None else f"ratio {number(found.value)} x ref"
    row = f"worst {'not known' if worst is None else number(worst)}"
    if limit is not None:
        ratio += f", limit {number(limit.value)} x ref"
        row += "" if limit.worst is None else f", limit {number(limit.worst)}"
    if gate.outcome is not Outcome.FAIL:
        return f"{ratio}  ({details}); {row}"
    reason = gate.reason or ""
    ratio += f" {_BEYOND}" if _RATIO_FAILS in reason else ""
    row += f" {_BEYOND}" if _ROW_FAILS in reason else ""
    return f"{ratio}  ({details}); {row}"


def _word(gate: GateReport) -> str:
    return str(gate.outcome) if gate.waiver is None else f"WAIVED ({gate.outcome})"


def worst_text(gate: GateReport) -> str:
    """Where the measured quantity is largest; empty when that is not known."""
    worst = None if gate.measurement is None else gate.measurement.worst
    if gate.measurement is None or worst is None:
        return ""
    place = [
        "" if worst.prompt is None else f"prompt {worst.prompt}",
        "" if worst.position is None else f"position {worst.position}",
        worst.place or "",
    ]
    found = " ".join(part for part in place if part)
    if worst.value is not None:
        value = number(worst.value)
        found = f"{found}, {value}" if found else value
    return "; ".join(part for part in (found, worst.detail or "") if part)


def golden_lines(report: Report) -> list[str]:
    """What was loosened or tightened since the golden report, loosened first."""
    since = report.since_golden
    if since is None or not since.found:
        path = "" if since is None else f" at {since.path}"
        return [
            f"there is no golden report{path}, so it cannot be told whether a limit was loosened"
        ]
    if not since.changes:
        return [f"none was loosened or tightened since {since.path}"]
    return [
        f"{one.change.upper()} {one.name}: {one.before} -> {one.after} ({one.where})"
        for one in since.changes
    ]


def selftest_lines(report: Report) -> list[str]:
    """What planted faults and controls say of the gates that judged, or that nothing is known."""
    found = report.selftest
    if found is None:
        return ["no selftest is stored, so nothing says which faults these gates see"]
    lines = [
        f"{found.caught} of {found.faults} planted faults caught, {found.inconclusive} beyond the "
        f"sample; {found.flagged} of {found.controls} controls flagged; "
        + (
            f"{found.alarms} alarms on {found.clean} clean candidates"
            if found.clean
            else "no clean candidates were run"
        ),
        f"{found.date}, sources {found.sources_digest[:12]}",
    ]
    if not found.complete:
        lines.append("incomplete: some cases were not judged")
    if found.stale:
        lines.append("stale: the sources have changed since; next: validate selftest")
    return lines


def deviation_lines(report: Report) -> list[str]:
    """Each declared deviation of cand: what it is, and how large it measures.

    Told are the first gate of each area and every gate that is not PASS; the others
    are counted.
    """
    lines = []
    for deviation in report.deviations:
        lines.append(f"{deviation.id}: {deviation.title}; expected {deviation.expected}")
        gates = [gate for gate in report.gates if gate.deviation == deviation.id]
        firsts = {gate.name.partition(".")[0]: gate.name for gate in reversed(gates)}
        told = [g for g in gates if g.outcome is not Outcome.PASS or g.name in firsts.values()]
        lines += [
            f"{deviation.id}: {gate.name} measures {value_text(gate)}, budget {limit_text(gate)}: "
            f"{gate.outcome}"
            for gate in told
        ]
        if not gates:
            lines.append(f"{deviation.id}: no budget of its own here, ordinary limits hold")
        if len(gates) > len(told):
            lines.append(f"{deviation.id}: {len(gates) - len(told)} more gates PASS its budget")
    return lines
