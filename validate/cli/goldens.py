"""``validate golden record``: stored captures, made anew beside the old and then put in place."""

import datetime as dt
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from validate.capture.format import JOURNAL, MANIFEST
from validate.capture.goldens import Backend, How, Verified, backend_digest, write_verified
from validate.capture.messages import GOLDEN_RECORD, resume_command
from validate.capture.reader import open_capture
from validate.capture.resolve import Progress
from validate.capture.resume import taken_up_by
from validate.cli.recipes import chosen_goldens, device_for, record_recipe
from validate.cli.recording import recording
from validate.cli.session import open_project, read_prompts
from validate.errors import InputError

__all__ = ["note_for", "record_goldens"]


def record_goldens(
    names: Sequence[str],
    *,
    device: str | None,
    prompts: Path | None,
    resume: bool,
    progress: Progress,
    tasks: Path | None = None,
) -> tuple[Path, ...]:
    """Record goldens by their recipes and return their folders.

    Every name and device is checked before the first one is recorded. The old
    golden stays in place until the new one is whole.

    Raises:
        InputError: A name is no golden, a device is not here, or an unfinished recording is to
            be begun anew.
        CaptureError: A capture cannot be written.
    """
    project = open_project()
    chosen = chosen_goldens(names, project)
    if tasks is not None and all(recipe.backend == "oracle" for recipe in chosen.values()):
        msg = (
            f"--tasks {tasks}: {', '.join(chosen)} is the oracle, which runs no evals\n"
            "  do next: leave --tasks out, or name a golden of the torch model too"
        )
        raise InputError(msg)
    devices = {name: device_for(name, recipe, wanted=device) for name, recipe in chosen.items()}
    prompt_set, held = read_prompts(prompts, project)
    commands = {
        name: _command(name, device=device, prompts=prompts, tasks=tasks) for name in chosen
    }
    partials = {name: _partial(project.folder(name)) for name in chosen}
    for name, partial in partials.items():
        if not resume:
            _refuse_unfinished(name, partial, commands[name])
    folders = []
    for name, recipe in chosen.items():
        folder, partial = project.folder(name), partials[name]
        if partial.exists() and not resume:
            shutil.rmtree(partial)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with recording(partial, option=None):
            record_recipe(
                name,
                recipe,
                project=project,
                prompts=held,
                prompt_set=prompt_set,
                out=partial,
                device=devices[name],
                resume=resume,
                tasks=tasks,
                command=commands[name],
                progress=progress,
            )
            write_verified(partial, note_for(recipe.backend, partial, how="recorded"))
        _swap(partial, folder)
        folders.append(folder)
    return tuple(folders)


def _command(
    name: str, *, device: str | None, prompts: Path | None, tasks: Path | None
) -> tuple[str, ...]:
    """What takes the recording up; places in full, for it may be given from another folder."""
    given = ["--device", device] if device else []
    for key, place in (("--prompts", prompts), ("--tasks", tasks)):
        given += [] if place is None else [key, str(place.absolute())]
    return (GOLDEN_RECORD, name, *given)


def _partial(folder: Path) -> Path:
    """Where a golden is recorded before it is put in its place."""
    return folder.with_name(f".{folder.name}.partial")


def _refuse_unfinished(name: str, partial: Path, command: Sequence[str]) -> None:
    """Hours of recording are not deleted unasked.

    Raises:
        InputError: ``partial`` holds a recording.
    """
    if not any(os.path.lexists(partial / held) for held in (JOURNAL, MANIFEST)):
        return
    again = taken_up_by(partial) or resume_command(partial, name, command)
    msg = (
        f"'{name}': {partial} holds an unfinished recording; nothing was done\n"
        f"  do next: {again}, or remove {partial} to begin anew"
    )
    raise InputError(msg)


def note_for(backend: Backend, capture: Path, *, how: How, sample: Sequence[str] = ()) -> Verified:
    """The note that a golden holds for today's source, as the capture at ``capture`` shows."""
    made = open_capture(capture, label=capture.name).manifest.provenance
    return Verified(
        backend=backend,
        source_digest=backend_digest(backend),
        how=how,
        device=made.device,
        hardware=made.hardware,
        date=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        sample=tuple(sample),
    )


def _swap(new: Path, place: Path) -> None:
    """Put ``new`` where ``place`` is; the old folder goes only after the new one stands."""
    old = place.with_name(f".{place.name}.old")
    if old.exists():
        shutil.rmtree(old)
    if place.exists():
        place.rename(old)
    new.rename(place)
    if old.exists():
        shutil.rmtree(old)
