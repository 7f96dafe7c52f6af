"""``validate eval``: lm-eval's tasks on a path that runs here, into a capture."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["HELP", "evaluate"]

HELP = "Run lm-eval tasks on a path that runs here, into a capture."


def evaluate(
    *,
    target: Annotated[str, typer.Option(help="What to run: reference or rocm, with their keys.")],
    tasks: Annotated[Path, typer.Option(help="Folder of lm-eval task files.")],
    out: Annotated[Path, typer.Option(help="Folder that the capture is written to.")],
    task: Annotated[
        list[str] | None, typer.Option(help="Only this task; may be given again.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Documents of each task; all if not given.")
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Also capture the prompt set of the default suite.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Take up an interrupted run, item by item.")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or rocm; by default rocm where there is one.")
    ] = None,
) -> int:
    """Check everything, then run, then say where the capture and lm-eval's files lie."""
    from validate.capture.devices import choose_device
    from validate.capture.eval_plan import plan_evals
    from validate.capture.resolve import record_target
    from validate.cli.eval_text import check_folder, require_lm_eval, summary
    from validate.cli.progress import show_progress
    from validate.cli.recording import recording
    from validate.cli.session import open_project, read_prompts, read_target

    project = open_project()
    wanted = read_target(target, project)
    where = choose_device(wanted, device)
    require_lm_eval()
    plan = plan_evals(tasks, out, project=project, names=task or (), limit=limit)
    check_folder(plan, out, resume=resume)
    name, chosen = read_prompts(None, project) if whole else ("none", ())
    # The place in full: the command may be given from another folder.
    options = (("--tasks", tasks.absolute()), *(("--task", name) for name in task or ()))
    options += (("--limit", limit), ("--device", device))
    given = [word for name, value in options if value for word in (name, str(value))]
    command = ("eval", *given, *(("--whole",) if whole else ()))
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
    print(summary(out, plan.results))
    return 0
