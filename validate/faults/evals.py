"""Faults of the harness itself: what a cache, a server or a template does to an lm-eval folder.

Each is planted where it happens in life, between the model and the scores: the samples of cand's
folder are rewritten as the faulty harness would have written them. Nothing is added that the
folder could not hold.
"""

import hashlib
import json
import statistics
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from validate.errors import InputError
from validate.schema.evals import SIDECAR
from validate.schema.fault import Fault

__all__ = ["EVAL_FAULTS", "PLANTERS", "plant"]

Sample = dict[str, Any]
UNREADABLE = "[invalid]"
TEMPERATURE = 0.7
NEXT = "\n\nQ: "
"""How the next question begins, behind the string that should have stopped the answer."""

EVAL_FAULTS = (
    Fault(
        id="TV-03",
        title="Response cache that is not keyed by the model",
        where="evals",
        expect="INCOMPARABLE",
        gates=("evals.identical", "evals.score_drop"),
        source="EleutherAI/lm-evaluation-harness#2715 and #4063: cand asks nothing, the cache "
        "serves ref's answers. Planted in the answers: those of ref, cand's head unchanged.",
    ),
    Fault(
        id="TV-06",
        title="Log-likelihoods summed over an empty slice",
        where="evals",
        expect="FAIL",
        gates=("evals.signal",),
        source="ggml-org/llama.cpp#27174: the server returns no prompt log-probabilities, so every "
        "choice scores 0 and the first is taken. Planted in the answers of both sides, which then "
        "agree perfectly.",
    ),
    Fault(
        id="TV-07",
        title="Token budget just below the median answer",
        where="evals",
        expect="FAIL",
        gates=("evals.rates", "evals.score_drop"),
        source="sgl-project/sglang#29264, ROCm/ATOM#1489: answers are cut by a stop string or a "
        "budget that the head does not name. Planted in the responses: cut one unit below the "
        "median length; the filter then finds no answer in what is left.",
    ),
    Fault(
        id="TV-08",
        title="BOS twice",
        where="evals",
        expect="INCOMPARABLE",
        gates=("evals.prompts", "evals.score_drop"),
        source="princeton-pli/retaining-by-doing#5, lm-eval#1465: the template writes a BOS and the "
        "tokenizer adds one. Planted in the prompt tokens of cand: one more in front.",
    ),
    Fault(
        id="VX-150",
        title="Log-likelihoods divided by the temperature",
        where="evals",
        expect="FAIL",
        gates=("evals.loglik_delta",),
        source="TV-16 (PrimeIntellect-ai/prime-rl#697) seen from evals: a server returns logarithms "
        "divided by its default temperature of 0.7. Planted in cand's answers; every choice keeps "
        "its rank, so no score moves.",
    ),
    Fault(
        id="VX-151",
        title="The stop string never reaches the server",
        where="evals",
        expect="FAIL",
        gates=("evals.length",),
        source="EleutherAI/lm-evaluation-harness#3881: arguments of generation are left out on the "
        "way. Planted in the responses of cand: behind the answer the next question begins; the "
        "filter takes the first answer, so no score moves.",
    ),
    Fault(
        id="VX-152",
        title="The two sides were given other token budgets",
        where="evals",
        expect="INCOMPARABLE",
        gates=("evals.setup",),
        source="elizaOS/eliza#10670, ROCm/ATOM#1489 (TV-07), where the head does name the budget. "
        "Planted in cand's head and requests: half the tokens; no answer needed more.",
    ),
)
"""Faults of evals by what their mechanism rewrites."""


def plant(fault: str, *, ref: Path, cand: Path) -> None:
    """Rewrite the folder ``cand`` (and for TV-06 ``ref``) as the harness with this fault would.

    Args:
        fault: One of ``PLANTERS``.
        ref: lm-eval folder that cand is compared with.
        cand: lm-eval folder that is rewritten in place.

    Raises:
        InputError: No such fault, or the folder lacks what it would change.
    """
    if fault not in PLANTERS:
        msg = f"fault '{fault}' is planted in no folder; known: {', '.join(PLANTERS)}"
        raise InputError(msg)
    PLANTERS[fault](ref, cand)


def _shared_cache(ref: Path, cand: Path) -> None:
    """Every request is a hit: the answers and what is computed from them are ref's."""
    for name, file in _files(cand).items():
        kept = {(s["doc_id"], s["filter"]): s for s in _samples(_files(ref)[name])}

        def served(sample: Sample, kept: Mapping[Any, Sample] = kept) -> Sample:
            source = kept[sample["doc_id"], sample["filter"]]
            taken = ("resps", "filtered_resps", *sample["metrics"])
            return sample | {key: source[key] for key in taken}

        _rewrite(file, served)


def _empty_slice(ref: Path, cand: Path) -> None:
    """The sum over no log-probability is 0, and the argmax of equal numbers is the first."""
    for folder in (ref, cand):
        for file in _files(folder).values():
            _rewrite(file, _zeroed)


def _zeroed(sample: Sample) -> Sample:
    if not isinstance(sample["resps"][0][0], list):
        return sample
    zero = ["0.0", "False"]
    right = float(str(sample["target"]) == "0")
    return sample | {
        "resps": [[zero] for _ in sample["resps"]],
        "filtered_resps": [zero for _ in sample["resps"]],
        **dict.fromkeys(sample["metrics"], right),
    }


