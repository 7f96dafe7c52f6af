"""The evals of a capture that is being recorded: tasks on the very weights and path of it."""

from collections import Counter
from collections.abc import Callable

from validate.capture.backends.lm_eval_cache import Answers
from validate.capture.backends.lm_eval_model import CaptureLM
from validate.capture.backends.lm_eval_run import run_tasks
from validate.capture.backends.torch_batch import Runner
from validate.capture.digest import json_sha256
from validate.capture.eval_plan import EvalPlan
from validate.schema import CaptureHeader
from validate.schema.evals import EvalSet

__all__ = ["model_digest", "run_evals"]

_MADE_BY = ("device", "hardware", "arch", "versions", "environment", "threads")
_BOS = 1
"""The byte tokenizer puts one before every prompt."""


def model_digest(header: CaptureHeader) -> str:
    """SHA-256 over all that an answer depends on beside the request.

    Weights and configuration, dtype, options and fault, the source of ``models``
    and ``capture``, versions, device and threads. Two targets never share it.
    """
    said = header.model_dump(
        mode="json", include={"model", "dtype", "options", "deviations", "fault", "sources_digest"}
    )
    made = header.provenance.model_dump(mode="json", include=set(_MADE_BY))
    return json_sha256(said | {"made_by": made})


def run_evals(
    runner: Runner,
    plan: EvalPlan,
    header: CaptureHeader,
    *,
    resume: bool,
    recording: str,
    progress: Callable[[int, int, str], None],
) -> EvalSet:
    """Run the plan's tasks; branches that ran are counted in the runner's trace.

    Args:
        runner: Path, weights and device of the capture.
        plan: The tasks.
        header: Of the capture; keys the answers.
        resume: Take up the answers of an interrupted run of the same model.
        recording: Id of the recording that they are for.
        progress: Told of every batch of requests.

    Raises:
        InputError: A task is unknown or asks for what the model cannot do.
        CaptureError: The answers on disk are another model's.
    """
    answers = Answers(plan.cache, model=model_digest(header), resume=resume, recording=recording)
    runner.trace.wants = lambda _: False
    lm = CaptureLM(runner, answers, name=header.target, progress=progress)
    evals = run_tasks(
        lm,
        plan.tasks,
        results=plan.results,
        root=plan.root,
        names=plan.names,
        limit=plan.limit,
        bos_expected=_BOS,
    )
    runner.trace.branches.update(Counter(answers.branches))
    return evals
