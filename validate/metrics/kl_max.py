"""``logits.kl_max``: the worst position of all."""

import numpy as np

from validate.metrics._kl_breakdown import kl_breakdown, kl_pattern, worst_row
from validate.metrics._logit_rows import logit_rows
from validate.metrics._reason import without_value
from validate.schema import Levels, Measurement, Pair

__all__ = ["kl_max"]

NAME = "logits.kl_max"


def kl_max(pair: Pair, levels: Levels) -> Measurement:
    """Greatest KL(ref || cand) at any position whose prefix is identical on both sides.

    One lost row hides in every average and shows here. Looked at are the forced rows
    (``logits``), the same tokens on the decode path (``decode.logits``) and the rows of
    greedy streams up to and including the first divergence (``stream.logits``).

    Args:
        pair: Both sides' logits.
        levels: Not used: a maximum over all that was compared is deterministic.

    Returns:
        Measurement in nats, ``n`` = positions, without interval; ``worst.detail`` shows the top
        choices of both sides. Top-k logits give its lower bound, with the upper one in ``upper``.
        Undefined when a logit is not finite, when tensors, shapes or
        positions differ, or without logits.

    Source:
        ``validate.numerics.row_statistics``.
    """
    del levels
    rows = logit_rows(pair)
    if rows.reason is not None:
        return without_value(NAME, rows.reason, unit="nats", n_of="positions")
    worst = worst_row(rows.sections)
    return Measurement(
        metric=NAME,
        value=worst.value,
        unit="nats",
        n=sum(part.kl.size for part in rows.sections),
        n_of="positions",
        worst=worst,
        worst_value=worst.value,
        pattern=kl_pattern(pair, rows),
        breakdown=kl_breakdown(pair, rows),
        upper=None if rows.exact else float(np.max([part.upper_worst for part in rows.sections])),
        why_open=rows.why_open,
    )
