"""``validate golden calibrate``: limits from the reference's own captures."""

from collections.abc import Callable
from pathlib import Path

from validate.capture.places import fit_file
from validate.capture.project import Project
from validate.capture.resolve import Progress
from validate.cli.cast import Cast, gather
from validate.cli.session import open_project, read_target
from validate.errors import IncomparableError, InputError
from validate.faults import FAULTS
from validate.run import calibrate, compare
from validate.schema.report import GateReport
from validate.schema.suite import Limits, Suite
from validate.schema.verdict import Outcome
from validate.suite import dump_limits, load_limits, load_rules, load_suite

__all__ = ["calibrate_limits"]

HEADING = """Limits, keyed by metric and dtype. Written by `validate golden calibrate` from the reference
and its repeats alone, by the rules of calibration.toml; never edit a `measured` number by hand.
`clean` is the largest that reference captures measure, `fault` the smallest that a planted
fault measures; a limit stands between them. Tables of deviations are kept as they were."""


def calibrate_limits(ref: str, *, faults: bool, out: Path | None, progress: Progress) -> Path:
    """Derive the limits of the default suite and write them.

    Args:
        ref: Stored capture whose repeats give the noise.
        faults: Also plant every fault of the candidate and write what it
            measures beside the limits; else those numbers are taken over.
        out: File to write; the suite's limits file when None.
        progress: Told what is being measured.

    Returns:
        The file that was written.

    Raises:
        InputError: Too few repeats, or a limit that does not lie between clean and fault.
        IncomparableError: A golden is stale.
    """
    project = open_project()
    suite = load_suite(project.suite)
    path = project.root / suite.limits
    target = read_target(ref, project)
    if target.folder is None:
        msg = f"--ref {ref}: it runs here; limits come from stored captures and their repeats"
        raise InputError(msg)
    fit_file("--out", out or path)
    cast = gather(target, target, project=project, suite=suite, fresh=False, progress=progress)
    if cast.blocked:
        raise IncomparableError("\n".join(cast.blocked))
    old = load_limits(path) if path.is_file() else None
    measured = _faults(ref, cast, project, suite, progress) if faults else None
    limits = _calibrated(cast, suite, project, progress, old=old, faults=measured)
    place = out or path
    partial = place.with_name(f".{place.name}.partial")
    try:
        partial.write_text(dump_limits(limits, heading=HEADING), "utf-8")
        partial.replace(place)
    except OSError as error:
        msg = f"{place}: the limits cannot be written ({error.strerror}); next: --out FILE"
        raise InputError(msg) from error
    return place


def _calibrated(
    cast: Cast,
    suite: Suite,
    project: Project,
    progress: Progress,
    *,
    old: Limits | None,
    faults: dict[str, dict[str, float]] | None,
) -> Limits:
    return calibrate(
        ref=cast.ref,
        repeats=cast.repeats,
        suite=suite,
        rules=load_rules(project.calibration),
        oracle=cast.oracle,
        weights=cast.weights,
        config=cast.config,
        limits=old,
        faults=faults,
        path=suite.limits,
        progress=_telling(progress, suite.name),
    )


def _faults(
    ref: str, cast: Cast, project: Project, suite: Suite, progress: Progress
) -> dict[str, dict[str, float]]:
    """What each planted fault measures in each gate that must catch it, or does."""
    limits = _calibrated(cast, suite, project, progress, old=None, faults=None)
    found: dict[str, dict[str, float]] = {}
    for fault in FAULTS.values():
        if fault.where != "cand" or fault.expect != "FAIL":
            continue
        sides = read_target(ref, project), read_target(f"rocm:fault={fault.id}", project)
        planted = gather(*sides, project=project, suite=suite, fresh=False, progress=progress)
        report = compare(
            ref=planted.ref,
            cand=planted.cand,
            suite=suite,
            limits=limits,
            repeats=planted.repeats,
            oracle=planted.oracle,
            weights=planted.weights,
            config=planted.config,
            progress=_telling(progress, fault.id),
        )
        for gate in report.gates:
            value = None if gate.measurement is None else gate.measurement.value
            caught = gate.name in fault.gates or _beyond(gate)
            if caught and value is not None:
                found.setdefault(gate.name, {})[fault.id] = value
    return found


def _beyond(gate: GateReport) -> bool:
    """Whether a gate FAILs by its value, and not by its worst row alone."""
    if gate.outcome is not Outcome.FAIL or gate.judged is None or gate.limit is None:
        return False
    return gate.judged > gate.limit.value


def _telling(progress: Progress, whose: str) -> Callable[[str], None]:
    def tell(what: str) -> None:
        progress(0, 0, f"{whose}: {what}")

    return tell
