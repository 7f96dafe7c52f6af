"""``python -m validate.cli.false_alarms``: how often a suite alarms when nothing is wrong."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from validate.capture.places import fit_folder
from validate.cli.cast import gather
from validate.cli.progress import show_progress
from validate.cli.session import open_project, read_target
from validate.cli.tool import run_tool
from validate.errors import IncomparableError
from validate.report.alarms import render_alarms
from validate.run.alarm_report import FalseAlarms, count_alarms
from validate.run.false_alarms import clean_sets
from validate.suite import load_limits, load_suite

__all__ = ["SEED", "false_alarms", "main"]

SEED = 20260101


def false_alarms(*, ref: str, suite_file: Path | None, runs: int, seed: int) -> FalseAlarms:
    """Simulate clean runs of a suite on the repeats of a stored reference.

    Raises:
        ValidateError: The reference has no repeats, is stale, or cannot be read.
    """
    project = open_project()
    target = read_target(ref, project)
    suite = load_suite(suite_file or project.suite)
    limits = load_limits(project.root / suite.limits)
    with show_progress() as progress:
        cast = gather(target, target, project=project, suite=suite, fresh=False, progress=progress)
        if cast.blocked:
            raise IncomparableError("\n".join(cast.blocked))
        sets = clean_sets(
            ref=cast.ref,
            repeats=cast.repeats,
            suite=suite,
            limits=limits,
            oracle=cast.oracle,
            weights=cast.weights,
            config=cast.config,
            progress=lambda what: progress(0, 0, what),
        )
    words = ["python", "-m", "validate.cli.false_alarms", "--ref", ref, "--suite", suite.path]
    words += ["--runs", str(runs), "--seed", str(seed)]
    return count_alarms(sets, limits, runs=runs, seed=seed, command=shlex.join(words))


def main(
    *,
    ref: Annotated[str, typer.Option(help="Stored capture with at least four repeats.")] = "cuda",
    suite: Annotated[
        Path | None, typer.Option(help="Suite file; the one of validate.toml if not given.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Simulated clean runs of each kind.")] = 2000,
    seed: Annotated[int, typer.Option(help="Of the random numbers.")] = SEED,
    out: Annotated[
        Path | None, typer.Option(help="Folder for false-alarms.json and false-alarms.md.")
    ] = None,
) -> None:
    """Count, print, and exit 1 where there are more alarms than alpha allows."""
    fit_folder("--out", out, files=("false-alarms.json", "false-alarms.md"))
    found = false_alarms(ref=ref, suite_file=suite, runs=runs, seed=seed)
    text = render_alarms(found)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "false-alarms.json").write_text(found.model_dump_json(indent=1) + "\n", "utf-8")
        (out / "false-alarms.md").write_text(text, "utf-8")
    print(text)
    raise typer.Exit(int(max(found.clean.alarms, found.at_limit.alarms) > found.allowed))


if __name__ == "__main__":
    run_tool(main)
