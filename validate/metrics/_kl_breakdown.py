"""Companions of the KL metrics: quantiles over rows, tags, slope, batch rows; shown, never gated."""

from collections.abc import Mapping, Sequence

import numpy as np

from validate.metrics._logit_rows import LogitRows, SectionRows
from validate.metrics._words import ranges
from validate.numerics import exact_mean, exact_sum
from validate.schema import Pair, Worst
from validate.stats import quantile

__all__ = ["kl_breakdown", "kl_pattern", "worst_mean", "worst_row"]

ROW_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
FACTOR = 10.0
"""A batch row stands out when its median is this many times the lowest row's."""
MIN_PROMPTS = 2
"""Fewest prompts in a batch row before it can stand out."""
PER = 1000.0
"""Positions that the slope is stated for."""


def kl_breakdown(pair: Pair, rows: LogitRows) -> dict[str, float]:
    """Mean over prompts, row quantiles, means by tag, section and batch row, slope over position, top-1 and top-k.

    Quantiles, slope and overlap are those of the teacher-forced prefill rows; the mean, tags
    and batch rows those of the prompt values that the metrics are made from.
    """
    forced = rows.forced
    every = np.concatenate([section.kl for section in forced])
    shown = {f"row.{name}": quantile(every, q=q) for name, q in ROW_QUANTILES.items()}
    shown["mean"] = exact_mean(part.kl_mean for part in rows.drifts)
    shown["row.max"] = float(every.max())
    shown["slope_per_1000_positions"] = _slope(forced)
    for section in ("decode.logits", "stream.logits"):
        extra = [part.kl_mean for part in rows.sections if part.section == section]
        shown[f"{section}.mean"] = exact_mean(extra)
    for tag, means in _by_tag(pair, rows.drifts).items():
        shown[f"tag.{tag}.mean"] = exact_mean(means)
    for row, means in _by_batch_row(pair, rows.drifts).items():
        shown[f"batch_row.{row}.mean"] = exact_mean(means)
    total = sum(part.kl.size for part in rows.sections)
    agree = total - sum(part.disagreements for part in rows.sections)
    shown["top1_agreement"] = agree / total
    shown["topk_overlap"] = exact_mean(part.overlap_mean for part in forced)
    shown["tied_rows"] = float(sum(part.ties for part in rows.sections))
    shown["tvd.max"] = float(np.max([part.tvd_max for part in rows.sections]))
    shown["kl_reverse.max"] = float(np.max([part.reverse_max for part in rows.sections]))
    shown["abs_dlogprob.max"] = float(np.max([part.dlogprob_max for part in rows.sections]))
    return {name: value for name, value in shown.items() if value is not None}


def kl_pattern(pair: Pair, rows: LogitRows) -> str | None:
    """Batch rows whose median prompt is far above that of the best batch row, if not all are."""
    medians = {
        row: float(np.median(means))
        for row, means in _by_batch_row(pair, rows.drifts).items()
        if len(means) >= MIN_PROMPTS
    }
    if not medians:
        return None
    lowest = min(medians.values())
    wrong = [row for row in sorted(medians) if medians[row] > FACTOR * lowest]
    return f"batch rows {ranges(wrong)}" if wrong else None


def worst_mean(drifts: Sequence[SectionRows]) -> Worst:
    """The prompt with the greatest mean, and its worst position."""
    worst = drifts[int(np.argmax([part.kl_mean for part in drifts]))]
    return Worst(
        prompt=worst.prompt,
        position=worst.kl_worst.position,
        place=f"{worst.section} row {worst.kl_worst.row}",
        value=worst.kl_mean,
        detail=f"KL {worst.kl_worst.value:.4g} nats at the position; {worst.kl_worst.detail}",
    )


def worst_row(sections: Sequence[SectionRows]) -> Worst:
    """The row with the greatest KL over all sections; the first among equals."""
    worst = sections[int(np.argmax([part.kl_worst.value for part in sections]))]
    return Worst(
        prompt=worst.prompt,
        position=worst.kl_worst.position,
        place=f"{worst.section} row {worst.kl_worst.row}",
        value=worst.kl_worst.value,
        detail=worst.kl_worst.detail,
    )


def _by_tag(pair: Pair, drifts: Sequence[SectionRows]) -> Mapping[str, list[float]]:
    groups: dict[str, list[float]] = {}
    for part in drifts:
        for tag in pair.ref.prompts[part.prompt].tags:
            groups.setdefault(tag, []).append(part.kl_mean)
    return groups


def _by_batch_row(pair: Pair, drifts: Sequence[SectionRows]) -> Mapping[int, list[float]]:
    groups: dict[int, list[float]] = {}
    for part in drifts:
        row = pair.cand.manifest.batch_rows.get(part.prompt)
        if row is not None:
            groups.setdefault(row, []).append(part.kl_mean)
    return dict(sorted(groups.items()))


def _slope(forced: Sequence[SectionRows]) -> float | None:
    """Within-prompt least-squares slope of KL over position, nats per 1000 positions."""
    above, below = [], []
    for part in forced:
        centred = part.positions - part.positions.mean()
        above.append(exact_sum(centred * part.kl))
        below.append(exact_sum(centred * centred))
    spread = exact_sum(below)
    return PER * exact_sum(above) / spread if spread > 0 else None
