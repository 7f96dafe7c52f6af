"""``validate selftest``: planted faults in, what each gate said of them out."""

from pathlib import Path
from typing import Annotated

import typer

from validate.cli.formats import ReportFormat

__all__ = ["HELP", "selftest"]

HELP = "Plant every fault and control of an area and judge each."


def selftest(
    *,
    area: Annotated[str, typer.Option(help="Area of gates: speculative.")],
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
    processes: Annotated[int, typer.Option(min=1, help="How many run at a time.")] = 2,
    fresh: Annotated[bool, typer.Option("--fresh", help="Judge rows anew.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for selftest.json and .md.")] = None,
    output: Annotated[
        ReportFormat, typer.Option("--format", help="What is printed.")
    ] = ReportFormat.CONSOLE,
) -> int:
    """Print the table; 0 when every fault and control does what its record says, else 1."""
    from validate.cli.progress import show_progress
    from validate.cli.session import open_project
    from validate.report.area_selftest import area_selftest_console, area_selftest_markdown
    from validate.selftest.area import area_selftest
    from validate.selftest.stage import Bench

    project = open_project()
    bench = Bench(
        area=area,
        ref=ref,
        project=project.root / "validate.toml",
        suite=suite or project.suite,
        prompts=_split(prompt),
    )
    with show_progress() as progress:
        result = area_selftest(
            bench, ids=_split(only_fault), processes=processes, fresh=fresh, progress=progress
        )
    as_json, page = result.model_dump_json(indent=1), area_selftest_markdown(result)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "selftest.json").write_text(as_json + "\n", "utf-8")
        (out / "selftest.md").write_text(page, "utf-8")
    printed = {ReportFormat.JSON: as_json, ReportFormat.MARKDOWN: page.rstrip("\n")}
    print(printed.get(output) or area_selftest_console(result))
    return 0 if result.held else 1


def _split(given: list[str] | None) -> tuple[str, ...]:
    return tuple(word.strip() for text in given or () for word in text.split(","))
