"""From a target to a capture on disk: open what is stored, make what is not."""

import contextlib
import errno
import fcntl
import hashlib
import importlib.metadata
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from validate.capture.devices import card_name, choose_device, processors
from validate.capture.eval_plan import EvalPlan, plan_evals, tasks_digest
from validate.capture.format import MANIFEST
from validate.capture.goldens import VERIFIED_NAME, stale_reason
from validate.capture.importers import is_lm_eval_folder
from validate.capture.messages import resume_command
from validate.capture.project import DEFAULT_WEIGHTS, Project
from validate.capture.provenance import (
    cpu_flags,
    digest_files,
    numeric_environment,
    source_state,
    sources_digest,
)
from validate.capture.resume import taken_up_by, to_take_up, with_next_step
from validate.capture.targets import Target
from validate.errors import CaptureError, InputError
from validate.schema import Prompt

__all__ = [
    "Progress",
    "Resolved",
    "capture_key",
    "open_stored",
    "record_path",
    "record_target",
    "resolve",
]

Progress = Callable[[int, int, str], None]
"""Called with (done, total, what): prompts done, prompts in all, one line for the reader."""

SAMPLES = "samples_*.jsonl"
"""What lm-eval writes beside its results with ``--log_samples``."""
_CANNOT_WRITE = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.EIO,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """Where the capture of a target lies."""

    path: Path
    reused: bool
    """True when a capture that was made for this name earlier was taken as it is."""
    label: str
    """The target as the user wrote it."""
    target: Target
    stale: str | None = None
    """Why a golden may not be used, with the next step; None when it may."""


def resolve(
    target: Target,
    *,
    project: Project,
    prompts: Sequence[Prompt],
    prompt_set: str,
    fresh: bool,
    progress: Progress,
    environ: Mapping[str, str],
    runs_dir: Path | None = None,
    make: bool = True,
    tasks: Path | None = None,
) -> Resolved:
    """Find the capture of ``target``, or make it.

    A folder or golden is taken as it is. A path that runs here is captured
    under ``runs_dir``, in a folder named by the digest of everything that its
    numbers depend on, and taken from there as long as that digest is the same.

    Args:
        target: What :func:`validate.capture.targets.parse_target` returned.
        project: The ``validate.toml`` in force.
        prompts: Prompts to capture when one has to be made.
        prompt_set: Name of that prompt set.
        fresh: Make the capture anew even if one could be reused.
        progress: Told of every prompt that is done.
        environ: The process's environment, as part of the digest.
        runs_dir: Where captures are made; ``project.runs`` when None.
        make: False to say where the capture lies or would lie, and make nothing.
        tasks: Folder of lm-eval tasks that a capture made here runs too; None: no evals.

    Raises:
        InputError: The path cannot run here (no such device or kernels).
        CaptureError: The folder holds no whole capture, or one cannot be written.
        KeyboardInterrupt: As raised meanwhile, with how what is there is taken up.
    """
    if target.folder is not None:
        return open_stored(target, project)
    device = choose_device(target, None)
    key = capture_key(
        target,
        project=project,
        prompts=prompts,
        prompt_set=prompt_set,
        device=device,
        environ=environ,
        tasks=tasks,
    )
    runs = project.runs if runs_dir is None else runs_dir
    out = runs / f"{target.name}-{_digest(key)[:20]}"
    if not make:
        reused = (out / MANIFEST).is_file() and not fresh
        return Resolved(path=out, reused=reused, label=target.text, target=target)
    with _writing(runs), _only_one(out.with_name(f"{out.name}.lock")):
        if (out / MANIFEST).is_file() and not fresh:
            return Resolved(path=out, reused=True, label=target.text, target=target)
        resume = _prepare(out, key, fresh=fresh)
        try:
            record_target(
                target,
                prompts=prompts,
                prompt_set=prompt_set,
                out=out,
                device=device,
                resume=resume,
                evals=None if tasks is None else plan_evals(tasks, out, project=project),
                command=(),
                progress=progress,
            )
        except CaptureError as error:
            raise with_next_step(error, out) from error
        except KeyboardInterrupt as error:
            told = to_take_up(out)
            if told is None:
                raise
            raise KeyboardInterrupt(told + " without --fresh" * fresh) from error
    return Resolved(path=out, reused=False, label=target.text, target=target)


def record_target(
    target: Target,
    *,
    prompts: Sequence[Prompt],
    prompt_set: str,
    out: Path,
    device: str,
    resume: bool,
    progress: Progress,
    evals: EvalPlan | None = None,
    command: Sequence[str] | None = None,
) -> None:
    """Run the path of ``target`` over ``prompts`` and write the capture to ``out``.

    ``command`` is the command that takes it up, as ``resume_command`` wants it.

    Raises:
        InputError: ``target`` is a stored capture; nothing runs for it here.
    """
    if target.path is None:
        msg = (
            f"target '{target.text}' is a stored capture; only paths that run here are captured\n"
            "  do next: validate golden record, or name a target of kind torch "
            "(validate list targets)"
        )
        raise InputError(msg)
    record_path(
        target.path,
        options=target.options,
        label=canonical_text(target),
        prompts=prompts,
        prompt_set=prompt_set,
        out=out,
        device=device,
        resume=resume,
        evals=evals,
        command=command,
        progress=progress,
    )


