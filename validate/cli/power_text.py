"""A power report as text for a terminal and as Markdown; numbers are worded, none is computed."""

from collections.abc import Iterator, Sequence

from validate.run.power_record import EffectPower, GatePower, PowerReport

__all__ = ["as_markdown", "as_text"]

HEADING = (
    "gate",
    "n",
    "effect",
    "80 %",
    "95 %",
    "not passed",
    "x2: 95 %",
    "x4: 95 %",
    "n needed",
    "checked",
)
RIGHT = frozenset({1, 3, 4, 5, 6, 7})
NONE = "-"


def as_text(report: PowerReport) -> str:
    """Header, table with aligned columns, what is left out."""
    rows = [HEADING, *_rows(report)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADING))]
    table = ["  ".join(_aligned(row, widths)).rstrip() for row in rows]
    return "\n".join([*_head(report), "", *table, "", *_legend(report), *_left_out(report)])


def as_markdown(report: PowerReport) -> str:
    """The same for a page."""
    lines = [f"# Power of suite `{report.suite}` with `{report.ref}`", "", "```"]
    lines += [report.command, "```", ""]
    lines += [f"- {line.strip()}" for line in _head(report)[1:]]
    lines += ["", _line(HEADING), "|" + "---|" * len(HEADING)]
    lines += [_line(row) for row in _rows(report)]
    lines += ["", *(f"- {line}" for line in _legend(report)), "", "Assumptions, by effect:", ""]
    lines += [
        f"- `{gate.gate}`, {effect.effect}: {effect.note}."
        for gate in report.gates
        for effect in gate.effects
        if effect.method == "simulated"
    ]
    left = _left_out(report)
    return "\n".join([*lines, *([""] if left else []), *(f"- {line}" for line in left)])


def _line(cells: Sequence[str]) -> str:
    escaped = [cell.replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"


def _aligned(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    for i, cell in enumerate(row):
        yield cell.rjust(widths[i]) if i in RIGHT else cell.ljust(widths[i])


def _head(report: PowerReport) -> list[str]:
    clean = report.clean
    worst = sorted(clean.not_passed.items(), key=lambda item: -item[1])[:5]
    opened = ", ".join(f"{name} {_percent(share)}" for name, share in worst)
    return [
        report.command,
        (
            f"  suite  : {report.suite}, {report.number_of_gates} gates, "
            f"{report.gates_with_interval} with an interval that share alpha "
            f"{_percent(report.alpha)}; beta {_percent(report.beta)} a gate"
        ),
        f"  ref    : {report.ref}; noise of {len(report.repeats)} repeats: {', '.join(report.repeats)}",
        f"  clean  : another repeat of ref passes every gate in {_percent(clean.passes_all)} of "
        f"{clean.draws} simulated runs and fails one in {_percent(clean.any_fail)}"
        + (f"; not passed: {opened}" if opened else ""),
    ]


def _legend(report: PowerReport) -> list[str]:
    return [
        (
            "80 %, 95 %: smallest effect that FAILs with this probability; not passed: smallest "
            "that does not PASS with 95 %; x2, x4: with that many times the units"
        ),
        "n needed: units that FAIL the effect in front of the colon with 80 % / 95 %",
        (
            "checked: share of other simulated runs that FAIL at no effect, at that for 80 % and at "
            "that for 95 %; it may be more where few distinct prompts make power jump"
        ),
        (
            f"{report.draws} simulated runs a figure, seed {report.seed}; {NONE}: not reached by any "
            "effect or number of units that was tried; docs/power.md states the assumptions"
        ),
    ]


def _rows(report: PowerReport) -> Iterator[tuple[str, ...]]:
    for gate in report.gates:
        for effect in gate.effects:
            yield _row(gate, effect)


def _row(gate: GatePower, effect: EffectPower) -> tuple[str, ...]:
    first, second, fourth = effect.reaches
    return (
        gate.gate,
        str(first.n),
        f"{effect.effect}, {effect.unit}",
        _number(first.detected_80),
        _number(first.detected_95),
        _number(first.stopped_95),
        _number(second.detected_95),
        _number(fourth.detected_95),
        _needed(effect),
        " / ".join(NONE if share is None else f"{share:.2f}" for share in effect.checked) or NONE,
    )


def _needed(effect: EffectPower) -> str:
    if effect.stated is None:
        return NONE
    return f"{_number(effect.stated)}: {_count(effect.needed_80)} / {_count(effect.needed_95)}"


def _count(n: int | None) -> str:
    return NONE if n is None else str(n)


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.3g}"


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def _left_out(report: PowerReport) -> list[str]:
    return [
        f"{gate.gate}: no figure: {gate.why_undefined}"
        for gate in report.gates
        if gate.why_undefined is not None
    ]
