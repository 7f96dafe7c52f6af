"""``validate capture``: record a path that runs here."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["HELP", "capture"]

HELP = "Record a path that runs here, into a folder."


def capture(
    *,
    target: Annotated[
        str, typer.Option(help="What to record: reference or rocm, with their keys.")
    ],
    out: Annotated[Path, typer.Option(help="Folder that the capture is written to.")],
    prompts: Annotated[
        Path | None, typer.Option(help="Prompt set; the one of the default suite if not given.")
    ] = None,
    tasks: Annotated[
        Path | None, typer.Option(help="Folder of lm-eval tasks to run as well.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Take up an interrupted capture.")] = False,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or rocm; by default rocm where there is one.")
    ] = None,
) -> int:
    """Check everything, then record, then say where the capture lies."""
    from validate.capture.devices import choose_device
    from validate.capture.eval_plan import plan_evals
    from validate.capture.places import fit_folder
    from validate.capture.resolve import record_target
    from validate.cli.progress import show_progress
    from validate.cli.recording import recording
    from validate.cli.session import open_project, read_prompts, read_target
    from validate.errors import InputError

    project = open_project()
    wanted = read_target(target, project)
    where = choose_device(wanted, device)
    name, chosen = read_prompts(prompts, project)
    plan = None
    if tasks is not None:
        from validate.cli.eval_text import check_folder, require_lm_eval

        require_lm_eval()
        plan = plan_evals(tasks, out, project=project)
        check_folder(plan, out, resume=True)
    fit_folder("--out", out)
    if out.is_dir() and not resume and any(out.iterdir()):
        msg = (
            f"--out {out}: it exists and is not empty\n"
            "  do next: name another folder, or --resume to take up an interrupted capture"
        )
        raise InputError(msg)
    # Places in full: the command may be given from another folder.
    places = (("--prompts", prompts), ("--tasks", tasks))
    given = [w for key, place in places if place for w in (key, str(place.absolute()))]
    given += ["--device", device] if device else []
    command = ("capture", *given)
    with show_progress() as progress, recording(out):
        record_target(
            wanted,
            prompts=chosen,
            prompt_set=name,
            out=out,
            device=where,
            resume=resume,
            evals=plan,
            command=command,
            progress=progress,
        )
    print(out)
    return 0
