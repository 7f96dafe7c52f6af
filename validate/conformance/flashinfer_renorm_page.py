"""The page of the flashinfer renorm report: Markdown from the JSON record, no number of its own."""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["page"]

Record = Mapping[str, Any]
_SHOWN = 12
"""Most failing points of one result that are spelled out."""
_KERNEL = "flashinfer:renorm"


def page(report: Record) -> str:
    """The report as Markdown.

    Args:
        report: What ``flashinfer-renorm.json`` holds.
    """
    parts = (_head(report), _table(report), _costs(report), _findings(report), _not_run(report))
    return "\n".join([*(line for part in parts for line in part), ""])


def _head(report: Record) -> Iterator[str]:
    made = next(
        (entry["results"][0]["provenance"] for entry in report["entries"] if entry["results"]), None
    )
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    yield "# flashinfer's renorm kernels under conformance"
    yield ""
    if report["device"] == "cpu":
        yield "**No kernel of flashinfer ran here**: PyTorch on a CPU, to show what the report looks like."
        yield ""
    if made is not None:
        yield f"- machine: {made['hardware']} ({made['arch']}), driver {made['driver'] or 'none'}"
        yield f"- made: {made['created']}, in {report['seconds']:.0f} s"
    yield f"- packages: {versions}"
    if report["compile_seconds"] is not None:
        yield f"- flashinfer's first call, which compiles: {report['compile_seconds']:.0f} s"
    yield f"- again: `{report['command']}`"
    yield ""


def _table(report: Record) -> Iterator[str]:
    yield "## Verdicts"
    yield ""
    yield "Each was judged under the settings that it declares of itself, and under others where they are named."
    yield ""
    yield "| contract | implementation | settings | verdict | points | failed | clauses broken |"
    yield "|---|---|---|---|---|---|---|"
    for entry in report["entries"]:
        for number, result in enumerate(entry["results"]):
            settings = " ".join(f"{key}={value}" for key, value in result["settings"].items())
            broken = {clause: count for clause, count in result["clauses"].items() if count}
            told = ", ".join(f"{clause} ({count})" for clause, count in broken.items()) or "none"
            rows = " (damaged rows)" if number else ""
            yield (
                f"| {entry['op']} | {entry['implementation']}{rows} | {settings} | "
                f"{result['verdict']} | {result['points']} | {result['points_failed']} | {told} |"
            )
    yield ""


def _costs(report: Record) -> Iterator[str]:
    costs = report["costs"]
    yield "## Cost"
    yield ""
    yield (
        f"One call at [{costs['rows']}, {costs['vocab']}] float32, k {costs['top_k']}, "
        f"p {costs['top_p']}, median of {costs['rounds']} rounds in which each has its turn, "
        "in this run and on this machine. Ratios are what to read."
    )
    yield ""
    yield "| contract | implementation | ms | of flashinfer's |"
    yield "|---|---|---|---|"
    for op, times in costs["ops"].items():
        kernel = times.get(_KERNEL)
        for name, milliseconds in sorted(times.items(), key=lambda item: item[1]):
            ratio = f"{milliseconds / kernel:.2f}x" if kernel else "not run"
            yield f"| {op} | {name} | {milliseconds:.3f} | {ratio} |"
    yield ""


def _findings(report: Record) -> Iterator[str]:
    yield "## What failed"
    yield ""
    for entry in report["entries"]:
        for number, result in enumerate(entry["results"]):
            if result["points_failed"]:
                yield from _finding(entry, result, damaged=bool(number))


def _finding(entry: Record, result: Record, *, damaged: bool) -> Iterator[str]:
    asked = " ".join(f"{key}={value}" for key, value in entry["asked"].items())
    rows = ", damaged rows" if damaged else ""
    yield f"### {entry['op']}: {entry['implementation']}{f' with {asked}' if asked else ''}{rows}"
    yield ""
    if entry["because"]:
        yield f"Asked because: {entry['because']}"
        yield ""
    yield f"{result['points_failed']} of {result['points']} points failed."
    for words in result["pattern"]:
        yield f"- pattern: {words}"
    smallest = result["smallest"]
    if smallest is not None:
        yield f"- smallest failing input: {smallest['id']} ({smallest['size']} bytes)"
        for breach in smallest["breaches"]:
            yield f"  - {breach['clause']}: {breach['what']}"
    for point in result["failed"][:_SHOWN]:
        for breach in point["breaches"]:
            yield f"- {point['id']}: {breach['clause']}: {breach['what']}"
    if len(result["failed"]) > _SHOWN:
        yield f"- and {len(result['failed']) - _SHOWN} more points in the JSON record"
    yield ""


def _not_run(report: Record) -> Iterator[str]:
    yield "## Not run"
    yield ""
    yield "- ROCm: no ROCm device was here; the Triton kernels are written for it too and have not run there"
    for entry in report["entries"]:
        if entry["not_run"] is not None:
            yield f"- {entry['op']} {entry['implementation']}: {entry['not_run']}"
