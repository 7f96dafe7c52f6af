"""Who takes part in a comparison: ref, cand, the repeats of ref, the oracle and its weights."""

import contextlib
import gc
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from validate.capture.digest import file_sha256
from validate.capture.format import MANIFEST
from validate.capture.importers import EvalFolder, is_lm_eval_folder, open_lm_eval
from validate.capture.project import Project
from validate.capture.reader import CaptureReader, open_capture
from validate.capture.resolve import Progress, Resolved, open_stored, resolve
from validate.capture.targets import Target
from validate.cli.recording import own_modules
from validate.cli.session import read_target
from validate.oracle import load_weights
from validate.schema import Side
from validate.schema.suite import GateSpec, Suite
from validate.suite import load_prompts

__all__ = ["EVALS_SUITE", "ORACLE", "Cast", "choose_suite", "family", "find", "gather", "open_side"]

ORACLE = "oracle"
"""Name of the target that is taken as the truth."""


EVALS_SUITE = "suites/evals.toml"
"""The suite of two lm-eval folders, where none is named."""


def choose_suite(given: Path | None, targets: Sequence[Target], project: Project) -> Path:
    """The suite that was named; else that of evals alone for lm-eval folders, else the project's."""
    foreign = [
        target.folder is not None
        and not (target.folder / MANIFEST).is_file()
        and is_lm_eval_folder(target.folder)
        for target in targets
    ]
    return given or (project.root / EVALS_SUITE if any(foreign) else project.suite)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """Every capture of one comparison, opened."""

    ref: CaptureReader | EvalFolder
    cand: CaptureReader | EvalFolder
    repeats: tuple[CaptureReader, ...]
    oracle: CaptureReader | None
    weights: Mapping[str, NDArray[Any]] | None
    """Float64 weights of ref's model; None when they or the oracle are not at hand."""
    config: Mapping[str, Any] | None
    reused: tuple[str, ...]
    """Of ``ref`` and ``cand``, those whose capture was made earlier."""
    blocked: tuple[str, ...]
    """Why nothing may be judged: goldens that are stale."""


def gather(
    ref: Target,
    cand: Target,
    *,
    project: Project,
    suite: Suite,
    gates: Sequence[GateSpec] = (),
    fresh: bool,
    progress: Progress,
) -> Cast:
    """Open or make the captures of ref and cand, and open what the project has beside them.

    Args:
        ref: The target compared against.
        cand: The target under judgement.
        project: Where captures lie.
        suite: Its prompts and tasks are what captures made now run.
        gates: The gates that will be judged, for captures made now; empty: all of the suite's.
        fresh: Make captures anew.
        progress: Told of every prompt that is done.

    Raises:
        InputError: A path cannot run here.
        CaptureError: A capture is damaged, or cannot be written.
    """
    evals = any(gate.area == "evals" for gate in gates or suite.gates)
    sides = [
        find(target, project=project, suite=suite, evals=evals, fresh=fresh, progress=progress)
        for target in (ref, cand)
    ]
    first, second = (_told(side, progress) for side in sides)
    beside = [_named(name, project) for name in family(ref, project)]
    progress(0, 0, "reading the oracle, the repeats of ref and the weights")
    oracle = _oracle(first, project)
    stale = [side.stale for side in (*sides, *beside)]
    if oracle is not None:
        stale.append(_named(ORACLE, project).stale)
    weights = project.weights / f"{first.manifest.model.weights}.safetensors"
    known = (
        oracle is not None
        and weights.is_file()
        and file_sha256(weights) == first.manifest.model.weights_digest
    )
    return Cast(
        ref=first,
        cand=second,
        repeats=tuple(_open(side) for side in beside),
        oracle=oracle,
        weights=load_weights(weights) if known else None,
        config=json.loads(project.model_config_file.read_bytes()) if known else None,
        reused=tuple(
            role for role, side in zip(("ref", "cand"), sides, strict=True) if side.reused
        ),
        blocked=tuple(reason for reason in dict.fromkeys(stale) if reason is not None),
    )


def family(ref: Target, project: Project) -> tuple[str, ...]:
    """Names of the stored captures that repeat ``ref``, or that ``ref`` repeats; not ``ref``."""
    name = _golden_name(ref, project)
    if name is None:
        return ()
    parent = project.targets[name].repeat_of or name
    members = (parent, *project.repeats(parent))
    return tuple(member for member in members if member != name and project.folder(member).is_dir())


def _golden_name(target: Target, project: Project) -> str | None:
    """Name of a stored capture, whether it was given by name or by its folder."""
    if target.folder is None:
        return None
    here = target.folder.resolve()
    names = [name for name, entry in project.targets.items() if entry.kind != "torch"]
    return next((name for name in names if project.folder(name).resolve() == here), None)


def find(
    target: Target,
    *,
    project: Project,
    suite: Suite,
    evals: bool,
    fresh: bool,
    progress: Progress,
    make: bool = True,
) -> Resolved:
    """The capture of a target on the suite's prompts; made if need be and if ``make``.

    Without ``evals`` the suite's tasks are not run; a capture that holds them is still taken.
    """
    if target.folder is not None:
        return open_stored(target, project)
    prompts = project.root / suite.prompts
    held = load_prompts(prompts)
    tasks = None if suite.tasks is None else project.root / suite.tasks

    def found(tasks: Path | None, *, make: bool) -> Resolved:
        with own_modules():
            return resolve(
                target,
                project=project,
                prompts=held,
                prompt_set=prompts.stem,
                fresh=fresh,
                progress=progress,
                environ=os.environ,
                make=make,
                tasks=tasks,
            )

    if tasks is None or evals or found(tasks, make=False).reused:
        return found(tasks, make=make)
    return found(None, make=make)


def _told(side: Resolved, progress: Progress) -> CaptureReader | EvalFolder:
    progress(0, 0, f"reading {side.label}")
    return open_side(side)


def _named(name: str, project: Project) -> Resolved:
    return open_stored(read_target(name, project), project)


def open_side(side: Resolved) -> CaptureReader | EvalFolder:
    """A capture, or an lm-eval folder as a side.

    Raises:
        CaptureError: It is damaged.
    """
    if (side.path / MANIFEST).is_file() or not is_lm_eval_folder(side.path):
        return _open(side)
    with _uncollected():
        return open_lm_eval(side.path, label=side.label)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """No search for cycles while items are read by the 100,000, which hold none.

    Read items are left out of later searches too: looking through them again and again takes
    longer than all metrics together.
    """
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if on:
            gc.enable()


def _open(side: Resolved) -> CaptureReader:
    return open_capture(side.path, label=side.label)


def _oracle(ref: Side, project: Project) -> CaptureReader | None:
    """The oracle's capture, if there is one of ref's model on ref's prompts."""
    if ORACLE not in project.targets or not project.folder(ORACLE).is_dir():
        return None
    oracle = _open(_named(ORACLE, project))
    same_model = oracle.manifest.model.weights_digest == ref.manifest.model.weights_digest
    same_prompts = oracle.manifest.prompt_digest == ref.manifest.prompt_digest
    return oracle if same_model and same_prompts else None
