"""``greedy.divergence_rate``: share of prompts whose greedy streams part."""

from validate.metrics._divergence import StreamPair, stream_pairs
from validate.metrics._reason import without_value
from validate.metrics._survival import earliest, powers_of_two
from validate.schema import Levels, Measurement, Pair
from validate.stats import proportion_limits

__all__ = ["greedy_divergence_rate"]

NAME = "greedy.divergence_rate"
PER = 1000.0


def greedy_divergence_rate(pair: Pair, levels: Levels) -> Measurement:
    """Share of prompts whose greedy streams differ at some step within the shorter one.

    Near-ties count here too: how often rounding decides what a user reads. Whether each
    divergence is explained is the question of ``greedy.unexplained``.

    Args:
        pair: Both sides' greedy streams.
        levels: Levels of the two Clopper-Pearson limits.

    Returns:
        Measurement as a share, ``n`` = prompts with a token on either side. The breakdown holds flips per
        1,000 compared tokens and the share of prompts that still agree after 2, 4, 8, …
        steps, out of those that reached the step or parted before. Undefined
        when a stream is missing or all are empty.

    Source:
        ``validate.stats.proportion_limits``.
    """
    streams = stream_pairs(pair)
    if streams.reason is not None:
        return without_value(NAME, streams.reason, unit="share", n_of="prompts")
    pairs = streams.pairs
    parted = [one for one in pairs if one.diverged is not None]
    compared = sum(one.compared for one in pairs)
    shown = {"diverged": float(len(parted)), "tokens": float(compared)}
    if compared:
        shown["flips_per_1000"] = PER * len(parted) / compared
    return Measurement(
        metric=NAME,
        value=len(parted) / len(pairs),
        unit="share",
        n=len(pairs),
        n_of="prompts",
        interval=proportion_limits(len(parted), len(pairs), levels=levels),
        worst=earliest(parted),
        breakdown=shown | _survival(pairs),
    )


def _survival(pairs: tuple[StreamPair, ...]) -> dict[str, float]:
    """Share that agrees on the first N steps, N a power of two, of the prompts that can tell."""
    longest = max(one.compared for one in pairs)
    shown: dict[str, float] = {}
    for steps in powers_of_two(longest):
        telling = [one for one in pairs if one.compared >= steps or one.diverged is not None]
        agree = [one for one in telling if one.diverged is None or one.diverged >= steps]
        if telling:
            shown[f"agree_after.{steps}"] = len(agree) / len(telling)
    return shown
