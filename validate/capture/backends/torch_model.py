"""Backend of the paths that run here: the torch model over a prompt set, batch by batch."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import torch

from validate.capture.backends._drawn import SPECULATIVE, Drawn
from validate.capture.backends._speculative_options import (
    Chosen,
    choose,
    require_fault_site,
    speculative_options,
)
from validate.capture.backends.evals_beside import EvalsAsked, room_beside, start_evals
from validate.capture.backends.lm_eval_run import task_names
from validate.capture.backends.torch_batch import (
    STREAM_TOKENS,
    Runner,
    looked_inside,
    run_batch,
)
from validate.capture.backends.torch_paths import PATH_DEFAULTS, make_runner
from validate.capture.backends.torch_speculative import Speculation
from validate.capture.digest import file_sha256, json_sha256, prompt_set_digest
from validate.capture.eval_plan import EvalPlan, plan_digest
from validate.capture.messages import capture_error, some
from validate.capture.project import DEFAULT_WEIGHTS, Project, find_project
from validate.capture.provenance import collect_provenance, sources_digest
from validate.capture.reader import open_capture
from validate.capture.writer import CaptureWriter
from validate.errors import InputError
from validate.models import (
    load_config,
)
from validate.models.plain import Target
from validate.schema import (
    CaptureHeader,
    Deviation,
    Manifest,
    ModelConfig,
    ModelIdentity,
    PathProof,
    Prompt,
)

__all__ = ["DEVIATIONS", "SPECULATIVE", "STREAM_TOKENS", "model_identity", "record"]

TOKENIZER = {"kind": "bytes", "bos": 256, "eos": 257, "pad": 258}

DEVIATIONS: Mapping[tuple[str, str], Deviation] = {
    ("prefill", "fp8"): Deviation(
        id="prefill-fp8",
        title="prefill operands q, k, v in float8_e4m3fn with scale 1.0",
        expected="each operand rounded to 3 mantissa bits: relative error up to 2^-4 an element",
    ),
    ("prefill", "fp8-fnuz"): Deviation(
        id="prefill-fp8-fnuz",
        title="prefill operands q, k, v in float8_e4m3fnuz with scale 1.0",
        expected="each operand rounded to 3 mantissa bits, saturating at 240",
    ),
    ("state", "bf16"): Deviation(
        id="state-bf16",
        title="KDA recurrent state stored in bfloat16 between passes",
        expected="relative error up to 2^-9 an element and pass, carried along the recurrence",
    ),
}
"""What an option declares as different by intent."""


def _batches(prompts: Sequence[Prompt], size: int) -> Iterator[list[Prompt]]:
    """Neighbours share a batch, in the order of the set; looked inside of or not, never mixed."""
    for _, run in groupby(prompts, key=looked_inside):
        group = list(run)
        for start in range(0, len(group), size):
            yield group[start : start + size]


def model_identity(config: ModelConfig, *, weights: str, weights_path: Path) -> ModelIdentity:
    """Digests that say which model a capture is of."""
    return ModelIdentity(
        name=config.name,
        architecture="kimi-k3-text",
        config_digest=json_sha256(config.model_dump(mode="json")),
        weights_digest=file_sha256(weights_path),
        weights=weights,
        tokenizer_digest=json_sha256(TOKENIZER),
        tokenizer_length=config.tokenizer_length,
        vocab_size=config.vocab_size,
    )


def _require_tokens(prompts: Sequence[Prompt], vocab: int) -> None:
    """Refuse token ids that the embedding has no row for.

    Raises:
        InputError: Names the first prompt and position.
    """
    for prompt in prompts:
        for position, token in enumerate(prompt.token_ids):
            if not 0 <= token < vocab:
                msg = (
                    f"prompt '{prompt.id}' position {position}: token id {token} is outside the "
                    f"vocabulary 0..{vocab - 1}\n  do next: correct the prompt set"
                )
                raise InputError(msg)


_SUMS = {"tf32": "off", "reduced_precision_reduction": "off"}


def _sum_wide() -> None:
    """Have the vendor's GEMM multiply float32 in full and add bfloat16 products in float32."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def _quiet(done: int, total: int, what: str) -> None:
    """Tell nobody."""


