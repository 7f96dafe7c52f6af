"""Saved runs: found, rendered again, held against each other."""

import difflib
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from validate.capture.format import MANIFEST
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
TABLE = "selftest.json"
PAIR = 2
SHOWN = 5
"""Names that a message tells."""


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
        raise InputError(_no_run(run))
    if run.is_file() and zipfile.is_zipfile(run):
        msg = f"{run}: it is a zip file, no report\n  do next: validate report --check {run}"
        raise InputError(msg)
    return path


def _no_run(run: Path) -> str:
    """What a place is that holds no report, what was expected, and what there is of like name."""
    if not run.exists():
        what = "there is no such file or folder"
    elif not run.is_dir():
        what = "is no file that can be read"
    elif (run / MANIFEST).is_file():
        what = f"is a capture, no run; a run is a folder with a {REPORT}"
    elif (run / TABLE).is_file():
        what = f"is the result of a selftest, no run; a run is a folder with a {REPORT}"
    else:
        held = sorted(path.name for path in run.iterdir())
        inside = ", ".join(held[:SHOWN]) + (", ..." if len(held) > SHOWN else "")
        what = f"there is no {REPORT} in it; it holds {inside or 'nothing'}"
    lines = [f"{run}: {what}"]
    if near := _near(run):
        lines.append(f"  runs here: {', '.join(near)}")
    lines.append(f"  do next: name the folder that validate compare wrote, or its {REPORT}")
    return "\n".join(lines)


def _near(run: Path) -> list[str]:
    """Saved runs: those below the place, else of like name beside it or in the reports folder."""
    if below := [path.parent for path in sorted(run.glob(f"*/{REPORT}"))]:
        return [str(path) for path in below[-SHOWN:]]
    places = dict.fromkeys((run.parent, open_project().reports))
    held = {path.parent for place in places for path in place.glob(f"*/{REPORT}")}
    names = {path.name: str(path) for path in sorted(held)}
    close = difflib.get_close_matches(run.name, names, n=SHOWN, cutoff=0.5)
    return [names[name] for name in close] or list(names.values())[-1:]


def _newest() -> Path:
    folder = open_project().reports
    found = sorted(folder.glob(f"*/{REPORT}"), key=lambda path: path.stat().st_mtime_ns)
    if not found:
        msg = (
            f"{folder}: no run is saved there (no */{REPORT})\n"
            "  do next: validate compare, or name the folder of a run"
        )
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
