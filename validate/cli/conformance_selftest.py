"""``validate conformance --selftest``: planted faults in, what caught each out."""

from collections.abc import Mapping

from validate.cli.formats import ConformanceFormat
from validate.cli.progress import show_progress
from validate.errors import InputError
from validate.report.selftest import selftest_console, selftest_markdown
from validate.selftest import conformance_selftest

__all__ = ["refuse_unused", "run_selftest"]


def refuse_unused(given: Mapping[str, object]) -> None:
    """Refuse arguments that the selftest would not look at.

    Raises:
        InputError: One of them was given.
    """
    unused = [name for name, value in given.items() if value not in (None, False)]
    if unused:
        msg = (
            f"--selftest with {', '.join(unused)}: it judges planted faults, no implementation "
            "of yours\n  do next: leave one of them out; --op and --format go with --selftest"
        )
        raise InputError(msg)


def run_selftest(*, op: str | None, output: ConformanceFormat) -> int:
    """Print the table; 0 when every fault is caught and no control is flagged, else 1.

    Raises:
        InputError: The operation is unknown, or nothing is planted in it.
    """
    with show_progress() as progress:
        result = conformance_selftest(op=op, progress=progress)
    if output is ConformanceFormat.JSON:
        print(result.model_dump_json(indent=1))
    elif output is ConformanceFormat.MARKDOWN:
        print(selftest_markdown(result))
    else:
        print(selftest_console(result))
    return 0 if result.held else 1