def _budget(_ref: Path, cand: Path) -> None:
    """Generation ends one unit below the median length."""
    changed = False
    for file in _files(cand).values():
        lengths = [len(text) for s in _samples(file) if (text := _response(s)) is not None]
        if not lengths:
            continue
        changed = True
        most = int(statistics.median(lengths)) - 1
        _rewrite(file, partial(_cut, most=most))
    if not changed:
        msg = f"{cand}: no task generates text, so no budget cuts it"
        raise InputError(msg)


def _cut(sample: Sample, *, most: int) -> Sample:
    text = _response(sample)
    if text is None or len(text) <= most:
        return sample
    beside = sample.get(SIDECAR)
    short = sample | {
        "resps": [[text[:most]]],
        "filtered_resps": [UNREADABLE],
        **dict.fromkeys(sample["metrics"], 0.0),
    }
    if beside is None:
        return short
    ids = beside.get("token_ids")
    cut_ids = None if ids is None else ids[: max(1, len(ids) * most // len(text))]
    return short | {SIDECAR: beside | {"finish_reason": "length", "token_ids": cut_ids}}


def _bos_twice(_ref: Path, cand: Path) -> None:
    """The prompt's ids begin with one BOS more, so their hash is another."""
    for file in _files(cand).values():
        _rewrite(file, _with_bos)


def _with_bos(sample: Sample) -> Sample:
    beside = sample.get(SIDECAR) or {}
    if beside.get("prompt_tokens_hash") is None or beside.get("bos") is None:
        msg = "the samples keep no prompt tokens, so a second BOS would not show in them"
        raise InputError(msg)
    other = hashlib.sha256(f"bos {beside['prompt_tokens_hash']}".encode()).hexdigest()
    more = {
        "prompt_tokens": beside["prompt_tokens"] + 1,
        "bos": beside["bos"] + 1,
        "prompt_tokens_hash": other,
    }
    return sample | {SIDECAR: beside | more}


def _divided(_ref: Path, cand: Path) -> None:
    """Logarithms are divided once more, as if they were logits."""
    _every(cand, _by_temperature, "no task scores choices, so no logarithm is divided")


def _by_temperature(sample: Sample) -> Sample:
    if not isinstance(sample["resps"][0][0], list):
        return sample
    told = [[str(float(value) / TEMPERATURE), greedy] for ((value, greedy),) in sample["resps"]]
    return sample | {"resps": [[one] for one in told], "filtered_resps": told}


def _runs_on(_ref: Path, cand: Path) -> None:
    """Nothing stops the answer, so the text goes on as the prompt taught it to."""
    _every(cand, _longer, "no task generates text, so nothing runs on")


def _longer(sample: Sample) -> Sample:
    text = _response(sample)
    if text is None:
        return sample
    beside = sample.get(SIDECAR) or {}
    ids = beside.get("token_ids")
    more = None if ids is None else [*ids, *NEXT.encode()]
    return sample | {
        "resps": [[text + NEXT]],
        **({SIDECAR: beside | {"token_ids": more}} if beside else {}),
    }


def _half_budget(_ref: Path, cand: Path) -> None:
    """Head and requests of cand name half the tokens."""
    _every(cand, _asked_for_half, "no task generates text, so no budget is named")
    for head in cand.rglob("results_*.json"):
        told = json.loads(head.read_text("utf-8"))
        for task in told["configs"].values():
            if "generation_kwargs" in task:
                task["generation_kwargs"] = _halved(task["generation_kwargs"])
        head.write_text(json.dumps(told, indent=1), "utf-8")


def _asked_for_half(sample: Sample) -> Sample:
    if _response(sample) is None:
        return sample
    asked = {
        name: request | {"arg_1": _halved(request["arg_1"])}
        for name, request in sample["arguments"].items()
    }
    return sample | {"arguments": asked}


def _halved(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {**arguments, "max_gen_toks": arguments["max_gen_toks"] // 2}


PLANTERS: Mapping[str, Callable[[Path, Path], None]] = {
    "TV-03": _shared_cache,
    "TV-06": _empty_slice,
    "TV-07": _budget,
    "TV-08": _bos_twice,
    "VX-150": _divided,
    "VX-151": _runs_on,
    "VX-152": _half_budget,
}
"""How each fault rewrites a pair of folders."""


def _response(sample: Sample) -> str | None:
    first = sample["resps"][0][0]
    return first if isinstance(first, str) else None


def _files(folder: Path) -> dict[str, Path]:
    """Sample files by task and date."""
    return {path.name: path for path in sorted(folder.rglob("samples_*.jsonl"))}


def _samples(path: Path) -> Iterator[Sample]:
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            yield json.loads(line)


def _every(folder: Path, change: Callable[[Sample], Sample], nowhere: str) -> None:
    """Rewrite every sample of a folder.

    Raises:
        InputError: ``change`` leaves every one as it is; a fault without a site is a clean run.
    """
    kept = {path: list(_samples(path)) for path in _files(folder).values()}
    if all(change(sample) == sample for samples in kept.values() for sample in samples):
        msg = f"{folder}: {nowhere}"
        raise InputError(msg)
    for path in kept:
        _rewrite(path, change)


def _rewrite(path: Path, change: Callable[[Sample], Sample]) -> None:
    lines = [json.dumps(change(sample), ensure_ascii=False) for sample in _samples(path)]
    path.write_text("\n".join(lines) + "\n", "utf-8")
