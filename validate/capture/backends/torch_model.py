"""Backend of the paths that run here: the torch model over a prompt set, batch by batch."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from validate.capture.backends._drawn import SPECULATIVE, Drawn
from validate.capture.backends._speculative_options import (
    choose,
    require_fault_site,
    speculative_options,
)
from validate.capture.backends.torch_batch import (
    STREAM_TOKENS,
    Runner,
    looked_inside,
    run_batch,
)
from validate.capture.backends.torch_renorm import RENORM_RULE
from validate.capture.backends.torch_speculative import Speculation
from validate.capture.digest import file_sha256, json_sha256, prompt_set_digest
from validate.capture.eval_plan import EvalPlan
from validate.capture.project import find_project
from validate.capture.provenance import collect_provenance, sources_digest
from validate.capture.writer import CaptureWriter
from validate.errors import InputError
from validate.models import (
    DTYPES,
    REFERENCE_FAULTS,
    RENORM_FAULTS,
    RULES,
    PathOptions,
    TieRule,
    Trace,
    load_config,
    load_weights,
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


_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "reference": {"batch": "8", "chunk": "0", "splits": "1", "renorm": RENORM_RULE["reference"]},
    "rocm": {"batch": "8", "chunk": "32", "splits": "4", "renorm": RENORM_RULE["rocm"]},
}
_STATE_CHUNK = 8
"""Most tokens a pass of the ``chunked`` state capture takes."""
_FAULT_PAD = {"VX-01": "repeat"}
"""The pad that a planted fault needs to have a site."""


def path_options(path: str, options: Mapping[str, str]) -> PathOptions:
    """The model's switches for a target's keys; ``pad=repeat`` sets decode, prefill stays ``zero``.

    Raises:
        InputError: A key that the path does not read, a fault without a site, or a bad value.
    """
    fault = options.get("fault")
    pad = options.get("pad") or _FAULT_PAD.get(fault or "", "zero")
    switches: dict[str, Any] = {
        "path": path,
        "dtype": DTYPES[options.get("dtype", "bfloat16")],
        "state": options.get("state", "fp32"),
        "splits": int(options.get("splits", _DEFAULTS[path]["splits"])),
        "fault": fault,
    }
    if path == "rocm":
        switches |= {
            "prefill_pad": "tile" if pad == "tile" else "zero",
            "decode_pad": pad,
            "prefill": options.get("prefill", "bf16"),
        }
    _require_site(
        path, fault, pad=pad, splits=switches["splits"], renorm=renorm_rule(path, options)
    )
    _require_read(path, options)
    return PathOptions(**switches)


def renorm_rule(path: str, options: Mapping[str, str]) -> TieRule:
    """The tie rule that a target's key ``renorm`` names, else the path's own.

    Raises:
        InputError: There is no such rule.
    """
    asked = options.get("renorm", RENORM_RULE[path])
    for rule in RULES:
        if asked == rule:
            return rule
    msg = f"renorm={asked}: must be one of {', '.join(RULES)}"
    raise InputError(msg)


def _require_site(path: str, fault: str | None, *, pad: str, splits: int, renorm: TieRule) -> None:
    """Refuse a fault whose mechanism the other keys leave no place: it would record a clean run.

    Raises:
        InputError: It has no site.
    """
    wanted = _FAULT_PAD.get(fault or "")
    why = None
    if fault is not None and path != "rocm" and fault not in REFERENCE_FAULTS:
        why = f"path '{path}' has no padded heads and no kernel-like merge"
    elif wanted is not None and pad != wanted:
        why = f"pad={pad}, and its site is the unpad of pad={wanted}"
    elif fault == "VX-02" and pad == "repeat":
        why = "pad=repeat, and its site is the packed read of 16 padded heads"
    elif fault in RENORM_FAULTS and renorm != "exactly_k":
        why = f"renorm={renorm}, and its site is the scatter of renorm=exactly_k"
    elif fault == "LC-01" and splits == 1:
        why = "splits=1, and its site is the merge of two parts or more"
    if why is not None:
        msg = (
            f"fault={fault} has no site here: {why}\n"
            "  do next: leave out the other key; the fault sets what it needs"
        )
        raise InputError(msg)


def _require_read(path: str, options: Mapping[str, str]) -> None:
    """Refuse a key that the path would ignore: the manifest would tell of a run that never was.

    Raises:
        InputError: Names the key.
    """
    for key in ("pad", "prefill"):
        if path == "reference" and key in options:
            msg = (
                f"{key}={options[key]}: path 'reference' does not read the key '{key}'\n"
                f"  do next: leave out {key}, or take the path rocm"
            )
            raise InputError(msg)


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
    name = options.get("weights", "seed1")
    weights_path = project.weights / f"{name}.safetensors"
    switches = path_options(path, options)
    used = dict(_DEFAULTS[path]) | {k: v for k, v in options.items() if k != "weights"}
    drawn = any(SPECULATIVE in prompt.tags for prompt in prompts)
    if drawn:
        used |= speculative_options(path, options, has_drafter=project.drafter is not None)
    require_fault_site(used, drawn=drawn)
    torch_device = "cuda" if device == "rocm" else device
    chunk = int(used["chunk"])
    runner = Runner(
        weights=load_weights(weights_path, config, dtype=switches.dtype, device=torch_device),
        config=config,
        options=switches,
        device=torch_device,
        chunk=chunk,
        state_chunk=min(chunk or _STATE_CHUNK, _STATE_CHUNK),
        renorm=renorm_rule(path, options),
        trace=Trace(wants=lambda _: False),
    )
    chosen = None
    if drawn:
        chosen = choose(
            Target(weights=runner.weights, config=config, options=switches),
            used,
            project=project,
            device=torch_device,
            chunk=chunk,
            trace=runner.trace,
        )
    identity = model_identity(config, weights=name, weights_path=weights_path)
    header = CaptureHeader(
        target=target,
        dtype=str(switches.dtype).removeprefix("torch."),
        model=identity.model_copy(
            update={"drafter_digest": None if chosen is None else chosen.drafter_digest}
        ),
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
        fault=switches.fault,
        sources_digest=sources_digest("models", "capture"),
    )
    return _write(
        runner,
        prompts,
        header,
        path=path,
        out=out,
        batch=int(used["batch"]),
        speculation=None if chosen is None else chosen.run,
        evals=evals,
        resume=resume,
        progress=progress,
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
    evals: EvalPlan | None,
    resume: bool,
    progress: Callable[[int, int, str], None],
) -> Manifest:
    def proof() -> PathProof:
        return PathProof(path=path, branches=dict(runner.trace.branches))

    began, finished = time.perf_counter(), 0
    with CaptureWriter(out, header=header, resume=resume) as writer:
        stored = writer.done
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
        seconds = time.perf_counter() - began
        timing = {"capture_seconds": seconds, "speculative_seconds": drawn.seconds}
        found = None
        if evals is not None and not writer.complete:
            from validate.capture.backends.lm_eval_target import run_evals  # lm-eval is an extra

            began = time.perf_counter()
            found = run_evals(runner, evals, header, resume=resume, progress=progress)
            timing["evals_seconds"] = time.perf_counter() - began
        return writer.close(path_proof=proof(), timing=timing, evals=found)
