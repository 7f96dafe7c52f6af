"""``logits.nll_delta``: how much worse, or better, cand predicts the prompts' own tokens."""

import numpy as np

from validate.metrics._logit_rows import logit_rows
from validate.metrics._reason import Reason, without_value
from validate.numerics import exact_mean
from validate.schema import Levels, Measurement, Pair, Worst
from validate.stats import abs_median, abs_median_limits, quantile_n_min

__all__ = ["nll_delta"]

NAME = "logits.nll_delta"
MEDIAN = 0.5


def nll_delta(pair: Pair, levels: Levels) -> Measurement:
    """Absolute median over prompts of the mean of nll_cand - nll_ref over the prompt's tokens.

    A systematic shift in what the model knows. Errors of either sign at single tokens
    cancel here, so it stands beside the KL gates, not instead of them. The median, because
    differences of clean pairs have tails so heavy and skewed that no limit of their
    mean keeps a small level; its limits are those of two sign tests and keep every level.

    Args:
        pair: Both sides' logits.
        levels: Levels of the two limits.

    Returns:
        Measurement in nats per token, ``n`` = prompts of two tokens or more; the signed median and
        mean are in the breakdown. The upper limit is None below 5 prompts at 95 %. Undefined when a logit is not finite,
        when tensors, shapes or positions differ, when both sides mask a token that
        the prompt holds, or without any target.

    Source:
        ``validate.numerics.row_statistics`` and ``validate.stats.abs_median_limits``.
    """
    rows = logit_rows(pair)
    kept = [part for part in rows.forced if part.nll_delta is not None]
    deltas = np.array([part.nll_delta for part in kept], dtype=np.float64)
    reason = rows.reason
    if reason is None and not kept:
        reason = Reason(f"no target token in any of {len(rows.forced)} prompts")
    lacking = sum(part.lacking for part in kept)
    if reason is None and lacking:
        reason = Reason(
            f"top-k logits lack the target of {lacking} rows: keep each row's target among its ids, "
            "or full logits"
        )
    if reason is None and np.isnan(deltas).any():
        prompt = kept[int(np.argmax(np.isnan(deltas)))].prompt
        reason = Reason(f"both sides mask (-inf) a token that prompt {prompt} holds")
    if reason is not None:
        return without_value(NAME, reason, unit="nats", n_of="prompts")
    base = exact_mean(part.nll_ref for part in kept if part.nll_ref is not None)
    needed = quantile_n_min(MEDIAN, levels.high)
    worst = int(np.argmax(np.abs(deltas)))
    return Measurement(
        metric=NAME,
        value=abs_median(deltas),
        unit="nats",
        n=len(kept),
        n_of="prompts",
        interval=abs_median_limits(deltas, levels=levels),
        worst=Worst(
            prompt=kept[worst].prompt,
            place=f"logits, mean over {kept[worst].targets} tokens",
            value=float(deltas[worst]),
        ),
        worst_value=float(np.abs(deltas[worst])),
        breakdown=_breakdown(pair, [part.prompt for part in kept], deltas, base),
        n_needed=needed if len(kept) < needed else None,
    )


def _breakdown(
    pair: Pair,
    prompts: list[str],
    deltas: "np.ndarray[tuple[int], np.dtype[np.float64]]",
    base: float | None,
) -> dict[str, float]:
    mean = exact_mean(deltas)
    shown = {"signed": float(np.median(deltas)), "mean": mean, "nll_ref": base}
    if mean is not None and base is not None:
        shown |= {"nll_cand": base + mean, "ppl_ratio": float(np.exp(mean))}
    tags = sorted({tag for prompt in prompts for tag in pair.ref.prompts[prompt].tags})
    for tag in tags:
        chosen = [
            delta
            for prompt, delta in zip(prompts, deltas, strict=True)
            if tag in pair.ref.prompts[prompt].tags
        ]
        shown[f"tag.{tag}"] = exact_mean(chosen)
    return {name: value for name, value in shown.items() if value is not None}
