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


PLANTERS: Mapping[str, Callable[[Path, Path], None]] = {
    "TV-03": _shared_cache,
    "TV-06": _empty_slice,
    "TV-07": _budget,
    "TV-08": _bos_twice,
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


def _rewrite(path: Path, change: Callable[[Sample], Sample]) -> None:
    lines = [json.dumps(change(sample), ensure_ascii=False) for sample in _samples(path)]
    path.write_text("\n".join(lines) + "\n", "utf-8")
