"""``logits.kl_p90``: 90th percentile over prompts of the prompt's mean KL."""

import numpy as np

from validate.metrics._kl_breakdown import kl_breakdown, kl_pattern, worst_mean
from validate.metrics._logit_rows import logit_rows
from validate.metrics._reason import without_value
from validate.schema import Levels, Measurement, Pair
from validate.stats import quantile, quantile_limits, quantile_n_min

__all__ = ["kl_p90"]

NAME = "logits.kl_p90"
Q = 0.90


def kl_p90(pair: Pair, levels: Levels) -> Measurement:
    """90th percentile over prompts of mean KL(ref || cand) over the prompt's own tokens.

    Nine of ten prompts drift by no more than this on average. A prompt's number is the mean
    over its prefill rows (``logits``) or over its decode rows (``decode.logits``, where captured),
    whichever is greater, so that a fault of one path is not thinned by the other. Prompts
    are the independent units: the limits are order statistics of prompt numbers
    and hold for any distribution.

    Args:
        pair: Both sides' logits.
        levels: Levels of the two limits.

    Returns:
        Measurement in nats, ``n`` = prompts. The upper limit is None below 29 prompts at 95 %
        (``n_needed`` says how many). Undefined when a logit is not finite, when tensors,
        shapes or positions differ, or without logits.

    Source:
        ``validate.numerics.row_statistics`` and ``validate.stats.quantile_limits``.
    """
    rows = logit_rows(pair)
    if rows.reason is not None:
        return without_value(NAME, rows.reason, unit="nats", n_of="prompts")
    means = [part.kl_mean for part in rows.drifts]
    needed = quantile_n_min(Q, levels.high)
    return Measurement(
        metric=NAME,
        value=quantile(means, q=Q),
        unit="nats",
        n=len(means),
        n_of="prompts",
        interval=quantile_limits(means, q=Q, levels=levels),
        worst=worst_mean(rows.drifts),
        worst_value=float(np.max(means)),
        pattern=kl_pattern(pair, rows),
        breakdown=kl_breakdown(pair, rows),
        n_needed=needed if len(means) < needed else None,
    )
