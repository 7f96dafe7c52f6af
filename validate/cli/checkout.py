"""A bundle held against this checkout: whose suite, limits and golden report judged it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from validate.capture.digest import file_sha256
from validate.capture.format import MANIFEST
from validate.capture.goldens import VERIFIED_NAME, stale_reason
from validate.capture.project import Project
from validate.capture.reader import CaptureReader
from validate.cli.judge import other_prompts
from validate.errors import ValidateError
from validate.report import load_report
from validate.run import golden_path
from validate.run.since_golden import since_golden
from validate.schema.pair import Side
from validate.schema.report import Report, SinceGolden
from validate.schema.suite import Limits, Suite
from validate.suite import limits_digest, load_limits, load_prompts, load_suite

__all__ = ["Held", "blocked_here", "hold", "on_its_word", "stale_here"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a bundle's report is worth by the files of this checkout."""

    lines: tuple[str, ...]
    """Where the bundle's files are not those of this checkout, in words."""
    other_law: bool
    """Whether the suite or the limits of the same name differ here."""
    unknown_law: bool
    """Whether this checkout has no suite or no limits of that name to hold them against."""
    golden_here: bool
    """Whether what the report says of its golden report is so by the one of this checkout."""
    other_golden: bool
    """Whether the golden report here, by the same suite and limits, tells otherwise."""
    since: SinceGolden | None
    """What was loosened, as it may be shown: by this checkout's files; None where they do not tell."""


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
    limits = _limits_named(project.root / name, own=suite is not None)
    if limits is None:
        lines.append(f"limits: the bundle's own; this checkout has no {name}")
    elif limits_digest(limits) != report.suite.limits_digest:
        lines.append(_limits_line(report, limits, name))
    other_law = any(" of this checkout" in line for line in lines)
    unknown_law = found is None or limits is None
    same = not lines and suite is not None and limits is not None
    here = _since_here(suite, limits, project) if same else None
    told = report.since_golden
    golden_here = here is not None and told is not None and _told(here) == _told(told)
    known = here is not None and here.found
    if known and not golden_here:
        lines.append(_golden_line(told, here))
    elif told is not None and not golden_here:
        lines.append(
            f"golden report: the bundle's own, not {told.path} of this checkout, so "
            "nothing is said of what was loosened since"
        )
    return Held(
        lines=tuple(lines),
        other_law=other_law,
        unknown_law=unknown_law,
        golden_here=golden_here,
        other_golden=known and not golden_here,
        since=told if golden_here else here if known else None,
    )


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


def _limits_named(file: Path, *, own: bool) -> Limits | None:
    """Limits of this checkout; a file that a bundle alone names may be none that holds limits.

    Raises:
        ValidateError: The checkout's own suite names it, and it cannot be read.
    """
    if not file.is_file():
        return None
    try:
        return load_limits(file)
    except ValidateError:
        if own:
            raise
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


def _since_here(suite: Suite | None, limits: Limits | None, project: Project) -> SinceGolden | None:
    """What was loosened since this checkout's golden report; None without suite or limits."""
    if suite is None or limits is None:
        return None
    return since_golden(suite, limits, golden=load_report(project.root / golden_path(suite.name)))


def _told(since: SinceGolden) -> list[tuple[str, str, str, str]] | None:
    """The changes, without a file's line and label, which depend on where the program was started."""
    if not since.found:
        return None
    return [(one.name, str(one.change), one.before, one.after) for one in since.changes]


def _golden_line(told: SinceGolden | None, here: SinceGolden | None) -> str:
    """Where the bundle's report and this checkout's golden report tell otherwise, in words."""
    mine = (here and _told(here)) or []
    theirs = (told and _told(told)) or []
    first = next((one for one in [*mine, *theirs] if (one in mine) is not (one in theirs)), None)
    shown = f"; {first[1].upper()} {first[0]}: {first[2]} -> {first[3]}" if first else ""
    path = "" if here is None else here.path
    where = f", {'here' if first in mine else 'in the bundle'} alone" if first else ""
    return (
        f"golden report: the bundle's own, not {path} of this checkout: {len(theirs)} limits moved "
        f"by the bundle, {len(mine)} here{shown}{where}"
    )


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


def stale_here(side: CaptureReader, project: Project) -> str | None:
    """Why a capture of a bundle is no golden that the source here can use; None where it can.

    A golden is what has the digest of a golden of this checkout, whose own note counts, and what
    has a note beside it on the source that it is valid for.

    Args:
        side: From a bundle.
        project: The checkout.
    """
    for name, entry in project.targets.items():
        folder = project.folder(name) if entry.kind == "golden" else None
        if folder is None or not (folder / MANIFEST).is_file():
            continue
        if file_sha256(folder / MANIFEST) == side.digest:
            return stale_reason(name, folder)
    noted = (side.path / VERIFIED_NAME).is_file()
    return stale_reason(side.manifest.target, side.path) if noted else None
