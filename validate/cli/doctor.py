"""``validate doctor``: this machine, its kernels, and what would get in the way."""

from typing import Annotated

import typer

from validate.cli.formats import TextOrJson

__all__ = ["HELP", "doctor"]

HELP = "Tell the environment, kernels and problems found."


def doctor(
    *,
    output: Annotated[
        TextOrJson, typer.Option("--format", help="How the result is printed.")
    ] = TextOrJson.TEXT,
) -> int:
    """Print what a report would say of this machine, and every problem found."""
    from validate.cli.machine import describe, lines_of

    found = describe()
    if output is TextOrJson.JSON:
        import json

        print(json.dumps(found, indent=1, allow_nan=False))
    else:
        print("\n".join(lines_of(found)))
    return 0
