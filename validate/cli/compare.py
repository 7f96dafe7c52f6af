"""``validate compare``: judge one run against another."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from validate.cli.formats import ReportFormat
from validate.errors import InputError

__all__ = ["HELP", "compare"]

HELP = "Judge one target against another and write a report."


def compare(
    *,
    ref: Annotated[str, typer.Option(help="Target that is compared against.")],
    cand: Annotated[str, typer.Option(help="Target under judgement.")],
    suite: Annotated[
        Path | None, typer.Option(help="Suite file; the one of validate.toml if not given.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Areas or gates to judge, comma-separated.")
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option(help="Areas or gates to leave out, comma-separated.")
    ] = None,
    prompt: Annotated[
        list[str] | None, typer.Option(help="Ids of prompts that count, comma-separated.")
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            help="Lengths of prompts that count: 65- or 15-17; 64 is at most, of prompts and of "
            "sampled tokens a kind."
        ),
    ] = None,
    explain: Annotated[
        str | None,
        typer.Option(
            metavar="GATE",
            help="Follow a gate to its cause: layer, module, head, switch; all: print all that is "
            "known about each gate.",
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Make captures anew.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the pairing and stop; nothing is captured.")
    ] = False,
    claims: Annotated[
        Path | None, typer.Option(help="Figures of speed and cost to show beside the verdict.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for report.html, .md, .json and .xml.")
    ] = None,
    output: Annotated[
        ReportFormat, typer.Option("--format", help="What is printed.")
    ] = ReportFormat.CONSOLE,
) -> int:
    """Check every argument, gather the captures, compare, print and write the report."""
    from validate.cli.explaining import ALL, EXIT_CRASHED, say_crash
    from validate.cli.judge import Asked, judge
    from validate.cli.plan import print_plan
    from validate.cli.progress import show_progress
    from validate.cli.publish import fit_place, publish
    from validate.cli.unused import refuse_unused
    from validate.run.claims import attach_claims, load_claims

    asked = Asked(
        ref=ref,
        cand=cand,
        suite=suite,
        only=_split(only),
        skip=_split(skip),
        prompts=_split(prompt),
        tokens=tokens,
        fresh=fresh,
        explain=None if explain == ALL else explain,
    )
    if dry_run:
        refuse_unused(
            "--dry-run",
            {"--explain": explain, "--claims": claims, "--out": out},
            why="a plan judges nothing, so there is nothing to explain, to show claims beside or to "
            "write\n  do next: leave one of them out",
        )
        if output is ReportFormat.MARKDOWN:
            msg = (
                "--dry-run with --format markdown: a plan is printed as text or with --format json"
            )
            raise InputError(msg)
        return print_plan(asked, as_json=output is ReportFormat.JSON)
    fit_place(out)
    figures = None if claims is None else load_claims(claims)
    with show_progress() as progress:
        report = judge(asked, progress)
    if figures is not None:
        report = attach_claims(report, figures)
    code = publish(report, output=output, explain=explain == ALL, out=out)
    return EXIT_CRASHED if say_crash(report) else code


def _split(given: Sequence[str] | None) -> tuple[str, ...]:
    """Comma-separated and repeated words as one list; a word that is given empty stays empty."""
    return tuple(word.strip() for text in given or () for word in text.split(","))
