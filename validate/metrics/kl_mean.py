"""``logits.kl_mean``: mean over prompts of the prompt's mean KL."""

import numpy as np

from validate.metrics._kl_breakdown import kl_breakdown, kl_pattern, worst_mean
from validate.metrics._logit_rows import logit_rows
from validate.metrics._reason import without_value
from validate.numerics import exact_mean
from validate.schema import Levels, Measurement, Pair
from validate.stats import POSITIVE_MEAN_N_MIN, positive_mean_limits

__all__ = ["kl_mean"]

NAME = "logits.kl_mean"


def kl_mean(pair: Pair, levels: Levels) -> Measurement:
    """Mean over prompts of mean KL(ref || cand) over the prompt's own tokens.

    Extra nats per token that a coder pays for using cand's distribution where
    ref's is true; every prompt weighs alike, by the same number as in ``logits.kl_p90``. It
    is held against the noise floor of ref's repeats.

    Args:
        pair: Both sides' logits.
        levels: Levels of the two limits.

    Returns:
        Measurement in nats, ``n`` = prompts. The upper limit is None below 30 prompts or
        when one prompt carries most of the spread (see ``positive_mean_limits``).
        Undefined when a logit is not finite, when tensors, shapes or positions
        differ, or without logits.

    Source:
        ``validate.numerics.row_statistics`` and ``validate.stats.positive_mean_limits``.
    """
    rows = logit_rows(pair)
    if rows.reason is not None:
        return without_value(NAME, rows.reason, unit="nats", n_of="prompts")
    means = [part.kl_mean for part in rows.drifts]
    interval = positive_mean_limits(means, levels=levels)
    short = interval.high is None and len(means) < POSITIVE_MEAN_N_MIN
    return Measurement(
        metric=NAME,
        value=exact_mean(means),
        unit="nats",
        n=len(means),
        n_of="prompts",
        interval=interval,
        worst=worst_mean(rows.drifts),
        worst_value=float(np.max(means)),
        pattern=kl_pattern(pair, rows),
        breakdown=kl_breakdown(pair, rows),
        n_needed=POSITIVE_MEAN_N_MIN if short else None,
    )
