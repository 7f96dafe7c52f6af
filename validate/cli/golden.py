"""``validate golden``: make, re-check and calibrate the stored captures."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["HELP", "app"]

HELP = "Record, verify and calibrate the stored captures."

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Names = Annotated[
    list[str] | None, typer.Argument(help="Stored captures of validate.toml; all if none is given.")
]


@app.command("record", help="Record stored captures anew by their recipes.")
def record(
    *,
    names: Names = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="cpu, cuda or rocm instead of the recipe's; cpu gives emulated evidence."
        ),
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="Prompt set; the one of the default suite if not given.")
    ] = None,
    tasks: Annotated[
        Path | None,
        typer.Option(help="Folder of lm-eval tasks to run as well (not for the oracle)."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Take up an interrupted recording.")
    ] = False,
) -> int:
    """Record each golden beside the old one and then put it in its place."""
    from validate.cli.goldens import record_goldens
    from validate.cli.progress import show_progress

    with show_progress() as progress:
        folders = record_goldens(
            tuple(names or ()),
            device=device,
            prompts=prompts,
            resume=resume,
            tasks=tasks,
            progress=progress,
        )
    for folder in folders:
        print(folder)
    return 0


@app.command("verify", help="Run a sample again; within limits, accept this source.")
def verify(
    *,
    names: Names = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or rocm; by default the recipe's or else cpu.")
    ] = None,
) -> int:
    """Print one line a golden; exit 1 when one is beyond its limits."""
    from validate.cli.progress import show_progress
    from validate.cli.verify import verify_goldens

    with show_progress() as progress:
        results = verify_goldens(tuple(names or ()), device=device, progress=progress)
    for result in results:
        print(result.line)
    return 0 if all(result.ok for result in results) else 1


@app.command("calibrate", help="Derive the limits from the reference alone.")
def calibrate(
    *,
    ref: Annotated[str, typer.Option(help="Stored capture whose repeats give the noise.")] = "cuda",
    faults: Annotated[
        bool, typer.Option("--faults", help="Also measure every planted fault, beside the limits.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="File to write; the suite's limits file if not given.")
    ] = None,
) -> int:
    """Write the limits file and print where it lies."""
    from validate.cli.calibrate import calibrate_limits
    from validate.cli.progress import show_progress

    with show_progress() as progress:
        path = calibrate_limits(ref, faults=faults, out=out, progress=progress)
    print(path)
    return 0
