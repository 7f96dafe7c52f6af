"""A bundle held against this checkout: whose suite, limits and golden report judged it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from validate.capture.project import Project
from validate.cli.judge import other_prompts
from validate.errors import ValidateError
from validate.report import load_report
from validate.run import golden_path
from validate.run.since_golden import since_golden
from validate.schema.pair import Side
from validate.schema.report import Report
from validate.schema.suite import Limits, Suite
from validate.suite import limits_digest, load_limits, load_prompts, load_suite

__all__ = ["Held", "blocked_here", "hold", "on_its_word"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a bundle's report is worth by the files of this checkout."""

    lines: tuple[str, ...]
    """Where the bundle's files are not those of this checkout, in words."""
    other_law: bool
    """Whether the suite or the limits of the same name differ here."""
    golden_here: bool
    """Whether what the report says of its golden report is so by the one of this checkout."""


def hold(report: Report, project: Project) -> Held:
    """Compare the suite, the limits and the golden report with those of a checkout.

    Args:
        report: Of a bundle that was checked.
        project: The checkout.

    Raises:
        ValidateError: A file of the checkout itself cannot be read.
    """
    found = _suite_named(report.suite.name, project)
    lines: list[str] = []
    suite = None if found is None else found[1]
    if found is None:
        lines.append(f"suite: the bundle's own; this checkout has no suite '{report.suite.name}'")
    elif found[1].digest != report.suite.digest:
        words = f"digest {report.suite.digest[:12]}, here {found[1].digest[:12]}"
        lines.append(f"suite: the bundle's own, not {found[0]} of this checkout ({words})")
    name = report.suite.limits if suite is None else suite.limits
    file = project.root / name
    limits = load_limits(file) if file.is_file() else None
    if limits is None:
        lines.append(f"limits: the bundle's own; this checkout has no {name}")
    elif limits_digest(limits) != report.suite.limits_digest:
        lines.append(_limits_line(report, limits, name))
    other_law = any(" of this checkout" in line for line in lines)
    same = not lines and suite is not None and limits is not None
    golden_here = same and _golden_agrees(report, suite, limits, project)
    if not golden_here and report.since_golden is not None:
        lines.append(
            f"golden report: the bundle's own, not {report.since_golden.path} of this checkout, so "
            "nothing is said of what was loosened since"
        )
    return Held(lines=tuple(lines), other_law=other_law, golden_here=golden_here)


def _suite_named(name: str, project: Project) -> tuple[Path, Suite] | None:
    files = dict.fromkeys((project.suite, *sorted((project.root / "suites").glob("*.toml"))))
    for file in files:
        try:
            suite = load_suite(file)
        except ValidateError:
            if file.stem == name:
                raise
            continue
        if suite.name == name:
            return file, suite
    return None


def _limits_line(report: Report, limits: Limits, name: str) -> str:
    before, after = report.limits, limits.entries
    looser = [
        key
        for key, here in after.items()
        if key in before
        and (
            before[key].value > here.value
            or (before[key].worst is None) > (here.worst is None)
            or (before[key].worst or 0) > (here.worst or 0)
        )
    ]
    more = [key for key in before if key not in after]
    less = [key for key in after if key not in before]
    shown = "".join(
        f"; {key}: {before[key].value:g}, here {after[key].value:g}" for key in looser[:3]
    )
    counts = f"{len(looser)} looser, {len(more)} more, {len(less)} missing"
    return f"limits: the bundle's own, not {name} of this checkout: {counts}{shown}"


def _golden_agrees(
    report: Report, suite: Suite | None, limits: Limits | None, project: Project
) -> bool:
    if suite is None or limits is None or report.since_golden is None:
        return False
    golden = load_report(project.root / golden_path(suite.name))
    if golden is None:
        return not report.since_golden.found
    here = since_golden(suite, limits, golden=golden)
    # a file's line and label depend on where the program was started
    told = [
        [(one.name, one.change, one.before, one.after) for one in since.changes]
        for since in (here, report.since_golden)
    ]
    return report.since_golden.found and told[0] == told[1]


def blocked_here(ref: Side, cand: Side, suite: Suite, project: Project) -> tuple[str, ...]:
    """Why the sides answer other questions than a suite of this checkout asks.

    Args:
        ref: The side compared against.
        cand: The side under judgement.
        suite: That of the bundle; where this checkout has not the same, nothing is known.
        project: The checkout.
    """
    found = _suite_named(suite.name, project)
    if found is None or found[1].digest != suite.digest:
        return ()
    held = load_prompts(project.root / suite.prompts)
    return other_prompts(ref, cand, suite=suite, held=held)


def on_its_word(report: Report) -> str:
    """One line on what no check computes again."""
    return ", ".join(_unchecked(report))


def _unchecked(report: Report) -> Iterator[str]:
    yield f"not computed again: tool version {report.tool_version}"
    if report.selftest is not None:
        yield "the selftest's summary"
    if report.explained is not None:
        yield "the explanation"
    yield "hardware, drivers and times as the captures tell them"
    if report.blocked:
        yield f"{len(report.blocked)} reasons known before the comparison"
    for role, side in (("ref", report.ref), ("cand", report.cand)):
        if side.label != side.target:
            yield f"the name '{side.label}' of {role}, whose capture is of target '{side.target}'"
