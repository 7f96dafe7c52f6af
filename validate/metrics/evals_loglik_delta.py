"""``evals.loglik_delta``: by how much do log-likelihoods of the same texts move?"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from validate.metrics._evals import by_doc, first_filters, hygiene
from validate.metrics._evals_parts import shared_levels
from validate.metrics._reason import Reason, without_value
from validate.schema import Interval, Levels, Measurement, Pair, Worst
from validate.schema.evals import EvalItem, EvalPair
from validate.stats import quantile, quantile_limits, quantile_n_min

__all__ = ["evals_loglik_delta"]

NAME, UNIT, N_OF = "evals.loglik_delta", "nats", "documents"
Q = 0.9
ROLLING = "loglikelihood_rolling"


def evals_loglik_delta(pair: Pair, levels: Levels) -> Measurement:
    """Greatest over tasks of the 90th percentile over documents of |Δ log-likelihood|.

    A score moves where an answer flips; a log-likelihood moves with every logit, so it sees an
    error long before points are lost, and also where accuracy is at chance. A document's number
    is the mean over its requests (choices); a whole text's is taken per prompt token where their
    number is kept.

    Args:
        pair: Evals of both sides.
        levels: Of the greatest limits over tasks; the lower one is shared out.

    Returns:
        Measurement in nats a request, ``n`` = documents of the task whose upper limit decides. The
        breakdown holds per task the percentile, the median with its sign and the greatest.
        Infinite where cand's is no number; undefined without log-likelihoods; unlike as
        ``evals.score_drop``.

    Source:
        ``validate.stats.quantile_limits``: order statistics, exact for every law.
    """
    reason = hygiene(pair)
    pairs = [one for one in first_filters(pair) if _holds(one)] if reason is None else []
    if reason is None and not pairs:
        reason = Reason("no task holds log-likelihoods")
    if reason is not None:
        return without_value(NAME, reason, unit=UNIT, n_of=N_OF)
    each = shared_levels(levels, len(pairs))
    sizes = {one.name: _sizes(one) for one in pairs}
    bad = next((name for name, both in sizes.items() if not np.isfinite(both[0]).all()), None)
    if bad is not None:
        return _infinite(bad, sizes[bad][0])
    limits = {name: quantile_limits(both[0], q=Q, levels=each) for name, both in sizes.items()}
    worst = max(pairs, key=lambda one: quantile(sizes[one.name][0], q=Q) or 0.0)
    return _measurement(sizes, limits, worst, levels)


def _measurement(
    sizes: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]],
    limits: dict[str, Interval],
    worst: EvalPair,
    levels: Levels,
) -> Measurement:
    open_ones = [name for name, found in limits.items() if found.high is None]
    decides = open_ones[0] if open_ones else max(limits, key=lambda name: limits[name].high or 0.0)
    lows = [found.low for found in limits.values() if found.low is not None]
    n = sizes[decides][0].size
    needed = quantile_n_min(Q, levels.high)
    at = int(np.argmax(sizes[worst.name][0]))
    greatest = float(sizes[worst.name][0][at])
    return Measurement(
        metric=NAME,
        value=quantile(sizes[worst.name][0], q=Q),
        unit=UNIT,
        n=n,
        n_of=f"documents of {decides}",
        interval=Interval(
            low=max(lows, default=None),
            low_level=levels.low,
            high=limits[decides].high,
            high_level=levels.high,
            method="order statistic",
            q=Q,
            above=limits[decides].above,
        ),
        worst=Worst(place=worst.name, value=greatest),
        worst_value=greatest,
        breakdown=_breakdown(sizes),
        n_needed=needed if n < needed else None,
    )


def _holds(one: EvalPair) -> bool:
    return all(item.loglikelihoods for item in (*one.ref, *one.cand))


def _sizes(one: EvalPair) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean |Δ| and mean Δ of each document."""
    counts = np.array([len(item.loglikelihoods) for item in one.ref])
    ref = _flat(one.ref)
    cand = ref if one.cand is one.ref else _flat(one.cand)
    with np.errstate(invalid="ignore"):
        moved = np.where(ref == cand, 0.0, cand - ref)
    moved = np.where(np.isnan(moved), np.inf, moved)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    scale = counts * _tokens(one)
    mean_abs = np.add.reduceat(np.abs(moved), starts) / scale
    mean = np.add.reduceat(moved, starts) / scale
    return by_doc(one.ref, mean_abs), by_doc(one.ref, mean)


def _flat(items: Sequence[EvalItem]) -> NDArray[np.float64]:
    return np.array([value for item in items for value in item.loglikelihoods])


def _tokens(one: EvalPair) -> NDArray[np.float64]:
    """Tokens of a whole text; 1 for a choice, and where nobody counted."""
    if one.task.output_type != ROLLING or any(not item.prompt_tokens for item in one.ref):
        return np.ones(len(one.ref))
    return np.array([float(item.prompt_tokens or 1) for item in one.ref])


def _infinite(name: str, sizes: NDArray[np.float64]) -> Measurement:
    bad = int(np.count_nonzero(~np.isfinite(sizes)))
    return Measurement(
        metric=NAME,
        value=float("inf"),
        unit=UNIT,
        n=sizes.size,
        n_of=f"documents of {name}",
        worst=Worst(place=name, detail=f"{bad} log-likelihoods are no numbers"),
    )


def _breakdown(
    sizes: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, (size, signed) in sizes.items():
        found[f"{name}: p90"] = float(quantile(size, q=Q) or 0.0)
        found[f"{name}: median, signed"] = float(np.median(signed))
        found[f"{name}: greatest"] = float(np.max(size))
    return found
