"""The program ``validate``: its commands, and how errors become exit codes.

Nothing heavy is imported here, so that ``validate --help`` answers at once;
each command imports what it needs when it runs.
"""

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
import typer.core

import validate
from validate.cli import (
    capture,
    compare,
    conformance,
    doctor,
    eval as evals,
    golden,
    listing,
    power,
    report,
    selftest,
)
from validate.errors import InputError, ValidateError

__all__ = ["EXIT_BUG", "EXIT_INTERRUPTED", "app", "main"]

EXIT_BUG = 70
EXIT_INTERRUPTED = 130
PLACES = (
    *("--out", "--rows", "--bundle", "--tasks", "--suite", "--claims", "--check", "--case"),
    "--prompts",
)
"""Options that name a file or a folder."""
KEPT = {"selftest": "run the same command again: rows that were judged are kept"}
"""What a command that was interrupted keeps; a recording says it itself."""
TRACEBACK = "--traceback"
PLAIN = 1_000
"""Characters of a line that is surely short enough to be told whole."""


class _InterruptedError(Exception):
    """An interruption that carries what is to be told, which the parser would drop."""


class _Commands(typer.core.TyperGroup):
    """The parser's group of commands, but an interruption keeps its text."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that ``ctx`` holds.

        Raises:
            _InterruptedError: In place of an interruption with a text.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            if not error.args:
                raise
            raise _InterruptedError(*error.args) from error


app = typer.Typer(
    name="validate",
    cls=_Commands,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)


def _print_version(value: bool) -> bool:  # noqa: FBT001  the parser calls it so
    if value:
        print(f"validate {validate.__version__}")
        raise typer.Exit
    return value


@app.callback(
    help="Does the optimized serving path still compute the same model as the reference?",
    epilog="Exit codes: 0 PASS, 1 FAIL, 2 usage, 3 INCONCLUSIVE, 4 INCOMPARABLE or damaged "
    "capture, 70 a bug, 130 interrupted.",
)
def _root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    traceback: Annotated[
        bool,
        typer.Option(TRACEBACK, help="Show the traceback of an error (also VALIDATE_DEBUG=1)."),
    ] = False,
) -> None:
    """Hold the options of the program itself."""


app.command("compare", help=compare.HELP)(compare.compare)
app.command("capture", help=capture.HELP)(capture.capture)
app.command("eval", help=evals.HELP)(evals.evaluate)
app.command("conformance", help=conformance.HELP)(conformance.conformance)
app.add_typer(golden.app, name="golden", help=golden.HELP)
app.command("power", help=power.HELP)(power.power)
app.command("report", help=report.HELP)(report.report)
app.command("selftest", help=selftest.HELP)(selftest.selftest)
app.command("list", help=listing.HELP)(listing.list_things)
app.command("doctor", help=doctor.HELP)(doctor.doctor)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; nothing escapes.

    Args:
        argv: Arguments without the program's name; those of the process when None.

    Returns:
        0 PASS, 1 FAIL, 2 usage, 3 INCONCLUSIVE, 4 INCOMPARABLE or damaged
        capture, 70 any uncaught error, 130 interrupted.
    """
    # Before torch loads OpenMP: threads that spin at a barrier while another process holds
    # their core made captures 50 times slower on two busy cores; no number depends on it.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # NumPy's BLAS has threads of its own, which spin: the small products of a comparison took
    # 47 s of processor time on two cores where one thread takes 8. It stands in every manifest.
    if "OMP_NUM_THREADS" not in os.environ:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Before lm-eval loads: it must never look for a task or a score on the network, and the
    # bars are ours.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = TRACEBACK in arguments or os.environ.get("VALIDATE_DEBUG") == "1"
    arguments = _explain_all([argument for argument in arguments if argument != TRACEBACK])
    try:
        _refuse_empty(arguments)
        code = _run(arguments)
        sys.stdout.flush()
    except _InterruptedError as error:
        print(f"interrupted; {_harmless(str(error))}", file=sys.stderr)
        code = EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001  the last line of defence; every error gets a code
        if debug:
            _print_traceback()
        code = _report(error)
    except KeyboardInterrupt:
        kept = KEPT.get(next(iter(arguments), ""))
        print(f"interrupted; {kept}" if kept else "interrupted", file=sys.stderr)
        code = EXIT_INTERRUPTED
    return code


def _refuse_empty(arguments: Sequence[str]) -> None:
    """An empty place is no place: as a path it would be the current folder.

    Raises:
        InputError: An option that names a file or folder is given an empty text.
    """
    for at, word in enumerate(arguments):
        option, equals, value = word.partition("=")
        given = value if equals else "".join(arguments[at + 1 : at + 2])
        if option in PLACES and not given.strip() and (equals or at + 1 < len(arguments)):
            msg = (
                f'{option} "": no place is named; nothing was done\n'
                f"  do next: name one, or leave {option} out"
            )
            raise InputError(msg)


def _explain_all(arguments: list[str]) -> list[str]:
    """``--explain`` without a gate means all of them."""
    made = []
    for at, word in enumerate(arguments):
        made.append(word)
        alone = at + 1 == len(arguments) or arguments[at + 1].startswith("-")
        made += ["all"] if word == "--explain" and alone else []
    return made


def _run(arguments: list[str]) -> int:
    command = typer.main.get_command(app)
    try:
        result = command.main(args=arguments, prog_name="validate", standalone_mode=False)
    except typer.TyperException as error:
        show = getattr(error, "show", None)  # usage errors print their own usage line
        if show is None:
            print(f"Error: {error}", file=sys.stderr)
        else:
            show()
        return error.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except SystemExit:
        # Only a closed stdout makes the parser leave by itself, with 1, which is our FAIL.
        raise BrokenPipeError from None
    if result == EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    return int(result or 0)


def _report(error: Exception) -> int:
    if isinstance(error, ValidateError):
        print(f"{type(error).__name__}: {_harmless(str(error))}", file=sys.stderr)
        return error.exit_code
    if isinstance(error, BrokenPipeError):
        # Python would complain once more when it closes stdout at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print("validate: stdout was closed before the result was written", file=sys.stderr)
        return EXIT_BUG
    text = " ".join(str(error).split()) or "(no message)"
    print(
        f"validate: {type(error).__name__}: {text}; this is a bug "
        f"(traceback: {TRACEBACK} or VALIDATE_DEBUG=1)",
        file=sys.stderr,
    )
    return EXIT_BUG


def _harmless(text: str) -> str:
    """The lines of a message, cut where long and spelled out where they steer: names come from captures."""
    lines = text.split("\n")
    if not all(line.isprintable() and len(line) <= PLAIN for line in lines):
        from validate.report.visible import visible

        lines = [visible(line) for line in lines]
    return "\n".join(lines)


def _print_traceback() -> None:
    import traceback

    traceback.print_exc()
