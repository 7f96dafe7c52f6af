"""``validate selftest``: planted faults in, what each gate said of them out."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from validate.cli.formats import ReportFormat
from validate.errors import InputError

if TYPE_CHECKING:
    from validate.schema.selftest import Selftest

__all__ = ["HELP", "selftest"]

HELP = "Plant every fault and every control and judge each."
TABLE, PAGE = "selftest.json", "selftest.md"


def selftest(
    *,
    area: Annotated[
        str, typer.Option(help="Area of gates, model, pairing, conformance, or all.")
    ] = "all",
    ref: Annotated[str, typer.Option(help="Target that is compared against.")] = "cuda",
    suite: Annotated[
        Path | None, typer.Option(help="Suite file; the one of validate.toml if not given.")
    ] = None,
    only_fault: Annotated[
        list[str] | None, typer.Option(help="Faults and controls to judge, comma-separated.")
    ] = None,
    prompt: Annotated[
        list[str] | None, typer.Option(help="Ids of prompts that count, comma-separated.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A handful of every kind.")] = False,
    clean: Annotated[
        int | None,
        typer.Option(min=1, help="Judge so many clean candidates instead; count alarms."),
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="How many run at a time.")] = 2,
    time_limit: Annotated[
        float | None, typer.Option(min=1, help="Seconds; what is left then is taken up later.")
    ] = None,
    rows: Annotated[
        Path | None, typer.Option(help="Folder that keeps rows; a new one judges anew.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help=f"Folder for {TABLE} and {PAGE}.")] = None,
    output: Annotated[
        ReportFormat, typer.Option("--format", help="What is printed.")
    ] = ReportFormat.CONSOLE,
) -> int:
    """Print the table; 0 when every fault and control does what its record says, else 1."""
    from validate.capture.places import fit_folder
    from validate.cli.progress import show_progress
    from validate.cli.session import open_project
    from validate.report.area_selftest import area_selftest_console, area_selftest_markdown
    from validate.selftest.area import ALL, area_selftest, held, planned, summed_up
    from validate.selftest.clean import clean_selftest
    from validate.selftest.stage import Bench
    from validate.suite import load_suite

    ids = _split(only_fault)
    if clean and (ids or quick or area != ALL):
        msg = (
            "--clean judges candidates without a fault; leave out --only-fault, --quick and --area"
        )
        raise InputError(msg)
    if ids and quick:
        msg = "--only-fault with --quick: both choose what is judged; leave one of them out"
        raise InputError(msg)
    fit_folder("--out", out, files=(TABLE, PAGE))
    fit_folder("--rows", rows)
    planned(area, ids=ids, quick=quick)
    project = open_project()
    bench = Bench(
        area=area,
        ref=ref,
        project=project.root / "validate.toml",
        suite=suite or project.suite,
        prompts=_split(prompt),
        rows=rows,
    )
    _check_prompts(bench.prompts, project.root / load_suite(bench.suite).prompts)
    earlier = None if out is None or ids or quick or area != ALL else _read(out / TABLE)
    with show_progress() as progress:
        if clean:
            found = clean_selftest(
                bench, clean, processes=processes, seconds=time_limit, progress=progress
            )
            name = load_suite(bench.suite).name
            bare = summed_up((), area=area, suite=name, gates=(), seconds=0.0)
            result = (earlier or bare).model_copy(update={"clean": found})
            result = result.model_copy(update={"held": held(result)})
        else:
            result = area_selftest(
                bench,
                ids=ids,
                processes=processes,
                seconds=time_limit,
                quick=quick,
                clean=None if earlier is None else earlier.clean,
                progress=progress,
            )
    as_json, page = result.model_dump_json(indent=1), area_selftest_markdown(result)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / TABLE).write_text(as_json + "\n", "utf-8")
        (out / PAGE).write_text(page, "utf-8")
    printed = {ReportFormat.JSON: as_json, ReportFormat.MARKDOWN: page.rstrip("\n")}
    print(printed.get(output) or area_selftest_console(result))
    return 0 if result.held else 1


def _check_prompts(names: tuple[str, ...], prompt_set: Path) -> None:
    """Refuse prompts that the suite's prompt set does not hold, before anything is captured."""
    from validate.capture.targets import did_you_mean
    from validate.suite import load_prompts

    known = [prompt.id for prompt in load_prompts(prompt_set)] if names else []
    for name in names:
        if name not in known:
            msg = (
                f"--prompt {name}: the suite's prompt set has no such prompt"
                f"{did_you_mean(name, known)}"
            )
            raise InputError(msg)


def _read(path: Path) -> "Selftest | None":
    """The table that an earlier selftest left, if it is of this version's form and adds up."""
    from pydantic import ValidationError

    from validate.schema.selftest import Selftest, table_contradiction

    if not path.is_file():
        return None
    try:
        table = Selftest.model_validate_json(path.read_bytes())
    except ValidationError:
        print(f"{path}: no table of this version; it is written anew", file=sys.stderr)
        return None
    why = table_contradiction(table)
    if why is not None:
        print(f"{path}: {why}; it is written anew", file=sys.stderr)
    return table if why is None else None


def _split(given: list[str] | None) -> tuple[str, ...]:
    return tuple(word.strip() for text in given or () for word in text.split(","))