def record(
    *,
    path: str,
    options: Mapping[str, str],
    target: str,
    prompts: Sequence[Prompt],
    prompt_set: str,
    out: Path,
    device: str,
    resume: bool = False,
    evals: EvalPlan | None = None,
    command: Sequence[str] | None = None,
    progress: Callable[[int, int, str], None] = _quiet,
) -> Manifest:
    """Run ``path`` over ``prompts`` and write the capture.

    Args:
        path: ``reference`` or ``rocm``.
        options: Keys of the target, e.g. ``{"pad": "tile"}``.
        target: The target's text, for the manifest.
        prompts: The prompt set; a prompt tagged ``tensors`` is looked inside of.
        prompt_set: Its name.
        out: Folder of the capture.
        device: ``cpu``, ``cuda`` or ``rocm``.
        resume: Take up an interrupted recording.
        evals: Downstream evals to run as well; with them the prompt set may be empty.
        command: The command that takes it up, as ``resume_command`` wants it; None: not known.
        progress: Told (prompts done, prompts in all, one line).

    Returns:
        The manifest.

    Raises:
        InputError: An option or the weights do not fit.
        CaptureError: The capture cannot be written.
    """
    if not prompts and evals is None:
        msg = (
            f"target '{target}': the prompt set '{prompt_set}' holds no prompt; nothing to capture"
        )
        raise InputError(msg)
    _sum_wide()
    project = find_project(Path.cwd())
    config = load_config(project.model_config_file)
    _require_tokens(prompts, config.vocab_size)
    torch_device = "cuda" if device == "rocm" else device
    runner = make_runner(path, options, project=project, device=torch_device)
    used = dict(PATH_DEFAULTS[path]) | {k: v for k, v in options.items() if k != "weights"}
    drawn = any(SPECULATIVE in prompt.tags for prompt in prompts)
    if drawn:
        used |= speculative_options(path, options, has_drafter=project.drafter is not None)
    require_fault_site(used, drawn=drawn)
    chosen = None
    if drawn:
        chosen = choose(
            Target(weights=runner.weights, config=config, options=runner.options),
            used,
            project=project,
            device=torch_device,
            chunk=runner.chunk,
            trace=runner.trace,
        )
    with room_beside(evals is not None and bool(prompts), device=torch_device) as beside:
        header = CaptureHeader(
            target=target,
            dtype=str(runner.options.dtype).removeprefix("torch."),
            model=_identity(options, config, project=project, drafted=chosen),
            declared_weights="weights" in options,
            prompt_set=prompt_set,
            prompt_digest=prompt_set_digest(prompts),
            sampling={"kind": "greedy", "max_tokens": str(STREAM_TOKENS), "ignore_eos": "true"},
            options=used,
            provenance=collect_provenance(
                device=device, engine_args={"path": path, **_SUMS, **options}
            ),
            evidence="hardware" if device == "cuda" and path == "reference" else "emulated",
            deviations=tuple(d for key, d in DEVIATIONS.items() if options.get(key[0]) == key[1]),
            fault=runner.options.fault,
            sources_digest=sources_digest("models", "capture"),
        )
        asked = None
        if evals is not None:
            asked = EvalsAsked(
                path=path,
                options=options,
                device=torch_device,
                plan=evals,
                header=header,
                resume=resume,
                recording="",
                beside=beside,
            )
        return _write(
            runner,
            prompts,
            header,
            path=path,
            out=out,
            batch=int(used["batch"]),
            speculation=None if chosen is None else chosen.run,
            evals=asked,
            resume=resume,
            command=command,
            progress=progress,
        )


def _identity(
    options: Mapping[str, str], config: ModelConfig, *, project: Project, drafted: Chosen | None
) -> ModelIdentity:
    name = options.get("weights", DEFAULT_WEIGHTS)
    identity = model_identity(
        config, weights=name, weights_path=project.weights / f"{name}.safetensors"
    )
    digest = None if drafted is None else drafted.drafter_digest
    return identity.model_copy(update={"drafter_digest": digest})


def _require_tasks(out: Path, plan: EvalPlan, target: str) -> None:
    """Refuse to give a whole capture for one with other evals; a manifest keeps no plan.

    Raises:
        CaptureError: Its tasks are others, or ran on more documents than are wanted.
    """
    held = open_capture(out, label=target).evals
    docs = {} if held is None else {task.name: task.docs for task in held.tasks.values()}
    wanted = task_names(plan.tasks, plan.names)
    most = max(docs.values(), default=0)
    if docs.keys() == set(wanted) and (plan.limit is None or most <= plan.limit):
        return
    limit = "all" if plan.limit is None else f"at most {plan.limit}"
    raise capture_error(
        target,
        out,
        "is whole, with other lm-eval tasks than are given now; nothing was run",
        facts={
            "stored": f"{some(docs)}, up to {most} documents",
            "now": f"{some(list(wanted))}, {limit} documents",
        },
        do_next="name another folder",
    )


def _write(
    runner: Runner,
    prompts: Sequence[Prompt],
    header: CaptureHeader,
    *,
    path: str,
    out: Path,
    batch: int,
    speculation: Speculation | None,
    evals: EvalsAsked | None,
    resume: bool,
    command: Sequence[str] | None,
    progress: Callable[[int, int, str], None],
) -> Manifest:
    def proof() -> PathProof:
        return PathProof(path=path, branches=dict(runner.trace.branches))

    began, finished = time.perf_counter(), 0
    with (
        CaptureWriter(
            out,
            header=header,
            resume=resume,
            command=command,
            evals=evals is not None,
            eval_plan=None if evals is None else plan_digest(evals.plan),
        ) as writer,
        contextlib.ExitStack() as stack,
    ):
        stored = writer.done
        if evals is not None and writer.complete:
            _require_tasks(out, evals.plan, header.target)
        scoring = None
        if evals is not None and not writer.complete:
            scoring = stack.enter_context(
                start_evals(replace(evals, recording=writer.recording), runner)
            )
        drawn = Drawn(speculation, prompts, batch=batch, stored=stored)
        for group in _batches(prompts, batch):
            if not {p.id for p in group} <= stored:
                for row, made in enumerate(run_batch(runner, group)):
                    if made.prompt.id not in stored:
                        more = drawn.of(made.prompt)
                        writer.add(
                            made.prompt,
                            made.tensors | more.tensors,
                            stream=made.stream,
                            batch_row=row,
                            drawn=more.streams,
                            proof=proof(),
                        )
            finished += len(group)
            progress(finished, len(prompts), header.target)
            if scoring is not None:
                scoring.check()
        seconds = time.perf_counter() - began
        timing = {"capture_seconds": seconds, "speculative_seconds": drawn.seconds}
        found = None
        if scoring is not None:
            scored = scoring.wait(progress)
            found, timing["evals_seconds"] = scored.evals, scored.seconds
            runner.trace.branches.update(scored.branches)
        return writer.close(path_proof=proof(), timing=timing, evals=found)
