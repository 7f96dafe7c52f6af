"""Claimed figures beside the verdict, as lines, as Markdown and as rows for other pages."""

from collections.abc import Iterator

from validate.gates.outcome import number
from validate.report.wording import clean, label_of, mark
from validate.schema.claims import FIGURES, ClaimsReport, Derived
from validate.schema.report import Report

__all__ = ["claim_rows", "claims_lines", "conditions_line", "verdict_line"]


def claims_lines(report: Report) -> list[str]:
    """Everything about the claims, one line each; empty where there are none."""
    told = report.claims
    if told is None:
        return []
    claims = told.claims
    lines = [f"{claims.title} ({told.path}, sha256 {told.sha256[:12]})", verdict_line(report)]
    lines += [f"source: {claims.source}"] if claims.source else []
    lines.append(conditions_line(told))
    lines += [": ".join((row[0], row[1], "; ".join(row[2:]))) for row in claim_rows(told)]
    lines += [f"note: {note}" for note in told.notes]
    return [clean(mark(line, report)) for line in lines]


def verdict_line(report: Report) -> str:
    """The accuracy verdict that the figures stand beside."""
    gates = f"{len(report.gates)} gates of suite {report.suite.name}"
    return f"accuracy verdict beside them: {report.verdict}, {gates}, cand {label_of(report)}"


def conditions_line(told: ClaimsReport) -> str:
    """What was measured how."""
    return "measured with " + ", ".join(f"{k} {v}" for k, v in told.claims.conditions.items())


def claim_rows(told: ClaimsReport) -> Iterator[tuple[str, str, str, str]]:
    """System, figure, value with unit, and its evidence or formula; figures before derived ones."""
    for system in told.claims.systems:
        where = f"{system.name} ({system.gpus} GPUs)"
        for name, figure in system.figures.items():
            value = number(figure.value, FIGURES[name])
            if figure.prompt_tokens is not None:
                value += f" for {figure.prompt_tokens} prompt tokens"
            worth = told.evidence[f"{system.name}/{name}"]
            differ = "" if figure.conditions is None else f"; {figure.conditions}"
            yield where, name, value, f"claimed; {worth}{differ}"
        for one in told.derived:
            if one.system == system.name:
                yield where, one.name, number(one.value, one.unit), _basis(one)


def _basis(one: Derived) -> str:
    words = f"computed: {one.formula}"
    if one.stated is None:
        return words
    return f"{words}; stated as {one.stated}, {'as computed' if one.agrees else 'NOT as computed'}"
