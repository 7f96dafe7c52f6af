"""``validate conformance``: judge a kernel against the contract of an operation."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from validate.cli.formats import ConformanceFormat, Device

if TYPE_CHECKING:
    from validate.schema.conformance import ConformanceResult

__all__ = ["HELP", "conformance"]

HELP = "Judge a kernel against the contract of an operation."
TIME_LIMIT = 30.0


def conformance(
    *,
    op: Annotated[str | None, typer.Option(help="Operation whose contract is judged.")] = None,
    impl: Annotated[
        str | None,
        typer.Option(help="A name that `validate list engines` tells, else MODULE:FUNCTION."),
    ] = None,
    contract: Annotated[
        list[str] | None,
        typer.Option(help="KEY=VALUE of the contract, e.g. ties=all; may be repeated."),
    ] = None,
    device: Annotated[Device | None, typer.Option(help="Where it runs; cpu if not given.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Run the whole cross of axes.")] = False,
    time_limit: Annotated[
        float | None,
        typer.Option(
            help=f"Seconds that one call may take; {TIME_LIMIT:g} if not given.",
            min=0.001,
            max=86_400.0,
        ),
    ] = None,
    case: Annotated[
        Path | None, typer.Option(help="Run one saved failing input in place of the sweep.")
    ] = None,
    selftest: Annotated[
        bool,
        typer.Option("--selftest", help="Plant every operation fault and say what catches it."),
    ] = False,
    out: Annotated[
        str | None,
        typer.Option(help="Folder for the result and the smallest failing input.", metavar="PATH"),
    ] = None,
    output: Annotated[
        ConformanceFormat, typer.Option("--format", help="What is printed.")
    ] = ConformanceFormat.TABLE,
) -> int:
    """Check the arguments, run the sweep, print; 0 PASS, 1 FAIL, 3 when nothing ran."""
    if selftest:
        from validate.cli.conformance_selftest import run_selftest
        from validate.cli.unused import refuse_unused

        refuse_unused(
            "--selftest",
            {
                "--impl": impl,
                "--contract": contract,
                "--device": device,
                "--full": full,
                "--time-limit": time_limit,
                "--case": case,
                "--out": out,
            },
            why="it judges planted faults, no implementation of yours\n  do next: leave one of them "
            "out; --op and --format go with --selftest",
        )
        return run_selftest(op=op, output=output)
    from validate.cli.conformance_run import Asked, judge, out_folder
    from validate.cli.progress import show_progress

    asked = Asked(
        op=op,
        impl=impl,
        contract=tuple(contract or ()),
        device=None if device is None else device.value,
        full=full,
        time_limit=TIME_LIMIT if time_limit is None else time_limit,
        case=case,
        out=out_folder(out),
    )
    with show_progress() as progress:
        result = judge(asked, progress)
    print(_text(result, output))
    return _EXIT[result.verdict.value]


_EXIT = {"PASS": 0, "FAIL": 1, "INCONCLUSIVE": 3}


def _text(result: "ConformanceResult", output: ConformanceFormat) -> str:
    from validate.report.conformance import conformance_console, conformance_markdown

    if output is ConformanceFormat.JSON:
        return result.model_dump_json(indent=1)
    if output is ConformanceFormat.MARKDOWN:
        return conformance_markdown(result)
    return conformance_console(result)
