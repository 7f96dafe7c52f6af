"""``validate power``: what a suite can detect, before any candidate is looked at."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from validate.cli.formats import ReportFormat

if TYPE_CHECKING:
    from validate.capture.resolve import Progress
    from validate.run.power_record import PowerReport

__all__ = ["HELP", "power"]

HELP = "Say what each gate of a suite can detect, from ref and its repeats alone."


def power(
    *,
    ref: Annotated[str, typer.Option(help="Stored capture with repeats: the noise.")],
    suite: Annotated[
        Path | None, typer.Option(help="Suite file; the one of validate.toml if not given.")
    ] = None,
    output: Annotated[
        ReportFormat, typer.Option("--format", help="What is printed.")
    ] = ReportFormat.CONSOLE,
) -> int:
    """Check the arguments, compute and print; 0 whatever the power is."""
    from validate.cli.power_text import as_markdown, as_text
    from validate.cli.progress import show_progress

    with show_progress() as progress:
        found = _power(ref, suite, progress)
    if output is ReportFormat.JSON:
        print(found.model_dump_json(indent=1))
    else:
        print(as_markdown(found) if output is ReportFormat.MARKDOWN else as_text(found))
    return 0


def _power(ref: str, suite_file: Path | None, progress: "Progress") -> "PowerReport":
    import shlex

    from validate.cli.cast import gather
    from validate.cli.session import open_project, read_target
    from validate.errors import IncomparableError, InputError
    from validate.run.power import power as computed
    from validate.suite import load_limits, load_suite

    project = open_project()
    target = read_target(ref, project)
    suite = load_suite(suite_file or project.suite)
    limits = load_limits(project.root / suite.limits)
    if target.folder is None:
        msg = (
            f"--ref {ref}: it runs here and has no repeats; power is computed from a stored capture\n"
            "  do next: name one of those that `validate list targets` calls golden"
        )
        raise InputError(msg)
    cast = gather(target, target, project=project, suite=suite, fresh=False, progress=progress)
    if cast.blocked:
        raise IncomparableError("\n".join(cast.blocked))
    words = ["validate", "power", "--suite", suite.path, "--ref", ref]
    return computed(
        ref=cast.ref,
        suite=suite,
        limits=limits,
        repeats=cast.repeats,
        oracle=cast.oracle,
        weights=cast.weights,
        config=cast.config,
        command=shlex.join(words),
        progress=progress,
    )
