"""``validate list``: what there is to name."""

from pathlib import Path
from typing import Annotated

import typer

from validate.cli.formats import TextOrJson, Things

__all__ = ["HELP", "list_things"]

HELP = "Print what there is: targets, gates, faults and so on."


def list_things(
    *,
    things: Annotated[Things, typer.Argument(help="What to list.", metavar="THINGS")],
    suite: Annotated[
        Path | None, typer.Option(help="Suite whose gates and limits are listed.")
    ] = None,
    output: Annotated[
        TextOrJson, typer.Option("--format", help="How the result is printed.")
    ] = TextOrJson.TEXT,
) -> int:
    """Print one kind of thing as a table or as JSON."""
    from validate.cli.catalogue import keys_text, rows_of, table
    from validate.errors import InputError

    if suite is not None and things not in (Things.GATES, Things.LIMITS):
        msg = (
            f"list {things.value} --suite {suite}: only gates and limits depend on a suite\n"
            "  do next: leave --suite out"
        )
        raise InputError(msg)
    rows = rows_of(things, suite=suite)
    if output is TextOrJson.JSON:
        import json

        print(json.dumps({things.value: rows}, indent=1, allow_nan=False))
    else:
        print(table(rows) if rows else f"no {things.value} yet")
        if things is Things.LIMITS and rows:
            print("\nwhat each rests on")
            print("\n".join(f"  {row['name']}: {row['basis']}" for row in rows))
        if things is Things.TARGETS:
            print("\nkeys, as TARGET:KEY=VALUE,KEY=VALUE")
            print(keys_text(rows))
    return 0
