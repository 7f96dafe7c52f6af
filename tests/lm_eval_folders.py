"""lm-eval output folders for tests, in the layout that lm-eval 0.4.13 writes with ``--log_samples``."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Sample", "choice_samples", "text_samples", "write_folder"]

DATE = "2026-01-05T10-00-00.000000"
Sample = dict[str, Any]
LETTERS = "abcdefgh"


def digest(text: str) -> str:
    """A hash as lm-eval's ``hash_string`` gives it."""
    return hashlib.sha256(text.encode()).hexdigest()


def choice_samples(
    n: int, *, seed: int, right: float = 0.8, noise: float = 0.0, noise_seed: int = 0
) -> list[Sample]:
    """Multiple choice of four: log-likelihoods by ``seed``, moved by ``noise`` nats."""
    rng = np.random.default_rng(seed)
    moved = np.random.default_rng([noise_seed, 7])
    made = []
    for doc in range(n):
        values = -rng.uniform(5, 30, size=4)
        gold = int(rng.integers(4))
        if rng.random() < right:
            values[gold] = values.max() + rng.uniform(0.1, 4)
        values = values + noise * moved.standard_normal(4)
        made.append(_choice(doc, values, gold))
    return made


def _choice(doc: int, values: Any, gold: int) -> Sample:
    question = f"question {doc}"
    acc = float(int(np.argmax(values)) == gold)
    return {
        "doc_id": doc,
        "doc": {"question": question, "choices": list(LETTERS[:4])},
        "target": str(gold),
        "arguments": {
            f"gen_args_{i}": {"arg_0": f"Q: {question}\nA:", "arg_1": f" {LETTERS[i]}"}
            for i in range(4)
        },
        "resps": [[[str(float(v)), "False"]] for v in values],
        "filtered_resps": [[str(float(v)), "False"] for v in values],
        "filter": "none",
        "metrics": ["acc"],
        "doc_hash": digest(question),
        "prompt_hash": digest(f"Q: {question}\nA:"),
        "target_hash": digest(str(gold)),
        "acc": acc,
    }


def text_samples(
    right: Sequence[float],
    *,
    until: Sequence[str] = ("\n\n",),
    budget: int = 64,
    filters: Sequence[str] = ("strict-match", "flexible-extract"),
    beside: Callable[[int, str], Mapping[str, Any]] | None = None,
) -> list[Sample]:
    """Generated answers: ``right`` holds 1 or 0 per document; ``beside`` what only our runs keep."""
    made = []
    for label in filters:
        for doc, score in enumerate(right):
            question, gold = f"sum {doc}", str(doc + 1)
            text = f"step by step\n#### {gold if score else 'x'}"
            arguments = {"until": list(until), "max_gen_toks": budget, "do_sample": False}
            sample: Sample = {
                "doc_id": doc,
                "doc": {"question": question},
                "target": gold,
                "arguments": {"gen_args_0": {"arg_0": f"Q: {question}", "arg_1": arguments}},
                "resps": [[text]],
                "filtered_resps": [gold if score else "[invalid]"],
                "filter": label,
                "metrics": ["exact_match"],
                "doc_hash": digest(question),
                "prompt_hash": digest(f"Q: {question}"),
                "target_hash": digest(gold),
                "exact_match": float(score),
            }
            if beside is not None:
                sample["validate"] = dict(beside(doc, text))
            made.append(sample)
    return made


def write_folder(
    folder: Path,
    tasks: Mapping[str, Sequence[Sample]],
    *,
    model: str = "hf",
    model_args: str = "pretrained=toy,dtype=bfloat16",
    fewshot: int = 0,
    version: str = "1.0",
    head: Mapping[str, Any] | None = None,
) -> Path:
    """Write ``results_*.json`` and one samples file a task below ``folder``; return the folder."""
    home = folder / "toy__model"
    home.mkdir(parents=True, exist_ok=True)
    configs = {name: _config(samples, fewshot) for name, samples in tasks.items()}
    results: dict[str, Any] = {
        "results": {name: _aggregate(samples) for name, samples in tasks.items()},
        "configs": configs,
        "versions": dict.fromkeys(tasks, version),
        "n-shot": dict.fromkeys(tasks, fewshot),
        "higher_is_better": {
            name: dict.fromkeys(samples[0]["metrics"], True) for name, samples in tasks.items()
        },
        "n-samples": {
            name: {"original": _docs(samples), "effective": _docs(samples)}
            for name, samples in tasks.items()
        },
        "config": {"model": model, "model_args": model_args, "device": "cuda:0"},
        "date": 1767607200.0,
        "lm_eval_version": "0.4.13",
        "chat_template_sha": None,
        **(head or {}),
    }
    (home / f"results_{DATE}.json").write_text(json.dumps(results, indent=1), "utf-8")
    for name, samples in tasks.items():
        with (home / f"samples_{name}_{DATE}.jsonl").open("w", encoding="utf-8") as stream:
            stream.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in samples)
    return folder


def _docs(samples: Sequence[Sample]) -> int:
    return len({sample["doc_id"] for sample in samples})


def _config(samples: Sequence[Sample], fewshot: int) -> dict[str, Any]:
    arguments = samples[0]["arguments"]["gen_args_0"]["arg_1"]
    if isinstance(arguments, dict):
        return {
            "output_type": "generate_until",
            "num_fewshot": fewshot,
            "generation_kwargs": arguments,
        }
    return {"output_type": "multiple_choice", "num_fewshot": fewshot}


def _aggregate(samples: Sequence[Sample]) -> dict[str, Any]:
    found: dict[str, Any] = {"alias": "toy"}
    for label in dict.fromkeys(sample["filter"] for sample in samples):
        for metric in samples[0]["metrics"]:
            scores = [s[metric] for s in samples if s["filter"] == label]
            known = [score for score in scores if isinstance(score, float)]
            found[f"{metric},{label}"] = sum(known) / len(scores)
            found[f"{metric}_stderr,{label}"] = "N/A"
    return found
