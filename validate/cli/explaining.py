"""``compare --explain GATE``: the captures that explain a gate are made here, and thrown away."""

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from validate.capture.devices import choose_device
from validate.capture.digest import file_sha256
from validate.capture.project import Project
from validate.capture.resolve import Progress
from validate.capture.targets import Target
from validate.cli.cast import Cast
from validate.run import compare
from validate.run.explain import Scene, attach, crashed, explain
from validate.run.explain_capture import Studio
from validate.schema.report import Report
from validate.schema.suite import Limits, Suite

__all__ = ["ALL", "EXIT_CRASHED", "Law", "explained", "say_crash"]

ALL = "all"
"""What ``--explain`` takes instead of a gate: all that is known about each, and no capture."""
EXIT_CRASHED = 70


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """By what a gate is judged, and where."""

    suite: Suite
    limits: Limits
    project: Project


def explained(
    report: Report,
    gate: str,
    *,
    sides: tuple[Target, Target],
    cast: Cast,
    law: Law,
    prompts: Sequence[str],
    progress: Progress,
) -> Report:
    """The report with the explanation of a gate; every verdict in it stays as it is.

    An explanation that breaks off stands in the report as one that did; ``say_crash`` says so.

    Args:
        report: The comparison.
        gate: Which gate.
        sides: Targets of ref and cand.
        cast: Their captures, and what stands beside them.
        law: How it was judged.
        prompts: That were compared.
        progress: Told what is at work.
    """
    try:
        with _studio(sides, cast, law.project, progress) as (studio, why):
            scene = Scene(
                ref=cast.ref,
                cand=cast.cand,
                prompts=tuple(prompts),
                weights=cast.weights,
                config=cast.config,
                oracle=cast.oracle,
                studio=studio,
                why_stored=why,
                again=lambda ref, cand, oracle: compare(
                    ref=ref,
                    cand=cand,
                    suite=law.suite,
                    limits=law.limits,
                    oracle=oracle,
                    weights=cast.weights,
                    config=cast.config,
                    only=(gate,),
                ),
                progress=lambda what: progress(0, 0, what),
            )
            return attach(report, explain(report, gate, scene=scene))
    except Exception as error:  # noqa: BLE001  the verdicts stand, and the break is said aloud
        return attach(report, crashed(report, gate, error))


@contextmanager
def _studio(
    sides: tuple[Target, Target], cast: Cast, project: Project, progress: Progress
) -> Iterator[tuple[Studio | None, str]]:
    """Where cand is captured again, or None and why it cannot be."""
    ref, cand = sides
    why = _why_stored(ref, cand, cast, project)
    if why or cand.path is None:
        yield None, why
        return
    project.runs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="explain-", dir=project.runs) as folder:
        studio = Studio(
            folder=Path(folder),
            path=cand.path,
            options=cand.options,
            ref_options=_ref_options(ref, cast, project),
            device=choose_device(cand, None),
            progress=lambda what: progress(0, 0, what),
        )
        yield studio, ""


def _why_stored(ref: Target, cand: Target, cast: Cast, project: Project) -> str:
    if cand.path is None:
        return f"cand '{cand.text}' is a stored capture and cannot be captured again here"
    model = cast.ref.manifest.model
    weights = project.weights / f"{model.weights}.safetensors"
    if not weights.is_file() or file_sha256(weights) != model.weights_digest:
        return (
            f"the weights of ref '{ref.text}' ({model.weights}) are not at hand as {weights}, so "
            "nothing can stand for ref beside a cand that is captured again"
        )
    return ""


def _ref_options(ref: Target, cast: Cast, project: Project) -> Mapping[str, str]:
    """Options of the reference path that come nearest to ref's own."""
    if ref.path == "reference":
        return ref.options
    entry = project.targets.get(ref.name)
    recipe = None if entry is None else entry.recipe
    held = {} if recipe is None or recipe.path != "reference" else dict(recipe.options)
    weights = cast.ref.manifest.model.weights
    return {**held, "weights": weights} if cast.ref.manifest.declared_weights else held


def say_crash(report: Report) -> bool:
    """Say on stderr that an explanation broke off, if it did."""
    found = report.explained
    if found is None or found.status != "crashed":
        return False
    print(f"--explain {found.gate}: {found.summary}", file=sys.stderr)
    print("  the verdicts above stand; they do not rest on it", file=sys.stderr)
    return True
