"""The page of the fla KDA report: Markdown from the JSON record, no number of its own."""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["page"]

Record = Mapping[str, Any]
_SHOWN = 8
"""Most failing points that are spelled out."""


def page(report: Record) -> str:
    """The report as Markdown.

    Args:
        report: What ``fla-kda.json`` holds.
    """
    return "\n".join([*_head(report), *_table(report), *_each(report), ""])


def _head(report: Record) -> Iterator[str]:
    first = report["kernels"][0]["result"]
    made = first["provenance"]
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    yield "# KDA kernels under conformance"
    yield ""
    if made["device"] == "cpu":
        yield "**No kernel of fla ran here**: PyTorch stands in, to show what the report looks like."
        yield ""
    yield f"- machine: {made['hardware']} ({made['arch']}), driver {made['driver'] or 'none'}"
    yield f"- made: {made['created']}, in {report['seconds']:.0f} s"
    yield f"- packages: {versions}"
    yield f"- again: `{report['command']}`"
    yield "- contract: q, k, v and gate inputs bfloat16, b float32, states float32, 12 heads x 128;"
    yield "  q and k normalised, gate and beta made inside the kernel"
    yield ""


def _table(report: Record) -> Iterator[str]:
    yield "## Verdicts"
    yield ""
    yield "| kernel | contract | verdict | sweep points | failed | clauses broken | first call |"
    yield "|---|---|---|---|---|---|---|"
    for kernel in report["kernels"]:
        result = kernel["result"]
        broken = ", ".join(f"{name} ({n})" for name, n in result["clauses"].items() if n) or "none"
        cells = [
            f"`{result['implementation']}`",
            f"`{result['op']}`",
            result["verdict"],
            str(result["points"]),
            str(result["points_failed"]),
            broken,
            f"{kernel['first_call_seconds']:.1f} s",
        ]
        yield f"| {' | '.join(cells)} |"
    yield ""


def _each(report: Record) -> Iterator[str]:
    for kernel in report["kernels"]:
        result = kernel["result"]
        yield f"## `{result['implementation']}`"
        yield ""
        yield from _errors(kernel["measured"])
        yield from _failures(result)


def _errors(measured: list[Record]) -> Iterator[str]:
    if not measured:
        return
    yield "Error against the float64 oracle. `rounded` is the oracle itself stored in the dtype of"
    yield "the output; `of model` is the error over the rounding error that the contract expects"
    yield "(at most 2 passes)."
    yield ""
    yield "| point | output | rel-L2 | worst row | rounded | of model |"
    yield "|---|---|---|---|---|---|"
    for one in measured:
        numbers = [f"{one[name]:.2e}" for name in ("rel_l2", "worst_row", "rounded")]
        cells = [one["point"], one["output"], *numbers, f"{one['over_model']:.2f}"]
        yield f"| {' | '.join(cells)} |"
    yield ""


def _failures(result: Record) -> Iterator[str]:
    if not result["failed"]:
        yield f"No sweep point failed. {result['reason'] or ''}".rstrip()
        yield ""
        return
    if result["pattern"]:
        yield "Pattern: " + "; ".join(result["pattern"]) + "."
        yield ""
    smallest = result["smallest"]
    if smallest is not None:
        yield f"Smallest failing input: `{smallest['id']}`, {smallest['size']} bytes."
        yield from (f"- {breach['clause']}: {breach['what']}" for breach in smallest["breaches"])
        yield ""
    yield "Failing points:"
    for point in result["failed"][:_SHOWN]:
        breach = point["breaches"][0]
        yield f"- `{point['id']}` breaks {breach['clause']}: {breach['what']}"
    more = len(result["failed"]) - _SHOWN
    if more > 0:
        yield f"- and {more} more, in fla-kda.json"
    yield ""
