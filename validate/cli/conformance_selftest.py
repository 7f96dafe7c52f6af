"""``validate conformance --selftest``: planted faults in, what caught each out."""

from validate.cli.formats import ConformanceFormat
from validate.cli.progress import show_progress
from validate.report.selftest import selftest_console, selftest_markdown
from validate.selftest import conformance_selftest

__all__ = ["run_selftest"]


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
