"""The captures of one case: the reference and what stands beside it, and the candidate."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from validate.capture.devices import choose_device
from validate.capture.project import Project
from validate.capture.reader import open_capture
from validate.capture.resolve import capture_key, open_stored, resolve
from validate.capture.subset import subset
from validate.capture.targets import Target, parse_target
from validate.errors import CaptureError, InputError
from validate.faults import FAULT_SIDES
from validate.oracle import load_weights
from validate.run.sides import capture_digest
from validate.schema import Prompt, Side
from validate.schema.suite import Suite
from validate.selftest.cases import Area, Case, drawn_from, long_prompts, random_prompts
from validate.selftest.trim import trim, undrawn
from validate.suite import load_prompts

__all__ = ["ORACLE", "Bench", "Stage", "make_cand", "set_stage", "stage_key"]

ORACLE = "oracle"
"""Name of the target that is taken as the truth."""
_OF_MACHINE = frozenset(("torch", "device", "card", "cpu", "processors", "environment"))
"""Parts of a capture's key that say where it was made, not what of."""
OWN = ("random", "long")
"""Samples whose prompts are none of the suite's."""
RUN_HERE = "reference"
"""What stands in for a stored ref on prompts that no golden holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where, and against what, cases are judged; a name alone, so that it can be sent anywhere."""

    area: str
    ref: str
    project: Path
    """The project file."""
    suite: Path
    prompts: tuple[str, ...] = ()
    """Prompts that count; empty: all that the area looks at."""
    rows: Path | None = None
    """Where rows are kept; None: beside captures that are made here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """All that a comparison needs beside its candidate."""

    ref: Side
    repeats: tuple[Side, ...]
    oracle: Side | None
    prompts: tuple[Prompt, ...]
    prompt_set: str
    drawn: bool = True
    """False: streams at T > 0 are left out of every side."""
    weights: Mapping[str, NDArray[Any]] | None = None
    """Float64 weights, for introduced errors."""
    config: Mapping[str, Any] | None = None
    """Model configuration that goes with ``weights``."""


def set_stage(bench: Bench, case: Case, *, area: Area, project: Project, suite: Suite) -> Stage:
    """The reference, its repeats and the oracle on the prompts that the area looks at.

    Raises:
        InputError: No prompt is left, or ``ref`` is unknown.
        CaptureError: A golden is stale or damaged: it would make every fault look caught.
    """
    path, sample = project.root / suite.prompts, case.sample
    asked, name = load_prompts(path), path.stem
    if sample.prompts == "random":
        asked, name = random_prompts(), "random-bytes"
    elif sample.prompts == "long":
        asked, name = long_prompts(asked), f"{name}-long"
    elif sample.prompts == "all":
        asked, name = drawn_from(asked), f"{name}-drawn"
    chosen = bench.prompts if sample.prompts not in OWN else ()
    kept = tuple(p for p in asked if area.wants(p) and (not chosen or p.id in chosen))
    if not kept:
        msg = f"selftest of {area.name}: none of the prompts {', '.join(chosen)} is one of its"
        raise InputError(msg)
    if not area.drawn:
        return _undrawn_stage(bench, case, undrawn(kept), name, project)
    stands_in = RUN_HERE if sample.prompts != "default" else None
    target = _target(sample.ref or stands_in or bench.ref, project)
    if target.folder is None:
        ref = _made(_longer(target, sample.tokens), project, kept, name)
        return Stage(ref=ref, repeats=(), oracle=None, prompts=kept, prompt_set=name)
    repeats, oracle = _beside(target, project, kept)
    return Stage(
        ref=_stored(bench.ref, project, kept),
        repeats=repeats,
        oracle=oracle,
        prompts=kept,
        prompt_set=name,
    )


def _undrawn_stage(
    bench: Bench, case: Case, kept: tuple[Prompt, ...], name: str, project: Project
) -> Stage:
    """Ref as it is stored, or with the fault in it, beside the stored repeats and the oracle."""
    ids = [prompt.id for prompt in kept]
    stored = _target(bench.ref, project)
    planted = _target(f"{RUN_HERE}:fault={case.id}", project) if case.where == "ref" else stored
    runs_here = planted.folder is None
    ref = _made(planted, project, kept, name) if runs_here else _stored(bench.ref, project, kept)
    repeats, oracle = _beside(stored, project, kept)
    weights = project.weights / f"{ref.manifest.model.weights}.safetensors"
    return Stage(
        ref=trim(ref, ids),
        repeats=tuple(trim(one, ids) for one in repeats),
        oracle=None if oracle is None else trim(oracle, ids),
        prompts=kept,
        prompt_set=name,
        drawn=False,
        weights=None if oracle is None else load_weights(weights),
        config=None if oracle is None else json.loads(project.model_config_file.read_bytes()),
    )


def _beside(
    ref: Target, project: Project, kept: Sequence[Prompt]
) -> tuple[tuple[Side, ...], Side | None]:
    """Stored repeats of ``ref``, and the oracle."""
    names = [one for one in project.repeats(ref.name) if project.folder(one).is_dir()]
    has_oracle = ORACLE in project.targets and project.folder(ORACLE).is_dir()
    return (
        tuple(_stored(one, project, kept) for one in names),
        _stored(ORACLE, project, kept) if has_oracle else None,
    )


def make_cand(case: Case, stage: Stage, project: Project) -> Side:
    """The candidate's capture; made where no earlier one is of the same sources and options."""
    made = _made(_cand(case, project), project, stage.prompts, stage.prompt_set)
    return made if stage.drawn else trim(made, [prompt.id for prompt in stage.prompts])


