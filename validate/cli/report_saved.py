"""Saved runs: found, rendered again, held against each other."""

import sys
from collections.abc import Sequence
from pathlib import Path

from validate.capture.places import fit_folder
from validate.cli.formats import ReportFormat
from validate.cli.publish import publish
from validate.cli.session import open_project
from validate.errors import InputError
from validate.report import RENDERERS, read_report, render_diff
from validate.run.claims import attach_claims, load_claims
from validate.schema.report import Report

__all__ = ["REPORT", "diff", "find_run", "render"]

REPORT = "report.json"
PAIR = 2


def find_run(runs: Sequence[Path]) -> Path:
    """The ``report.json`` of the one run that was named; of the newest where none was.

    Raises:
        InputError: Several were named, or there is no such report.
    """
    if len(runs) > 1:
        msg = f"{len(runs)} runs are named, one is rendered or bundled; two take --diff OLD NEW"
        raise InputError(msg)
    return _file(runs[0]) if runs else _newest()


def _file(run: Path) -> Path:
    path = run / REPORT if run.is_dir() else run
    if not path.is_file():
        msg = (
            f"{run}: there is no {REPORT}\n"
            "  do next: name the folder that validate compare wrote, or its report.json"
        )
        raise InputError(msg)
    return path


def _newest() -> Path:
    folder = open_project().reports
    found = sorted(folder.glob(f"*/{REPORT}"), key=lambda path: path.stat().st_mtime_ns)
    if not found:
        msg = f"{folder}: no run is saved there\n  do next: validate compare, or name a run"
        raise InputError(msg)
    print(f"newest run: {found[-1].parent}", file=sys.stderr)
    return found[-1]


def render(
    runs: Sequence[Path], *, output: ReportFormat, out: Path | None, claims: Path | None
) -> int:
    """Write every format of a saved run again, print one, return the verdict's exit code."""
    path = find_run(runs)
    fit_folder("--out", out or path.parent, files=RENDERERS)
    report = with_claims(read_report(path), claims)
    return publish(report, output=output, explain=False, out=out or path.parent)


def with_claims(report: Report, claims: Path | None) -> Report:
    """The report with the claims of a file beside it, if one is named."""
    return report if claims is None else attach_claims(report, load_claims(claims))


def diff(runs: Sequence[Path], *, output: ReportFormat) -> int:
    """Print what moved; 0 whatever did, for a diff is no verdict."""
    if len(runs) != PAIR:
        msg = f"--diff takes two runs, OLD and NEW; {len(runs)} are named"
        raise InputError(msg)
    old, new = (read_report(_file(run)) for run in runs)
    print(render_diff(old, new, style=output.value).rstrip("\n"))
    return 0
