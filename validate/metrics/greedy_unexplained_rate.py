"""``greedy.unexplained_rate``: share of prompts with a token that is no near-tie."""

from validate.metrics._explained import checked_streams, widest
from validate.metrics._reason import Reason, without_value
from validate.schema import Levels, Measurement, Pair
from validate.stats import proportion_limits

__all__ = ["greedy_unexplained_rate"]

NAME = "greedy.unexplained_rate"


def greedy_unexplained_rate(pair: Pair, levels: Levels) -> Measurement:
    """Share of prompts whose streams hold a token beyond the near-tie limit.

    That is a first divergence whose gap in ref's row, or whose distance from the top of
    cand's own row, exceeds the limit; or a token of either side that far off its own row.
    Prompts are the independent units, so that one chaotic prompt counts once.

    Args:
        pair: Both sides' greedy streams and ``stream.logits``, and the near-tie limit.
        levels: Levels of the two Clopper-Pearson limits.

    Returns:
        Measurement as a share, ``n`` = prompts with a token on either side. Undefined as
        ``greedy.unexplained``.

    Source:
        ``validate.stats.proportion_limits``.
    """
    checked = checked_streams(pair)
    if isinstance(checked, Reason):
        return without_value(NAME, checked, unit="share", n_of="prompts")
    hit = [found for found in checked if found.every]
    worst = widest([event for found in hit for event in found.every])
    return Measurement(
        metric=NAME,
        value=len(hit) / len(checked),
        unit="share",
        n=len(checked),
        n_of="prompts",
        interval=proportion_limits(len(hit), len(checked), levels=levels),
        worst=worst,
        worst_value=0.0 if worst is None else worst.value,
        breakdown={
            "prompts": float(len(hit)),
            "near_ties": float(sum(found.near_tie for found in checked)),
            "near_ties.predicted": sum(found.predicted for found in checked),
        },
    )
