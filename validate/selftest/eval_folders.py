"""Two small lm-eval folders of one model behind two servers, made here: faults are planted in them."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from validate.schema.evals import SIDECAR

__all__ = ["DOCS", "write_pair"]

Sample = dict[str, Any]
DOCS = 600
"""Items a task: enough for every margin of the suite."""
NOISE = 0.02
"""Nats by which log-likelihoods of the second server move."""
SEED, NOISE_SEED = 1, [0, 7]
CHOICES = 4
CHOICE_TASK, TEXT_TASK = "choice", "sums"
_DATE = "2026-01-05T10-00-00.000000"
_GENERATION = {"until": ["\n\n"], "max_gen_toks": 64, "do_sample": False}


def write_pair(folder: Path) -> tuple[Path, Path]:
    """Write ``folder/ref`` and ``folder/cand`` in the layout of lm-eval 0.4.13 with its samples.

    Both answer the same questions: 600 of four choices, 600 sums in words. The second's
    log-likelihoods are moved by a fiftieth of a nat, so near-ties fall either way.

    Returns:
        The two folders.
    """
    sides = (("ref", "hf", 0.0), ("cand", "vllm", NOISE))
    for name, model, noise in sides:
        _write(folder / name, {CHOICE_TASK: _choices(noise), TEXT_TASK: _texts()}, model=model)
    return folder / "ref", folder / "cand"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _head(doc: int, question: str, target: str, beside: Mapping[str, Any]) -> Sample:
    return {
        "doc_id": doc,
        "doc": {"question": question},
        "target": target,
        "filter": "none",
        "doc_hash": _digest(question),
        "prompt_hash": _digest(f"Q: {question}"),
        "target_hash": _digest(target),
        SIDECAR: {
            "prompt_tokens": 9,
            "prompt_tokens_hash": _digest(f"prompt {question}"),
            "bos": 1,
            "truncated": False,
            **beside,
        },
    }


def _choices(noise: float) -> list[Sample]:
    rng, moved = np.random.default_rng(SEED), np.random.default_rng(NOISE_SEED)
    made = []
    for doc in range(DOCS):
        values = -rng.uniform(5, 30, size=CHOICES)
        gold = int(rng.integers(CHOICES))
        if rng.random() < 0.8:  # noqa: PLR2004  right in four of five
            values[gold] = values.max() + rng.uniform(0.1, 4)
        values = values + noise * moved.standard_normal(CHOICES)
        told = [[str(float(value)), "False"] for value in values]
        question = f"question {doc}"
        made.append(
            _head(doc, question, str(gold), {})
            | {
                "arguments": {
                    f"gen_args_{i}": {"arg_0": f"Q: {question}", "arg_1": f" {i}"}
                    for i in range(CHOICES)
                },
                "resps": [[one] for one in told],
                "filtered_resps": told,
                "metrics": ["acc"],
                "acc": float(int(np.argmax(values)) == gold),
            }
        )
    return made


def _texts() -> list[Sample]:
    made = []
    for doc in range(DOCS):
        gold = str(doc + 1)
        text = f"step by step\n#### {gold}"
        beside = {"token_ids": [ord(letter) for letter in text], "finish_reason": "stop"}
        made.append(
            _head(doc, f"sum {doc}", gold, beside)
            | {
                "arguments": {"gen_args_0": {"arg_0": f"Q: sum {doc}", "arg_1": _GENERATION}},
                "resps": [[text]],
                "filtered_resps": [gold],
                "metrics": ["exact_match"],
                "exact_match": 1.0,
            }
        )
    return made


def _write(folder: Path, tasks: Mapping[str, Sequence[Sample]], *, model: str) -> None:
    home = folder / "small__model"
    home.mkdir(parents=True)
    metrics = {name: samples[0]["metrics"][0] for name, samples in tasks.items()}
    kinds: dict[str, dict[str, Any]] = {
        CHOICE_TASK: {"output_type": "multiple_choice", "num_fewshot": 0},
        TEXT_TASK: {
            "output_type": "generate_until",
            "num_fewshot": 0,
            "generation_kwargs": _GENERATION,
        },
    }
    results = {
        "results": {
            name: {f"{metric},none": sum(one[metric] for one in tasks[name]) / DOCS}
            for name, metric in metrics.items()
        },
        "configs": kinds,
        "versions": dict.fromkeys(tasks, "1.0"),
        "n-shot": dict.fromkeys(tasks, 0),
        "higher_is_better": {name: {metric: True} for name, metric in metrics.items()},
        "n-samples": {name: {"original": DOCS, "effective": DOCS} for name in tasks},
        "config": {"model": model, "model_args": "pretrained=small,dtype=bfloat16"},
        "date": 1767607200.0,
        "lm_eval_version": "0.4.13",
        "chat_template_sha": None,
    }
    (home / f"results_{_DATE}.json").write_text(json.dumps(results, indent=1), "utf-8")
    for name, samples in tasks.items():
        lines = [json.dumps(one, ensure_ascii=False) for one in samples]
        (home / f"samples_{name}_{_DATE}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
