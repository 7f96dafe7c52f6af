"""What the metrics of evals share: what forbids a comparison, docs, flips and their streams."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from validate.metrics._reason import Reason
from validate.schema import Pair
from validate.schema.evals import EvalItem, EvalPair, evals_of

__all__ = [
    "blocked",
    "by_doc",
    "first_filters",
    "flip",
    "hygiene",
    "identical_answers",
    "other_prompts",
    "unlike_runs",
    "unscored",
]

SHOWN = 3
IDENTICAL_MIN = 20
"""Distinct log-likelihoods, or drawn answers, below which equality proves nothing."""

VERBATIM_MIN, VERBATIM_SHARE = 100, 0.99
"""Items with log-likelihoods of their own, and the share of them, beyond which equality is no chance."""


def blocked(pair: Pair) -> Reason | None:
    """Why the items of the two sides cannot be set against each other; None: they can."""
    match = pair.evals
    if match.missing is not None:
        return Reason(match.missing)
    if match.reasons:
        rest = len(match.reasons) - 1
        more = f" (and {rest} more, see evals.setup)" if rest else ""
        return Reason(f"the two sides ran other evals: {match.reasons[0]}{more}", "unlike")
    if not match.pairs:
        return Reason("no evals were paired")
    return None


def hygiene(pair: Pair) -> Reason | None:
    """Why no score may be looked at: ``blocked``, unlike prompts, or answers of another model."""
    return pair.once("evals.hygiene", lambda: _hygiene(pair))


def _hygiene(pair: Pair) -> Reason | None:
    return blocked(pair) or other_prompts(pair) or identical_answers(pair)


def first_filters(pair: Pair) -> tuple[EvalPair, ...]:
    """One pair a task, of its first filter: what was answered is the same through every filter."""
    return tuple({one.task.name: one for one in reversed(pair.evals.pairs)}.values())[::-1]


def other_prompts(pair: Pair) -> Reason | None:
    """The reason that prompt token ids differ, with how they start."""
    if pair.evals.same:
        return None
    unlike = [
        (one, a, b)
        for one in first_filters(pair)
        for a, b in zip(one.ref, one.cand, strict=True)
        if a.prompt_tokens_hash != b.prompt_tokens_hash
        and None not in (a.prompt_tokens_hash, b.prompt_tokens_hash)
    ]
    if not unlike:
        return None
    total = sum(len(one.ref) for one in first_filters(pair))
    one, a, b = unlike[0]
    why = (
        f"prompt token ids differ on {len(unlike)} of {total} items, though the prompts read the "
        f"same; e.g. {one.task.name} doc {a.doc_id}: ref {_starts(a)}, cand {_starts(b)}"
        f"{_bos_cause(a, b)}"
    )
    return Reason(why, "unlike")


def _starts(item: EvalItem) -> str:
    tokens = "?" if item.prompt_tokens is None else str(item.prompt_tokens)
    return f"{tokens} tokens" + ("" if item.bos is None else f" with {item.bos} BOS")


def _bos_cause(ref: EvalItem, cand: EvalItem) -> str:
    if ref.bos == cand.bos or ref.bos is None or cand.bos is None:
        return ": another tokenizer or template"
    side, count = ("cand", cand.bos) if cand.bos != 1 else ("ref", ref.bos)
    return f": {side} has {'no BOS' if count == 0 else 'BOS twice'}"


def unlike_runs(pair: Pair) -> bool:
    """Whether the two sides ran other weights, or the same ones by another path."""
    if pair.evals.same:
        return False
    ids = [
        (s.manifest.model.weights_digest, s.manifest.path_proof.path) for s in (pair.ref, pair.cand)
    ]
    return ids[0] != ids[1]


def identical_answers(pair: Pair) -> Reason | None:
    """The reason that two unlike runs gave the same numbers to the last digit."""
    if not unlike_runs(pair):
        return None
    equal = [f"{one.task.name}{_but(one)}" for one in first_filters(pair) if _identical(one)]
    if not equal:
        return None
    shown = ", ".join(equal[:SHOWN]) + (f" and {len(equal) - SHOWN} more" if equal[SHOWN:] else "")
    names = [found.model if (found := evals_of(s)) else s.label for s in (pair.ref, pair.cand)]
    why = (
        f"ref ({names[0]}) and cand ({names[1]}) are unlike runs, yet their answers to "
        f"{shown} agree to the last digit: one of them was served from the other's cache"
    )
    return Reason(why, "unlike")


def _identical(one: EvalPair) -> bool:
    """Whether real numbers, or answers drawn at a temperature, are all the same."""
    both = list(zip(one.ref, one.cand, strict=True))
    if _verbatim(both):
        return True
    if any(a.loglikelihoods != b.loglikelihoods for a, b in both):
        return False
    if len({value for item in one.ref for value in item.loglikelihoods}) >= IDENTICAL_MIN:
        return True
    drawn = one.task.generation.get("do_sample") == "true"
    answers = {item.response for item in one.ref if item.response}
    if not drawn or len(answers) < IDENTICAL_MIN:
        return False
    return all(a.response == b.response for a, b in both)


def _but(one: EvalPair) -> str:
    """How many items agree, where not all do."""
    equal = sum(
        a.loglikelihoods == b.loglikelihoods for a, b in zip(one.ref, one.cand, strict=True)
    )
    return "" if equal == len(one.ref) else f" ({equal} of {len(one.ref)} items)"


def _verbatim(both: Sequence[tuple[EvalItem, EvalItem]]) -> bool:
    """Whether nearly all items whose log-likelihoods no other item has are equal to the last digit.

    A cache misses the few requests that it never saw; numbers that many items share (a saturated
    0.0, a server's rounding) may agree by themselves and are left out.
    """
    seen = Counter(a.loglikelihoods for a, _ in both)
    own = [(a, b) for a, b in both if a.loglikelihoods and seen[a.loglikelihoods] == 1]
    equal = sum(a.loglikelihoods == b.loglikelihoods for a, b in own)
    return len(own) >= VERBATIM_MIN and equal > VERBATIM_SHARE * len(own)


def by_doc(items: Sequence[EvalItem], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of ``values`` over the items of one document: documents are the independent units."""
    names = [item.doc_hash if item.doc_hash is not None else item.doc_id for item in items]
    counts = Counter(names)
    if len(counts) == len(names):
        return values
    sums: dict[object, float] = defaultdict(float)
    for name, value in zip(names, values.tolist(), strict=True):
        sums[name] += value
    return np.array([sums[name] / counts[name] for name in counts])


def flip(one: EvalPair, place: int) -> tuple[str, int | None]:
    """Name of an item, and the first token at which its two responses part, where ids are kept."""
    a, b = one.ref[place], one.cand[place]
    name = f"{one.name} doc {a.doc_id}"
    if a.token_ids is None or b.token_ids is None:
        return name, None
    return name, _parts(a.token_ids, b.token_ids)


def _parts(a: Sequence[int], b: Sequence[int]) -> int | None:
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    shorter = len(a) if len(a) < len(b) else len(b)
    return at if at is not None else (None if len(a) == len(b) else shorter)


def unscored(items: Iterable[EvalItem]) -> str | None:
    """How many items, through any filter, hold a score that is no number; None: none does."""
    found = dict.fromkeys(
        f"{item.task} doc {item.doc_id}"
        for item in items
        if not all(map(math.isfinite, item.scores.values()))
    )
    if not found:
        return None
    rest = len(found) - SHOWN
    more = f" and {rest} more" if rest > 0 else ""
    return f"{len(found)} items have no score ({', '.join([*found][:SHOWN])}{more})"