def stage_key(case: Case, stage: Stage, project: Project) -> dict[str, str]:
    """What the numbers of a case rest on, by name; a row of another machine is as good as one here."""
    target = _cand(case, project)
    others = [stage.ref, *stage.repeats, *(() if stage.oracle is None else (stage.oracle,))]
    made = _key(target, project, stage.prompts, stage.prompt_set)
    kept = {name: value for name, value in made.items() if name not in _OF_MACHINE}
    return {
        "case": repr(case),
        "cand": json.dumps(kept, sort_keys=True),
        "beside": json.dumps([_beside_key(side) for side in others]),
    }


def _beside_key(side: Side) -> str:
    """A stored capture by its digest; one that is made here by what it is made from."""
    told = side.manifest
    if getattr(side, "digest", None) is None and not told.target.startswith(RUN_HERE):
        return capture_digest(side)
    return f"{told.target} {told.sources_digest} {told.prompt_digest} {told.model.weights_digest}"


def digest(key: dict[str, str]) -> str:
    """SHA-256 of a key."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


def _cand(case: Case, project: Project) -> Target:
    """Cand's target, with the keys that only a selftest may set."""
    return _with(_longer(_target(case.target, project), case.sample.tokens), case.options)


def _with(target: Target, options: Mapping[str, str]) -> Target:
    if not options:
        return target
    text = ",".join(f"{key}={value}" for key, value in options.items())
    return replace(
        target,
        options={**target.options, **options},
        text=f"{target.text}{',' if target.options else ':'}{text}",
    )


def _target(text: str, project: Project) -> Target:
    return parse_target(text, project, faults=FAULT_SIDES)


def _longer(target: Target, tokens: int | None) -> Target:
    if tokens is None or "tokens" in target.options:
        return target
    return _with(target, {"tokens": str(tokens)})


def _stored(name: str, project: Project, prompts: Sequence[Prompt]) -> Side:
    found = open_stored(_target(name, project), project)
    if found.stale is not None:
        raise CaptureError(found.stale)
    return subset(open_capture(found.path, label=name), [prompt.id for prompt in prompts])


def _key(
    target: Target, project: Project, prompts: Sequence[Prompt], prompt_set: str
) -> dict[str, str]:
    return capture_key(
        target,
        project=project,
        prompts=prompts,
        prompt_set=prompt_set,
        device=choose_device(target, None),
        environ=os.environ,
    )


def _made(target: Target, project: Project, prompts: Sequence[Prompt], prompt_set: str) -> Side:
    found = resolve(
        target,
        project=project,
        prompts=prompts,
        prompt_set=prompt_set,
        fresh=False,
        progress=lambda _done, _total, _what: None,
        environ=os.environ,
    )
    return open_capture(found.path, label=target.text)
