"""``python -m validate.cli.spec_alarms``: the speculative gates on samplers of known law."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from validate.capture.places import fit_folder
from validate.cli.progress import show_progress
from validate.cli.session import open_project
from validate.cli.tool import run_tool
from validate.report.spec_alarms import render_spec_alarms
from validate.run.spec_alarms import count_spec_alarms
from validate.suite import load_suite

__all__ = ["SEED", "main"]

SEED = 20260106
SIZES = (4, 16, 64, 256)


def main(
    *,
    suite: Annotated[
        Path | None, typer.Option(help="Suite file; the one of validate.toml if not given.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Clean runs of each right sampler.")] = 2000,
    power_runs: Annotated[int, typer.Option(min=1, help="Runs of each wrong one, a size.")] = 40,
    streams: Annotated[int, typer.Option(min=1, help="Streams of a clean run, a kind.")] = 16,
    seed: Annotated[int, typer.Option(help="Of the random numbers.")] = SEED,
    processes: Annotated[int, typer.Option(min=1, help="Samplers at a time.")] = 2,
    out: Annotated[
        Path | None, typer.Option(help="Folder for speculative.json and speculative.md.")
    ] = None,
) -> None:
    """Count, print, and exit 1 where a right sampler alarms more often than its share of alpha."""
    fit_folder("--out", out, files=("speculative.json", "speculative.md"))
    project = open_project()
    judged = load_suite(suite or project.suite)
    words = ["python", "-m", "validate.cli.spec_alarms", "--suite", judged.path]
    words += ["--runs", str(runs), "--power-runs", str(power_runs)]
    words += ["--streams", str(streams), "--seed", str(seed)]
    with show_progress() as progress:
        found = count_spec_alarms(
            judged,
            runs=runs,
            streams=streams,
            power_runs=power_runs,
            power_streams=SIZES,
            seed=seed,
            command=shlex.join(words),
            told=progress,
            processes=processes,
        )
    text = render_spec_alarms(found)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "speculative.json").write_text(found.model_dump_json(indent=1) + "\n", "utf-8")
        (out / "speculative.md").write_text(text, "utf-8")
    print(text)
    raise typer.Exit(int(any(one.alarms > one.allowed for one in found.clean)))


if __name__ == "__main__":
    run_tool(main)
