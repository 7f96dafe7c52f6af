"""A conformance result as text for a terminal and as Markdown; numbers are worded, none computed."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from validate.errors import InputError
from validate.report.wording import clean
from validate.schema.conformance import BreachReport, ConformanceResult
from validate.schema.verdict import Outcome

__all__ = ["conformance_console", "conformance_markdown", "write_conformance"]

SHOWN = 5
"""Failed points that are told; the rest are counted."""
WRONG = 8
"""Coordinates of an axis that are told; the rest are counted."""


def conformance_console(result: ConformanceResult) -> str:
    """Verdict, what failed, the pattern, the smallest failing input, what did not run."""
    return clean_lines(_lines(result))


def conformance_markdown(result: ConformanceResult) -> str:
    """The same as a page, with every clause and every failed point."""
    lines = [f"# {result.verdict.value}: `{result.implementation}` as `{result.op}`", ""]
    lines += [f"- {line}" for line in _header(result)]
    lines += ["", "| clause | points that break it |", "|---|---|"]
    lines += [f"| {_cell(name)} | {count} |" for name, count in result.clauses.items()]
    if result.failed:
        lines += ["", "## Failed points", ""]
        lines += [f"Pattern: {text}." for text in result.pattern] + [""] * bool(result.pattern)
        lines += ["| point | clause | finding |", "|---|---|---|"]
        lines += [
            f"| `{_cell(point.id)}` | {_cell(breach.clause)} | {_cell(_finding(breach))} |"
            for point in result.failed
            for breach in point.breaches
        ]
    if result.smallest is not None:
        lines += ["", "## Smallest failing input", ""]
        lines += [f"- {line.strip()}" for line in _smallest(result)]
    lines += ["", "## Unrun", "", *(f"- {one.what}: {one.why}" for one in result.unrun)]
    return clean_lines(lines) + "\n"


def write_conformance(result: ConformanceResult, folder: Path) -> None:
    """Write ``conformance.json`` and ``conformance.md``; each appears whole or not at all.

    Raises:
        InputError: The folder cannot be written.
    """
    texts = {
        "conformance.json": result.model_dump_json(indent=1) + "\n",
        "conformance.md": conformance_markdown(result),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            partial = folder / f".{name}.partial"
            partial.write_text(text, "utf-8")
            partial.replace(folder / name)
    except OSError as error:
        msg = f"{folder}: the result cannot be written ({error.strerror}); next: --out DIR"
        raise InputError(msg) from error


def clean_lines(lines: Iterable[str]) -> str:
    """Lines joined, each without control characters: what an implementation says is data."""
    return "\n".join(clean(line) for line in lines)


def _lines(result: ConformanceResult) -> Iterator[str]:
    yield f"{result.verdict.value} {result.op}: {result.implementation}{_setting_words(result)}"
    for line in _header(result)[2:]:
        yield f"  {line}"
    for text in result.pattern:
        yield f"  pattern: {text}"
    yield from _smallest(result)
    if result.failed and result.effort != "case":
        yield f"  failed points ({result.points_failed} of {result.points}):"
    for point in result.failed[: SHOWN if result.effort != "case" else 0]:
        for breach in point.breaches:
            yield f"    {point.id}: {breach.clause}: {_finding(breach)}"
    if result.effort != "case" and len(result.failed) > SHOWN:
        yield f"    and {len(result.failed) - SHOWN} more (--format json)"
    for one in result.unrun:
        yield f"  unrun  : {one.what}: {one.why}"
    if result.rerun is not None:
        yield f"  rerun  : {result.rerun}"


def _header(result: ConformanceResult) -> list[str]:
    """What was judged, where, and what came of it."""
    made = result.provenance
    place = f"{result.device}: {made.hardware} {made.arch}".rstrip()
    if not result.points:
        place = f"{result.device}: nothing ran; asked on {made.hardware} {made.arch}".rstrip()
    driver = "" if made.driver is None else f", driver {made.driver}"
    torch = made.versions.get("torch", "")
    stands = "" if result.emulates is None else f" (emulates {result.emulates})"
    limit = "" if result.time_limit is None else f", at most {result.time_limit:g} s a call"
    isolated = "in a process of its own" if result.isolated else "in this process"
    lines = [
        f"contract: {result.op}, {result.title}{_setting_words(result)}",
        f"implementation: {result.implementation}{stands}",
        f"ran    : {_ran(result)} in {result.seconds:.3g} s, {isolated}{limit}",
        f"device : {place}{driver}, torch {torch}, {made.created}",
    ]
    if result.reason is not None:
        lines.append(f"reason : {result.reason}{_counts(result.clauses)}")
    return lines


def _ran(result: ConformanceResult) -> str:
    if result.effort == "case":
        return "one saved case"
    return f"{result.points} points of the {result.effort} sweep"


def _counts(clauses: Mapping[str, int]) -> str:
    broken = {name: count for name, count in clauses.items() if count}
    if len(broken) < 2:  # noqa: PLR2004  one clause: the reason says its count
        return ""
    return f" ({', '.join(f'{name} at {count}' for name, count in broken.items())})"


def _setting_words(result: ConformanceResult) -> str:
    words = " ".join(f"{key}={value}" for key, value in result.settings.items())
    return f" [{words}]" if words else ""


def _smallest(result: ConformanceResult) -> Iterator[str]:
    found = result.smallest
    if found is None or result.verdict is not Outcome.FAIL:
        return
    tried = f", the smallest of {found.tried} tried" if found.tried else ""
    yield f"  smallest failing input: {_short(found.id)} ({found.size} bytes{tried})"
    for breach in found.breaches:
        yield f"    {breach.clause}: {_finding(breach)}"
        wrong = "; ".join(f"{axis} {_some(values)}" for axis, values in breach.wrong.items())
        if wrong:
            yield f"    wrong: {wrong}"
    if found.folder is not None:
        yield f"    saved: {found.folder}"
    if found.rerun is not None:
        yield f"    rerun: {found.rerun}"


def _short(name: str) -> str:
    """The sweep point that a shrunk case began as, and the last step that made it smaller."""
    first, *steps = name.split("/")
    return name if len(steps) < 2 else f"{first}/…/{steps[-1]}"  # noqa: PLR2004


def _finding(breach: BreachReport) -> str:
    ratio = "" if breach.ratio is None else f" ({breach.ratio:.4g} times the limit)"
    return f"{breach.what}{ratio}"


def _some(values: tuple[int, ...]) -> str:
    more = f" and {len(values) - WRONG} more" if len(values) > WRONG else ""
    return ", ".join(str(value) for value in values[:WRONG]) + more


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
