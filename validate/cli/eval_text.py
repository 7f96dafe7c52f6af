"""What ``validate eval`` checks beforehand and says afterwards."""

import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path

from validate.capture.backends.lm_eval_run import task_names
from validate.capture.eval_plan import EvalPlan
from validate.capture.places import fit_folder
from validate.capture.reader import open_capture
from validate.errors import InputError
from validate.schema.evals import EvalItem

__all__ = ["check_folder", "require_lm_eval", "summary"]


def require_lm_eval() -> None:
    """Refuse to begin without lm-eval.

    Raises:
        InputError: It is not installed.
    """
    if importlib.util.find_spec("lm_eval") is None:
        msg = "evals need lm-eval, which is not installed\n  do next: pip install 'validate[evals]'"
        raise InputError(msg)


def check_folder(plan: EvalPlan, out: Path, *, resume: bool) -> None:
    """Refuse tasks that are not there and a folder that holds something.

    Raises:
        InputError: Says which.
    """
    task_names(plan.tasks, plan.names)
    fit_folder("--out", out)
    fit_folder("--out", plan.results)
    if out.is_dir() and not resume and any(out.iterdir()):
        msg = (
            f"--out {out}: it exists and is not empty\n"
            "  do next: name another folder, or --resume to take up an interrupted run"
        )
        raise InputError(msg)


def summary(out: Path, results: Path) -> str:
    """One line a task, filter and score, the requests, and where everything lies."""
    evals = open_capture(out, label=out.name).evals
    if evals is None:
        return f"{out}: holds no evals"
    lines = []
    for task in evals.tasks.values():
        for name in task.filters:
            items = [i for i in evals.items if (i.task, i.filter) == (task.name, name)]
            lines += [f"{task.name}  {name}  {score}  n = {len(items)}" for score in _scores(items)]
    if evals.requests is not None:
        asked = evals.requests
        lines.append(f"requests  {asked.asked} asked, {asked.sent} sent, {asked.cached} from cache")
    return "\n".join([*lines, f"capture  {out}", f"lm-eval  {results}"])


def _scores(items: Sequence[EvalItem]) -> list[str]:
    """Mean of every metric; of log-likelihoods alone, their mean an item."""
    metrics = items[0].scores if items else {}
    if not metrics:
        total = math.fsum(value for item in items for value in item.loglikelihoods)
        return [f"log-likelihood {total / len(items):.3f} nats an item"] if items else []
    return [
        f"{name} {math.fsum(item.scores[name] for item in items) / len(items):.4f}"
        for name in metrics
    ]
