"""Prompt-level relative L2 of a group of tensors: the bulk metrics of attention."""

import math
from collections.abc import Mapping

import numpy as np

from validate.metrics._quartile import third_quartile
from validate.metrics._tensors import Bulk, Key, LayerSums, scan
from validate.metrics._unmeasured import no_tensors, not_finite, too_many_apart, undefined
from validate.metrics._words import ratio
from validate.schema import Levels, Measurement, Pair, Worst

__all__ = ["measure_bulk"]

UNIT = "rel-L2"


def measure_bulk(
    pair: Pair, levels: Levels, *, metric: str, group: str, what: str, pattern: str | None = None
) -> Measurement:
    """Third quartile over prompts of the relative L2 error pooled over all tensors of a group.

    Args:
        pair: Ref and cand.
        levels: Confidence levels of the interval.
        metric: Name of the metric.
        group: ``out`` or ``hidden``.
        what: The tensors in words, for the reason when there are none.
        pattern: Structure found, if any.

    Returns:
        Value in units of the reference's norm; n = prompts. The upper limit is None below 11
        prompts at 95 % (``n_needed`` says how many); the mean is in the breakdown.
    """
    found = scan(pair)
    by_prompt = found.by_prompt.get(group, {})
    layers = found.outputs if group == "out" else found.hiddens
    breakdown = _breakdown(layers, by_prompt)
    why = not_finite(found.bad, group) or _missing(by_prompt, what) or too_many_apart(by_prompt)
    values = {prompt: _pooled(bulk) for prompt, bulk in by_prompt.items()}
    zero = [prompt for prompt, value in values.items() if not math.isfinite(value)]
    if why is None and zero:
        why = f"ref is all zero and cand is not in {len(zero)} prompts, the first is {zero[0]}"
    if why is not None:
        return undefined(
            metric, why, unit=UNIT, n_of="prompts", n=len(by_prompt), breakdown=breakdown
        )
    numbers = list(values.values())
    worst = list(values)[int(np.argmax(numbers))]
    quartile = third_quartile(numbers, levels=levels)
    return Measurement(
        metric=metric,
        value=quartile.value,
        unit=UNIT,
        n=len(numbers),
        n_of="prompts",
        interval=quartile.interval,
        worst=Worst(prompt=worst, value=values[worst]),
        worst_value=values[worst],
        pattern=pattern,
        breakdown={"mean": float(np.mean(numbers)), **breakdown},
        n_needed=quartile.n_needed,
    )


def _missing(by_prompt: Mapping[str, Bulk], what: str) -> str | None:
    empty = [prompt for prompt, bulk in by_prompt.items() if bulk.rows == 0]
    if empty:
        return f"router ties set every row of {len(empty)} prompts apart, the first is {empty[0]}"
    return None if by_prompt else no_tensors(what)


def _pooled(bulk: Bulk) -> float:
    return float(ratio(np.array(bulk.err2), np.array(bulk.ref2)))


def _breakdown(layers: Mapping[Key, LayerSums], by_prompt: Mapping[str, Bulk]) -> dict[str, float]:
    """Pooled error by layer and mode, and what ties set apart."""
    pooled = {
        sums.place.name.removesuffix(".out"): _pooled(sums.bulk)
        for _, sums in sorted(layers.items())
        if sums.bulk.rows
    }
    made = {name: value for name, value in pooled.items() if math.isfinite(value)}
    away = Bulk(
        err2=math.fsum(bulk.apart_err2 for bulk in by_prompt.values()),
        ref2=math.fsum(bulk.apart_ref2 for bulk in by_prompt.values()),
        apart_rows=sum(bulk.apart_rows for bulk in by_prompt.values()),
    )
    made["rows"] = float(sum(bulk.rows for bulk in by_prompt.values()))
    made["rows set apart by router ties"] = float(away.apart_rows)
    if away.apart_rows and math.isfinite(_pooled(away)):
        made["rel-L2 of rows set apart"] = _pooled(away)
    return made
