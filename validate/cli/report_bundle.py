"""Bundles on the command line: what goes in is looked up here, what comes out is told."""

import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from validate.capture.digest import file_sha256
from validate.capture.places import fit_file, fit_folder
from validate.capture.project import Project
from validate.cli.checkout import blocked_here, hold, on_its_word, stale_here
from validate.cli.formats import ReportFormat
from validate.cli.progress import show_progress
from validate.cli.report_saved import find_run, with_claims
from validate.cli.session import open_project
from validate.errors import InputError
from validate.report import (
    RENDERERS,
    read_report,
    render_all,
    render_console,
    render_json,
    render_markdown,
    write_reports,
)
from validate.report.visible import visible
from validate.run import golden_path
from validate.run.bundle import Source, check_bundle, find_captures, write_bundle
from validate.run.recompute import Known
from validate.schema.report import Report
from validate.schema.verdict import EXIT_CODES, Outcome
from validate.suite import limits_digest, load_limits, load_suite

__all__ = ["bundle", "check"]


def bundle(runs: Sequence[Path], out: Path, *, claims: Path | None) -> int:
    """Write the bundle of a saved run and check it; returns the verdict's exit code."""
    fit_file("--bundle", out)
    if out.is_file() and out.stat().st_size and not zipfile.is_zipfile(out):
        msg = (
            f"--bundle {out}: a file that is no zip file is there, and would be replaced\n"
            "  do next: name another file with --bundle"
        )
        raise InputError(msg)
    path = find_run(runs)
    report = read_report(path)
    if claims is not None:
        fit_folder("--claims: the report is written anew to", path.parent, files=RENDERERS)
        report = with_claims(report, claims)
        write_reports(report, path.parent)
    with show_progress() as progress:
        made = write_bundle(_source(report), out, progress=lambda what: progress(0, 0, what))
    print(f"{report.verdict}: computed again from the bundle's own files")
    print(f"bundle: {out} ({len(made.files) + 1} files, {out.stat().st_size} bytes)")
    print(f"sha256: {file_sha256(out)}")
    print(f"check : validate report --check {out}")
    return report.exit_code


def check(path: Path, runs: Sequence[Path], *, own_suite: bool, output: ReportFormat) -> int:
    """Verify a bundle, print its report, return the exit code of its verdict.

    Args:
        path: The zip file.
        runs: None may be named beside it.
        own_suite: A suite or limits that this checkout does not have are taken on their word.
        output: What is printed.
    """
    if runs:
        msg = f"--check takes the bundle alone; {len(runs)} runs are named beside it"
        raise InputError(msg)
    with show_progress() as progress:
        report = check_bundle(
            path,
            render=render_all,
            known=Known(
                blocks=lambda ref, cand, suite: blocked_here(ref, cand, suite, open_project()),
                stale=lambda held: stale_here(held, open_project()),
            ),
            progress=lambda what: progress(0, 0, what),
        )
    words = "every file is what it was, and the captures inside give this verdict again"
    print(f"{path}: {words}", file=sys.stderr)
    held = hold(report, open_project())
    print(f"  {visible(on_its_word(report))}", file=sys.stderr)
    for line in held.lines:
        print(f"  {visible(line)}", file=sys.stderr)
    shown = report.model_copy(update={"since_golden": held.since})
    if output is ReportFormat.CONSOLE:
        print(render_console(shown, terminal=sys.stdout.isatty()))
    else:
        text = render_json(shown) if output is ReportFormat.JSON else render_markdown(shown)
        print(text.rstrip("\n"))
    if held.other_law:
        print(
            f"{path}: {report.verdict} is a verdict by another suite or other limits than this "
            "checkout's\n  do next: check it in the checkout it was made in, or ask why they differ",
            file=sys.stderr,
        )
        return EXIT_CODES[Outcome.INCOMPARABLE]
    if held.unknown_law and not own_suite:
        print(
            f"{path}: {report.verdict} is a verdict by a suite or limits that this checkout does "
            "not have\n  do next: check it in the checkout that has them, or read them in the "
            "bundle and add --own-suite",
            file=sys.stderr,
        )
        return EXIT_CODES[Outcome.INCOMPARABLE]
    if held.other_golden:
        print(
            f"{path}: what it says of loosened limits is not so by this checkout's golden report, "
            "whose figures are shown\n  do next: check it in the checkout it was made in, or ask why "
            "they differ",
            file=sys.stderr,
        )
        return EXIT_CODES[Outcome.INCOMPARABLE]
    return report.exit_code


def _source(report: Report) -> Source:
    """Every part of a bundle, found where the report says, and refused where it has changed."""
    project = open_project()
    suite_file = Path(report.suite.path)
    suite = load_suite(suite_file)
    limits_file = project.root / suite.limits
    now = {
        "suite": (suite_file, suite.digest, report.suite.digest),
        "limits": (
            limits_file,
            limits_digest(load_limits(limits_file)),
            report.suite.limits_digest,
        ),
    }
    for what, (file, found, wanted) in now.items():
        if found != wanted:
            msg = (
                f"{file}: the {what} file is not what the report was made with (digest "
                f"{found[:12]}, then {wanted[:12]})\n  do next: validate compare, then bundle anew"
            )
            raise InputError(msg)
    folders = {
        name: project.folder(name)
        for name, entry in project.targets.items()
        if entry.kind != "torch"
    }
    golden = project.root / golden_path(suite.name)
    waivers = None if suite.waivers_file is None else project.root / suite.waivers_file
    captures = find_captures(report, folders)
    weights = _weights(project, captures[0].reader.manifest.model.weights_digest, report)
    return Source(
        report=report,
        render=render_all,
        captures=captures,
        suite=suite_file,
        limits=limits_file,
        golden=golden if golden.is_file() else None,
        waivers=waivers,
        weights=weights,
        config=None if weights is None else project.model_config_file,
        claims=None if report.claims is None else Path(report.claims.path),
    )


def _weights(project: Project, digest: str, report: Report) -> Path | None:
    """Ref's weights, under the same condition as in a comparison."""
    path = project.weights / f"{report.ref.weights}.safetensors"
    known = report.oracle is not None and path.is_file() and file_sha256(path) == digest
    return path if known else None
