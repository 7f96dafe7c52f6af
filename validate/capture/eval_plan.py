"""Which evals go into a capture, and where their files lie."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from validate.capture.digest import json_sha256
from validate.capture.project import Project
from validate.capture.provenance import digest_files

__all__ = ["EvalPlan", "plan_digest", "plan_evals", "tasks_digest"]

TASK_FILES = (".yaml", ".jsonl", ".json", ".py")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalPlan:
    """Tasks to run on the model of a capture."""

    tasks: Path
    """Folder of lm-eval task files."""
    results: Path
    """Folder for the files that lm-eval itself would write."""
    cache: Path
    """Folder of answers, one file a model."""
    root: Path
    """Folder that ``data_files`` of the tasks are relative to."""
    names: tuple[str, ...] = ()
    """Tasks to run; empty: all of the folder."""
    limit: int | None = None
    """Documents of each task; None: all."""


def plan_evals(
    tasks: Path,
    out: Path,
    *,
    project: Project,
    names: Sequence[str] = (),
    limit: int | None = None,
) -> EvalPlan:
    """Tasks for the capture at ``out``; lm-eval's own files lie beside it, answers under ``runs``."""
    return EvalPlan(
        tasks=tasks,
        results=out.with_name(f"{out.name}.lm-eval"),
        cache=project.runs / "evals-answers",
        root=project.root,
        names=tuple(names),
        limit=limit,
    )


def plan_digest(plan: EvalPlan) -> str:
    """SHA-256 over which evals are run: the tasks' files, their names and how many documents."""
    files = tasks_digest(plan.tasks)
    return json_sha256({"tasks": files, "names": sorted(set(plan.names)), "limit": plan.limit})


def tasks_digest(tasks: Path) -> str:
    """SHA-256 over the files that define and feed the tasks of a folder."""
    files = [path for path in tasks.rglob("*") if path.suffix in TASK_FILES]
    return digest_files(files, root=tasks)