def record_path(
    path: str,
    *,
    options: Mapping[str, str],
    label: str,
    prompts: Sequence[Prompt],
    prompt_set: str,
    out: Path,
    device: str,
    resume: bool,
    progress: Progress,
    evals: EvalPlan | None = None,
    command: Sequence[str] | None = None,
) -> None:
    """Run ``path`` of the torch model with ``options``; ``label`` is the manifest's target."""
    progress(0, 0, f"{label}: loading the model")
    from validate.capture.backends.torch_model import record

    record(
        path=path,
        options=options,
        target=label,
        prompts=prompts,
        prompt_set=prompt_set,
        out=out,
        device=device,
        resume=resume,
        evals=evals,
        command=command,
        progress=progress,
    )


def canonical_text(target: Target) -> str:
    """The target with its keys in alphabetical order, so that order makes no second capture."""
    pairs = ",".join(f"{key}={value}" for key, value in sorted(target.options.items()))
    return f"{target.name}:{pairs}" if pairs else target.name


def capture_key(
    target: Target,
    *,
    project: Project,
    prompts: Sequence[Prompt],
    prompt_set: str,
    device: str,
    environ: Mapping[str, str],
    tasks: Path | None = None,
) -> dict[str, str]:
    """Everything that the numbers of a capture depend on, by name; torch is not imported.

    CPU capability and thread count stand in it by what decides them: the
    processor's flags, the processors this process may use and the environment.
    """
    weights = project.weights / f"{target.options.get('weights', DEFAULT_WEIGHTS)}.safetensors"
    prompt_text = "\n".join(prompt.model_dump_json() for prompt in prompts)
    return {
        "target": canonical_text(target),
        "path": str(target.path),
        "sources": sources_digest("models", "capture"),
        "weights": _file_digest(weights),
        "model_config": _file_digest(project.model_config_file),
        "drafter": "none" if project.drafter is None else _file_digest(project.drafter),
        "drafter_config": (
            "none" if project.drafter_config is None else _file_digest(project.drafter_config)
        ),
        "prompt_set": prompt_set,
        "prompts": hashlib.sha256(prompt_text.encode()).hexdigest(),
        "tasks": "none" if tasks is None else tasks_digest(tasks),
        "torch": importlib.metadata.version("torch"),
        "device": device,
        "card": card_name(device),
        "cpu": hashlib.sha256(cpu_flags().encode()).hexdigest(),
        "processors": str(processors()),
        "environment": json.dumps(numeric_environment(environ)),
    }


def open_stored(target: Target, project: Project) -> Resolved:
    """The capture of a target that is a folder, with what makes it stale, if anything.

    Raises:
        InputError: ``target`` is a path that runs here.
        CaptureError: The folder is missing or holds no whole capture.
    """
    folder = target.folder
    if folder is None:
        msg = f"target '{target.text}' runs here; it is no stored capture"
        raise InputError(msg)
    if not (folder / MANIFEST).is_file() and not is_lm_eval_folder(folder):
        _refuse_bare_samples(folder, target.text)
        missing = "no such folder" if not folder.is_dir() else f"no {MANIFEST} in it"
        hides = target.kind == "folder" and target.name in project.targets
        why = f"\n  note   : this folder hides the target named {target.name}" if hides else ""
        again = (
            f"validate golden record {target.name}"
            if target.kind == "golden"
            else taken_up_by(folder) or resume_command(Path(target.name))
        )
        msg = f"'{target.text}': {folder} is no whole capture: {missing}{why}\n  do next: {again}"
        raise CaptureError(msg)
    held = target.kind == "golden" or (folder / VERIFIED_NAME).exists()
    stale = stale_reason(target.name, folder) if held else None
    return Resolved(path=folder, reused=False, label=target.text, target=target, stale=stale)


def _refuse_bare_samples(folder: Path, name: str) -> None:
    """Samples of lm-eval without the results file that says what they are of.

    Raises:
        CaptureError: The folder, or one in it, holds such samples.
    """
    found = sorted([*folder.glob(SAMPLES), *folder.glob(f"*/{SAMPLES}")])
    if found:
        msg = (
            f"'{name}': {folder} holds {len(found)} sample files of lm-eval, e.g. {found[0].name}, and "
            "no results_*.json beside them, which says tasks, versions and metrics\n"
            "  do next: copy results_*.json of the same run beside them, or run lm-eval once more with "
            "--log_samples and --output_path"
        )
        raise CaptureError(msg)


def _prepare(out: Path, key: Mapping[str, str], *, fresh: bool) -> bool:
    """Write the key beside ``out`` and clear what cannot be continued; whether to resume.

    A capture is continued only from the commit and patch it was begun with,
    for its manifest names one of each.
    """
    commit, patch = source_state()
    note = dict(key) | {"source_commit": str(commit), "patch_digest": str(patch)}
    text = json.dumps(note, indent=1, sort_keys=True, allow_nan=False) + "\n"
    beside = out.with_name(f"{out.name}.key.json")
    same = beside.is_file() and beside.read_text("utf-8") == text
    if out.exists() and (fresh or not same):
        shutil.rmtree(out)
    beside.write_text(text, "utf-8")
    return out.exists()


def _digest(key: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


def _file_digest(path: Path) -> str:
    return digest_files([path], root=path.parent) if path.is_file() else "absent"


@contextlib.contextmanager
def _writing(runs: Path) -> Iterator[None]:
    try:
        runs.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        if error.errno not in _CANNOT_WRITE:
            raise
        msg = (
            f"{error.filename or runs}: the capture could not be written: {error.strerror}\n"
            "  do next: free space or name another folder (validate capture --out); "
            "an unfinished capture is taken up again"
        )
        raise CaptureError(msg) from error


@contextlib.contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    """Hold ``lock`` so that two runs never write one capture; the system frees it on a crash."""
    with lock.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
