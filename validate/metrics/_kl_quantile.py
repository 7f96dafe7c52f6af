"""One quantile over prompts of the prompt's mean KL: what the KL quantile metrics share."""

import numpy as np

from validate.metrics._bounds import UNBOUNDED, between, upper_bound
from validate.metrics._kl_breakdown import kl_breakdown, kl_pattern, worst_mean
from validate.metrics._logit_rows import logit_rows
from validate.metrics._reason import without_value
from validate.schema import Levels, Measurement, Pair
from validate.stats import quantile, quantile_limits, quantile_n_min

__all__ = ["kl_quantile"]


def kl_quantile(pair: Pair, levels: Levels, *, name: str, q: float) -> Measurement:
    """The q-quantile over prompts of mean KL(ref || cand), measured as metric ``name``.

    Args:
        pair: Both sides' logits.
        levels: Levels of the two limits.
        name: The metric's name, ``area.metric``.
        q: Which quantile, in (0, 1).

    Returns:
        Measurement in nats, ``n`` = prompts; ``n_needed`` below ``quantile_n_min`` prompts. From
        top-k logits value and lower limit are made of lower bounds, ``upper`` and the upper limit
        of upper ones; without cand's row minima the latter are missing.

    Raises:
        InputError: q or a level is outside (0, 1).

    Source:
        ``validate.numerics.row_statistics`` and ``validate.stats.quantile_limits``.
    """
    rows = logit_rows(pair)
    if rows.reason is not None:
        return without_value(name, rows.reason, unit="nats", n_of="prompts")
    means = [part.kl_mean for part in rows.drifts]
    needed = quantile_n_min(q, levels.high)
    interval = quantile_limits(means, q=q, levels=levels)
    upper = None
    if not rows.exact:
        uppers = np.minimum(rows.upper_means, UNBOUNDED)
        interval = between(interval, quantile_limits(uppers, q=q, levels=levels))
        upper = upper_bound(quantile(uppers, q=q))
    return Measurement(
        metric=name,
        value=quantile(means, q=q),
        unit="nats",
        n=len(means),
        n_of="prompts",
        interval=interval,
        worst=worst_mean(rows.drifts),
        worst_value=float(np.max(means)),
        pattern=kl_pattern(pair, rows),
        breakdown=kl_breakdown(pair, rows),
        n_needed=needed if len(means) < needed else None,
        upper=upper,
        why_open=rows.why_open,
    )
