"""A report to stdout, and to its files."""

import datetime as dt
import shutil
import sys
from pathlib import Path

from validate.capture.places import fit_folder
from validate.cli.explain import explain_gates
from validate.cli.formats import ReportFormat
from validate.cli.progress import show_progress
from validate.cli.session import open_project
from validate.errors import InputError
from validate.report import RENDERERS, render_console, render_json, render_markdown, write_reports
from validate.schema.report import Report

__all__ = ["fit_place", "publish"]


def fit_place(out: Path | None) -> None:
    """See that a report can be written, before the work that it is to tell of.

    Args:
        out: The folder that was asked for; None: a new one below the project's reports.

    Raises:
        InputError: Nothing can be written there.
    """
    if out is None:
        fit_folder("--out", open_project().reports)
    else:
        fit_folder("--out", out, files=RENDERERS)


def publish(report: Report, *, output: ReportFormat, explain: bool, out: Path | None) -> int:
    """Write ``report.html``, ``.md``, ``.json`` and ``.xml``, print what was asked for, return the exit code.

    Raises:
        InputError: The files cannot be written.
    """
    place = out or _new_folder(open_project().reports)
    with show_progress() as progress:
        files = write_reports(report, place, progress=lambda what: progress(0, 0, what))
    paths = "\n".join(f"report: {path}" for path in files)
    if output is ReportFormat.CONSOLE:
        terminal = sys.stdout.isatty()
        size = {"width": shutil.get_terminal_size().columns} if terminal else {}
        print(render_console(report, terminal=terminal, **size))
        if explain:
            print(explain_gates(report))
        print(paths)
    else:
        text = render_json(report) if output is ReportFormat.JSON else render_markdown(report)
        print(text.rstrip("\n"))
        print(paths, file=sys.stderr)
    return report.exit_code


def _new_folder(reports: Path) -> Path:
    """A folder that no other run has, named by the time."""
    stamp = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H%M%SZ")
    number = 1
    while True:
        folder = reports / (stamp if number == 1 else f"{stamp}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
        except OSError as error:
            msg = (
                f"{folder}: the report cannot be written ({error.strerror})\n"
                "  do next: name another folder with --out"
            )
            raise InputError(msg) from error
        else:
            return folder
