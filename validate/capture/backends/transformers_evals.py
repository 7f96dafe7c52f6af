"""lm-eval over a transformers model: its evaluator, its HFLM, its two kinds of file."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from validate.capture.backends.transformers_model import Loaded
from validate.schema.evals import HASH_DIGITS, SIDECAR

__all__ = ["run_evals"]


def run_evals(
    loaded: Loaded,
    *,
    name: str,
    tasks: Sequence[str],
    include: Path,
    items: int,
    cache: Path,
    out: Path,
) -> None:
    """Score the first ``items`` documents of each task and write an lm-eval results folder.

    One request a batch: an answer then depends on nothing else that was asked, and a run that
    was interrupted and taken up gives the same bits.

    Args:
        loaded: The model.
        name: What the results call it.
        tasks: Names of tasks.
        include: Folder of their YAML files; lm-eval's own tasks are not read.
        items: Documents of each task.
        cache: Stem of the file of answers so far; for this model alone.
        out: Folder for ``results_*.json`` and ``samples_*.jsonl``; it appears when all is written.
    """
    from lm_eval import simple_evaluate
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    # Without softmax_dtype, log-likelihoods of a bfloat16 model are sums rounded to bfloat16.
    model = HFLM(
        pretrained=loaded.model,
        tokenizer=loaded.tokenizer,
        batch_size=1,
        device="cpu",
        softmax_dtype="float32",
    )
    part = out.with_name(out.name + ".part")
    tracker = EvaluationTracker(output_path=str(part))
    tracker.general_config_tracker.log_experiment_args(
        model_source="hf",
        model_args=f"pretrained={name}",
        system_instruction="",
        chat_template="",
        fewshot_as_multiturn=False,
    )
    results = simple_evaluate(
        model,
        tasks=list(tasks),
        limit=items,
        task_manager=TaskManager(include_path=str(include), include_defaults=False),
        use_cache=str(cache),
        bootstrap_iters=0,
        log_samples=True,
    )
    samples = results.pop("samples")
    results["config"] = results["config"] | {"model": name, "model_args": f"pretrained={name}"}
    for kept in samples.values():
        for sample in kept:
            sample[SIDECAR] = _tokens(loaded.tokenizer, model, sample["arguments"])
    tracker.save_results_aggregated(results=results, samples=samples)
    for task, kept in samples.items():
        tracker.save_results_samples(task_name=task, samples=kept)
    folders = [folder for folder in part.iterdir() if folder.is_dir()]
    folders[0].rename(out)
    part.rmdir()


def _tokens(tokenizer: Any, model: Any, requests: Sequence[Sequence[str]]) -> Mapping[str, Any]:
    """What the prompts of one sample became: the text itself where it is scored whole."""
    prompts: list[list[int]] = []
    for request in requests:
        prompt = request[0]
        if len(request) == 1:
            prompts.append(list(model.tok_encode(prompt)))
        else:
            prompts.append(list(model._encode_pair(prompt, request[1])[0]))
    flat = np.array([token for prompt in prompts for token in prompt], dtype="<i4")
    leading = [token == tokenizer.bos_token_id for token in prompts[0]]
    longest = max(len(prompt) for prompt in prompts)
    return {
        "prompt_tokens": len(flat),
        "prompt_tokens_hash": hashlib.sha256(flat.tobytes()).hexdigest()[:HASH_DIGITS],
        "bos": [*leading, False].index(False),
        "truncated": longest > model.max_length,
    }
