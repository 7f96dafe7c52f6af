"""The captures of one case: the reference and what stands beside it, and the candidate."""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from validate.capture.project import Project
from validate.capture.reader import open_capture
from validate.capture.resolve import capture_key, choose_device, open_stored, resolve
from validate.capture.subset import subset
from validate.capture.targets import Target, parse_target
from validate.errors import CaptureError, InputError
from validate.faults import FAULT_SIDES
from validate.run.sides import capture_digest
from validate.schema import Prompt, Side
from validate.schema.suite import Suite
from validate.selftest.cases import Area, Case, drawn_from, random_prompts
from validate.suite import load_prompts

__all__ = ["ORACLE", "Bench", "Stage", "make_cand", "set_stage", "stage_key"]

ORACLE = "oracle"
"""Name of the target that is taken as the truth."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """All that a comparison needs beside its candidate."""

    ref: Side
    repeats: tuple[Side, ...]
    oracle: Side | None
    prompts: tuple[Prompt, ...]
    prompt_set: str


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
    elif sample.prompts == "all":
        asked, name = drawn_from(asked), f"{name}-drawn"
    chosen = bench.prompts if sample.prompts != "random" else ()
    kept = tuple(p for p in asked if area.wants(p) and (not chosen or p.id in chosen))
    if not kept:
        msg = f"selftest of {area.name}: none of the prompts {', '.join(chosen)} is one of its"
        raise InputError(msg)
    stands_in = RUN_HERE if sample.prompts != "default" else None
    target = _target(sample.ref or stands_in or bench.ref, project)
    if target.folder is None:
        ref = _made(_longer(target, sample.tokens), project, kept, name)
        return Stage(ref=ref, repeats=(), oracle=None, prompts=kept, prompt_set=name)
    beside = [one for one in project.repeats(target.name) if project.folder(one).is_dir()]
    has_oracle = ORACLE in project.targets and project.folder(ORACLE).is_dir()
    return Stage(
        ref=_stored(bench.ref, project, kept),
        repeats=tuple(_stored(one, project, kept) for one in beside),
        oracle=_stored(ORACLE, project, kept) if has_oracle else None,
        prompts=kept,
        prompt_set=name,
    )


def make_cand(case: Case, stage: Stage, project: Project) -> Side:
    """The candidate's capture; made where no earlier one is of the same sources and options."""
    target = _longer(_target(case.target, project), case.sample.tokens)
    return _made(target, project, stage.prompts, stage.prompt_set)


def stage_key(case: Case, stage: Stage, project: Project) -> dict[str, str]:
    """What the numbers of a case rest on, by name."""
    target = _longer(_target(case.target, project), case.sample.tokens)
    others = [stage.ref, *stage.repeats, *(() if stage.oracle is None else (stage.oracle,))]
    return {
        "case": repr(case),
        "cand": json.dumps(_key(target, project, stage.prompts, stage.prompt_set), sort_keys=True),
        "beside": json.dumps([capture_digest(side) for side in others]),
    }


def digest(key: dict[str, str]) -> str:
    """SHA-256 of a key."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


def _target(text: str, project: Project) -> Target:
    return parse_target(text, project, faults=FAULT_SIDES)


def _longer(target: Target, tokens: int | None) -> Target:
    if tokens is None or "tokens" in target.options:
        return target
    options = {**target.options, "tokens": str(tokens)}
    text = f"{target.text}{',' if target.options else ':'}tokens={tokens}"
    return Target(kind=target.kind, name=target.name, options=options, text=text, path=target.path)


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
