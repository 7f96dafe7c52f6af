"""``logits.kl_exceed_rate``: share of prompts with a position of more than a tenth of a nat."""

from validate.metrics._bounds import share_between
from validate.metrics._kl_breakdown import kl_pattern, worst_row
from validate.metrics._logit_rows import logit_rows
from validate.metrics._reason import without_value
from validate.schema import Levels, Measurement, Pair

__all__ = ["kl_exceed_rate"]

NAME = "logits.kl_exceed_rate"
STATED = 0.1
"""Nats. By Pinsker's inequality a lesser KL moves no event's probability by more than 0.224."""


def kl_exceed_rate(pair: Pair, levels: Levels) -> Measurement:
    """Share of prompts whose worst position has KL(ref || cand) above 0.1 nats.

    A tail that a quantile over prompt means does not see and that a maximum judges by a
    single row: how many prompts hold a position where the two laws are visibly apart. Looked
    at are the same rows as in ``logits.kl_max``.

    Args:
        pair: Both sides' logits.
        levels: Levels of the two Clopper-Pearson limits.

    Returns:
        Measurement as a share, ``n`` = prompts; ``worst`` is the position with the greatest KL
        (nats). Undefined as ``logits.kl_max``.

    Source:
        ``validate.numerics.row_statistics`` and ``validate.stats.proportion_limits``.
    """
    rows = logit_rows(pair)
    if rows.reason is not None:
        return without_value(NAME, rows.reason, unit="share", n_of="prompts")
    prompts = rows.by_prompt
    hit = [
        prompt
        for prompt, parts in prompts.items()
        if any(not part.kl_worst.value <= STATED for part in parts)
    ]
    maybe = [
        prompt
        for prompt, parts in prompts.items()
        if any(not part.upper_worst <= STATED for part in parts)
    ]
    worst = worst_row(rows.sections)
    return Measurement(
        metric=NAME,
        value=len(hit) / len(prompts),
        unit="share",
        n=len(prompts),
        n_of="prompts",
        interval=share_between(len(hit), len(maybe), len(prompts), levels=levels),
        worst=worst,
        worst_value=worst.value,
        pattern=kl_pattern(pair, rows),
        upper=None if rows.exact else len(maybe) / len(prompts),
        why_open=rows.why_open if len(maybe) > len(hit) else None,
        breakdown={"prompts": float(len(hit)), "stated": STATED},
    )
