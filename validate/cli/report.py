"""``validate report``: render a saved run again, compare two, bundle one, check a bundle."""

from pathlib import Path
from typing import Annotated

import typer

from validate.cli.formats import ReportFormat

__all__ = ["HELP", "report"]

HELP = "Render a saved run again, tell what moved between two, bundle one, or check a bundle."


def report(
    *,
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="Folder of a report, or its report.json; the newest below reports/ if not given.",
        ),
    ] = None,
    diff: Annotated[
        bool, typer.Option("--diff", help="Tell what moved between two runs: OLD NEW.")
    ] = False,
    bundle: Annotated[
        Path | None, typer.Option(help="Zip file for the run and all its verdict rests on.")
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(help="Zip file that is verified, and its verdict computed again."),
    ] = None,
    own_suite: Annotated[
        bool,
        typer.Option(
            "--own-suite",
            help="With --check: take a suite and limits that this checkout does not have on their word.",
        ),
    ] = False,
    claims: Annotated[
        Path | None, typer.Option(help="Figures of speed and cost to show beside the verdict.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the files; that of the run if not given.")
    ] = None,
    output: Annotated[
        ReportFormat, typer.Option("--format", help="What is printed.")
    ] = ReportFormat.CONSOLE,
) -> int:
    """Do the one thing that is asked for."""
    from validate.cli import report_bundle, report_saved
    from validate.errors import InputError

    asked = [name for name, given in _things(diff, bundle, check, claims, out).items() if given]
    for alone, allowed in (("--check", ()), ("--diff", ()), ("--bundle", ("--claims",))):
        others = [name for name in asked if name != alone and name not in allowed]
        if alone in asked and others:
            msg = (
                f"{alone} and {' and '.join(others)} are asked for at once; ask one after the other"
            )
            raise InputError(msg)
    if bundle is not None and output is not ReportFormat.CONSOLE:
        msg = (
            f"--bundle with --format {output.value}: a bundle is written, no report is printed\n"
            f"  do next: leave --format out, then validate report --check {bundle} --format "
            f"{output.value}"
        )
        raise InputError(msg)
    if own_suite and check is None:
        msg = "--own-suite says whose suite a bundle is checked by; it goes with --check FILE"
        raise InputError(msg)
    if check is not None:
        return report_bundle.check(check, runs or [], own_suite=own_suite, output=output)
    if diff:
        return report_saved.diff(runs or [], output=output)
    if bundle is not None:
        return report_bundle.bundle(runs or [], bundle, claims=claims)
    return report_saved.render(runs or [], output=output, out=out, claims=claims)


def _things(
    diff: bool,  # noqa: FBT001  five options in the order of the command line
    bundle: Path | None,
    check: Path | None,
    claims: Path | None,
    out: Path | None,
) -> dict[str, object]:
    return {"--diff": diff, "--bundle": bundle, "--check": check, "--claims": claims, "--out": out}
