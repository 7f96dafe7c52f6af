"""Compare the sides of ``make smollm``: log-likelihoods item by item, logits row by row."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.capture import open_capture
from validate.capture.importers.lm_eval import open_lm_eval
from validate.errors import IncomparableError
from validate.numerics.rows import NO_TARGET, row_statistics
from validate.numerics.sums import exact_mean
from validate.run.smollm_record import (
    Comparison,
    Gate,
    Limits,
    LogitsFound,
    Outcome,
    Role,
    TaskFound,
)
from validate.schema import Interval, Levels
from validate.schema.evals import EvalItem, EvalSet
from validate.stats.mean import abs_mean_limits, mean_limits
from validate.stats.quantile import quantile, quantile_limits

__all__ = ["BFLOAT16_SHARE", "FLOAT32_SHARE", "Side", "compare_sides", "measure_yardstick"]

GATES = 3
LEVELS = Levels(low=1 - 0.01 / GATES)
"""Alpha of 1 % over the three gates of a comparison; an upper limit holds at 95 %."""
Q = 0.9
FLOAT32_SHARE = 0.1
"""Of what bfloat16 moves, how much padding may move float32: a tenth."""
BFLOAT16_SHARE = 1.0
"""And how much it may move bfloat16: no more than bfloat16 itself."""
SCORED_WHOLE = "bits_per_byte"
ROLLING = "loglikelihood_rolling"


class Side(NamedTuple):
    """One side on disk."""

    name: str
    evals: Path
    """Results folder of lm-eval."""
    logits: Path
    """Capture."""


class _Numbers(NamedTuple):
    """One number a unit, before any limit."""

    loglik: NDArray[np.float64]
    bits: NDArray[np.float64]
    kl: NDArray[np.float64]


def measure_yardstick(*, name: str, ref: Side, cand: Side) -> tuple[Limits, Comparison]:
    """The yardstick: the plain model in bfloat16 (cand) against itself in float32 (ref).

    Raises:
        IncomparableError: The sides hold other items or prompts.
        CaptureError: A file is missing or damaged.
    """
    numbers, tasks, logits = _measure(ref, cand)
    limits = Limits(
        loglik=float(np.median(numbers.loglik)),
        bits_per_byte=float(np.abs(numbers.bits).mean()),
        kl=float(np.median(numbers.kl)),
    )
    comparison = Comparison(
        name=name,
        ref=ref.name,
        cand=cand.name,
        role="yardstick",
        tasks=tasks,
        logits=logits,
        gates=(),
        outcome=None,
    )
    return limits, comparison


def compare_sides(
    *,
    name: str,
    role: Role,
    ref: Side,
    cand: Side,
    yardstick: Limits,
    share: float,
) -> Comparison:
    """Measure cand against ref, and judge it.

    Args:
        name: For the report.
        role: What the comparison is for.
        ref: The side compared against.
        cand: The side under judgement.
        yardstick: What bfloat16 moves.
        share: Of the yardstick, how much is allowed.

    Raises:
        IncomparableError: The sides hold other items or prompts.
        CaptureError: A file is missing or damaged.
    """
    numbers, tasks, logits = _measure(ref, cand)
    gates = _judge(numbers, yardstick, share)
    return Comparison(
        name=name,
        ref=ref.name,
        cand=cand.name,
        role=role,
        tasks=tasks,
        logits=logits,
        gates=gates,
        outcome=_gravest(gates),
    )


def _judge(numbers: _Numbers, yardstick: Limits, share: float) -> tuple[Gate, ...]:
    def p90(values: NDArray[np.float64]) -> tuple[float | None, Interval]:
        return quantile(values, q=Q), quantile_limits(values, q=Q, levels=LEVELS)

    loglik, kl = p90(numbers.loglik), p90(numbers.kl)
    bits = abs_mean_limits(numbers.bits, levels=LEVELS)
    return (
        _gate(
            "loglik_delta_p90", *loglik, share * yardstick.loglik, "nats", numbers.loglik, "items"
        ),
        _gate(
            "bits_per_byte_delta",
            abs(exact_mean(numbers.bits) or 0.0),
            bits,
            share * yardstick.bits_per_byte,
            "bits/byte",
            numbers.bits,
            "items",
        ),
        _gate("kl_p90", *kl, share * yardstick.kl, "nats", numbers.kl, "prompts"),
    )


def _gate(
    name: str,
    value: float | None,
    interval: Interval,
    limit: float,
    unit: str,
    units: NDArray[np.float64],
    n_of: str,
) -> Gate:
    low, high = interval.low, interval.high
    outcome: Outcome = "INCONCLUSIVE"
    if low is not None and low > limit:
        outcome = "FAIL"
    elif high is not None and high <= limit:
        outcome = "PASS"
    return Gate(
        name=name,
        value=float("nan") if value is None else value,
        low=low,
        high=high,
        limit=limit,
        unit=unit,
        n=units.size,
        n_of=n_of,
        outcome=outcome,
    )


def _gravest(gates: Sequence[Gate]) -> Outcome | None:
    found = {gate.outcome for gate in gates}
    order: tuple[Outcome, ...] = ("FAIL", "INCONCLUSIVE", "PASS")
    return next((outcome for outcome in order if outcome in found), None)


def _measure(ref: Side, cand: Side) -> tuple[_Numbers, tuple[TaskFound, ...], LogitsFound]:
    sets = [open_lm_eval(side.evals, label=side.name).evals for side in (ref, cand)]
    pairs = _paired(*sets, names=(ref.name, cand.name))
    loglik: list[float] = []
    bits: list[float] = []
    tasks = []
    for task, items in pairs.items():
        whole = sets[0].tasks[task].output_type == ROLLING
        scores = np.array([[_score(side, whole=whole) for side in pair] for pair in items])
        found, moved = _task(task, items, score=SCORED_WHOLE if whole else "acc", scores=scores)
        tasks.append(found)
        loglik += moved
        if whole:
            bits += (scores[:, 1] - scores[:, 0]).tolist()
    logits, kl = _logits(ref, cand)
    return _Numbers(np.array(loglik), np.array(bits), kl), tuple(tasks), logits


def _paired(
    ref: EvalSet, cand: EvalSet, *, names: tuple[str, str]
) -> Mapping[str, list[tuple[EvalItem, EvalItem]]]:
    """Items by document and prompt hash, never by row."""

    def keyed(evals: EvalSet) -> dict[tuple[Any, ...], EvalItem]:
        return {(i.task, i.filter, i.doc_hash, i.prompt_hash): i for i in evals.items}

    left, right = keyed(ref), keyed(cand)
    if left.keys() != right.keys() or not left:
        msg = (
            f"ref '{names[0]}' and cand '{names[1]}' share {len(left.keys() & right.keys())} of "
            f"{len(left.keys() | right.keys())} items; nothing was compared\n"
            "  do next: run both sides with the same number of items"
        )
        raise IncomparableError(msg)
    pairs: dict[str, list[tuple[EvalItem, EvalItem]]] = {}
    for key, item in left.items():
        other = right[key]
        if item.prompt_tokens_hash != other.prompt_tokens_hash:
            msg = f"{item.task} document {item.doc_id}: the sides read other prompt tokens"
            raise IncomparableError(msg)
        pairs.setdefault(item.task, []).append((item, other))
    return pairs


def _score(item: EvalItem, *, whole: bool) -> float:
    """Right or wrong; or bits per byte of a text, as lm-eval counts its bytes."""
    if not whole:
        return item.scores["acc"]
    if not item.target:
        msg = f"{item.task} document {item.doc_id}: no target text, so no bits per byte"
        raise IncomparableError(msg)
    return -item.loglikelihoods[0] / (len(item.target.encode("utf-8")) * math.log(2))


def _task(
    task: str,
    items: Sequence[tuple[EvalItem, EvalItem]],
    *,
    score: str,
    scores: NDArray[np.float64],
) -> tuple[TaskFound, list[float]]:
    deltas = [np.subtract(b.loglikelihoods, a.loglikelihoods) for a, b in items]
    moved = [float(np.abs(d).mean()) for d in deltas]
    every = np.concatenate(deltas)
    sums = [float(d.sum()) for d in deltas]
    limits = mean_limits(sums, levels=Levels(low=0.95))
    return TaskFound(
        task=task,
        items=len(items),
        requests=every.size,
        identical=int((every == 0).sum()),
        mean_abs_delta=float(np.mean(moved)),
        max_abs_delta=float(np.abs(every).max()),
        delta=float(np.mean(sums)),
        delta_low=limits.low,
        delta_high=limits.high,
        score=score,
        score_ref=float(scores[:, 0].mean()),
        score_cand=float(scores[:, 1].mean()),
        flips=None if score == SCORED_WHOLE else int((scores[:, 0] != scores[:, 1]).sum()),
    ), moved


def _logits(ref: Side, cand: Side) -> tuple[LogitsFound, NDArray[np.float64]]:
    left, right = (open_capture(side.logits, label=side.name) for side in (ref, cand))
    if left.manifest.prompt_digest != right.manifest.prompt_digest:
        msg = f"ref '{ref.name}' and cand '{cand.name}' hold logits of other prompts"
        raise IncomparableError(msg)
    kls, means = [], []
    values = identical = flips = 0
    far = 0.0
    for prompt in left.prompts:
        a, b = (side.tensor(prompt, "logits") for side in (left, right))
        a, b = a.astype(np.float32), b.astype(np.float32)
        same = a == b
        values, identical = values + same.size, identical + int(same.sum())
        kl = np.zeros(len(a))
        differs = ~same.all(axis=1)  # equal rows have a KL of exactly 0; NaN is never equal
        if differs.any():
            a, b = a[differs], b[differs]
            found = row_statistics(a, b, targets=np.full(len(a), NO_TARGET), top_k=1)
            kl[differs] = found.kl
            far = np.maximum(far, np.abs(a - b).max())
            flips += int((~found.top1_agree).sum())
        kls.append(kl)
        means.append(float(kl.mean()))
    rows = np.concatenate(kls)
    by_prompt = np.array(means)
    return LogitsFound(
        prompts=len(means),
        rows=rows.size,
        values=values,
        identical=identical,
        max_abs_delta=float(far),
        kl_mean=float(by_prompt.mean()),
        kl_p50=float(np.quantile(by_prompt, 0.5)),
        kl_p90=float(np.quantile(by_prompt, Q)),
        kl_max=float(rows.max()),
        top1_flips=flips,
    ), by_prompt
