"""Pairs of evals made by hand, as pairing would hand them to the metrics."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.lm_eval_folders import Sample, digest, write_folder
from validate.capture.importers import open_lm_eval
from validate.pairing import pair_evals
from validate.schema import Levels, Pair

LEVELS = Levels(low=0.999, high=0.95)


def paired(
    folder: Path,
    ref: Mapping[str, Sequence[Sample]],
    cand: Mapping[str, Sequence[Sample]],
    *,
    ref_head: Mapping[str, Any] | None = None,
    cand_head: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Pair:
    """Both sides as lm-eval folders below ``folder``; ``changes`` are cand's."""
    sides = [
        open_lm_eval(write_folder(folder / "ref", ref, head=ref_head), label="ref"),
        open_lm_eval(write_folder(folder / "cand", cand, head=cand_head, **changes), label="cand"),
    ]
    return pair_evals(*sides, near_tie=0.0, route_gap=0.0)


def beside(doc: int, text: str, **changes: Any) -> dict[str, Any]:
    """What our own runs keep: a prompt of nine tokens with one BOS, one token a letter."""
    return {
        "prompt_tokens": 9,
        "prompt_tokens_hash": digest(f"prompt {doc}"),
        "bos": 1,
        "truncated": False,
        "token_ids": [ord(letter) for letter in text],
        "finish_reason": "stop",
        **changes,
    }
