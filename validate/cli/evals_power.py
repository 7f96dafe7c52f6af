"""``python -m validate.cli.evals_power``: rules for eval scores on the same simulated pairs."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from validate.capture.places import fit_folder
from validate.cli.cast import EVALS_SUITE
from validate.cli.progress import show_progress
from validate.cli.session import open_project
from validate.cli.tool import run_tool
from validate.report.evals_power import render_evals_power
from validate.run.evals_power import simulate_evals_power
from validate.suite import load_limits, load_suite

__all__ = ["SEED", "main"]

SEED = 20260107


def main(
    *,
    suite: Annotated[Path | None, typer.Option(help="Suite whose gate is asked.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Pairs of runs a row.")] = 4000,
    seed: Annotated[int, typer.Option(help="Of the random numbers.")] = SEED,
    out: Annotated[
        Path | None, typer.Option(help="Folder for evals-power.json and evals-power.md.")
    ] = None,
) -> None:
    """Simulate, print and write the table."""
    fit_folder("--out", out, files=("evals-power.json", "evals-power.md"))
    project = open_project()
    judged = load_suite(suite or project.root / EVALS_SUITE)
    words = ["python", "-m", "validate.cli.evals_power", "--runs", str(runs), "--seed", str(seed)]
    with show_progress() as progress:
        found = simulate_evals_power(
            judged,
            load_limits(project.root / judged.limits),
            runs=runs,
            seed=seed,
            command=shlex.join(words),
            told=progress,
        )
    text = render_evals_power(found)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "evals-power.json").write_text(found.model_dump_json(indent=1) + "\n", "utf-8")
        (out / "evals-power.md").write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    run_tool(main)
