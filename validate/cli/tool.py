"""Programs that make a record of this project, beside the commands of ``validate``."""

import sys
from collections.abc import Callable

import typer

from validate.errors import ValidateError

__all__ = ["run_tool"]


def run_tool(main: Callable[..., None]) -> None:
    """Run one program; an error of the user's is one message and its exit code, no traceback."""
    try:
        typer.run(main)
    except ValidateError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error
