"""``greedy.flips_per_1000``: how often streams part, by the tokens that they were compared on."""

import math

from validate.metrics._divergence import StreamPair, stream_pairs
from validate.metrics._reason import Reason, without_value
from validate.metrics._survival import earliest, survival_beside, who_parts_first
from validate.schema import Levels, Measurement, Pair
from validate.stats import hazard_ratio_limits, poisson_rate_limits

__all__ = ["greedy_flips_per_1000"]

NAME = "greedy.flips_per_1000"
PER = 1000.0


def greedy_flips_per_1000(pair: Pair, levels: Levels) -> Measurement:
    """First divergences per 1,000 compared tokens: the hazard that a stream parts.

    A prompt is exposed up to and including its first divergence, or to the end of the shorter
    stream, and parts at most once. This is the absolute bound for suites whose repeats of
    ref part too seldom for a ratio (``greedy.hazard_ratio``), which is shown in the breakdown.

    Args:
        pair: Both sides' greedy streams, and ref's repeats for what is shown.
        levels: Levels of the two exact Poisson limits.

    Returns:
        Measurement in flips per 1,000 tokens, ``n`` = prompts with a token on either side. The
        breakdown holds the Kaplan-Meier share still in agreement after 2, 4, 8, ... tokens, for
        cand and, as ``floor``, for ref's repeats. Undefined when a stream is missing, or no
        token was compared.

    Source:
        ``validate.stats.poisson_rate_limits`` (Garwood 1936).
    """
    streams = stream_pairs(pair)
    if streams.reason is not None:
        return without_value(NAME, streams.reason, unit="flips per 1,000 tokens", n_of="prompts")
    pairs = streams.pairs
    parted = [one for one in pairs if one.diverged is not None]
    tokens = sum(one.compared for one in pairs)
    if tokens == 0:
        why = Reason(f"no stream token of {len(pairs)} prompts is held by both sides")
        return without_value(NAME, why, unit="flips per 1,000 tokens", n_of="prompts")
    rate = PER * len(parted) / tokens
    return Measurement(
        metric=NAME,
        value=rate,
        unit="flips per 1,000 tokens",
        n=len(pairs),
        n_of="prompts",
        interval=poisson_rate_limits(len(parted), exposure=tokens / PER, levels=levels),
        worst=earliest(pairs),
        worst_value=rate if math.isfinite(rate) else None,
        breakdown={
            "flips": float(len(parted)),
            "tokens": float(tokens),
            **survival_beside(pair, pairs),
            **_hazard(pair, pairs, levels),
        },
    )


def _hazard(pair: Pair, pairs: tuple[StreamPair, ...], levels: Levels) -> dict[str, float]:
    """The paired hazard ratio beside the rate: shown, whatever ref's repeats leave to tell it by."""
    firsts = who_parts_first(pair, pairs)
    if firsts is None:
        return {}
    cand, floor = len(firsts.cand), len(firsts.floor)
    limits = hazard_ratio_limits(cand, floor, levels=levels)
    found = {
        "hazard.cand_first": float(cand),
        "hazard.floor_first": float(floor),
        "hazard.ratio": cand / floor if floor else None,
        "hazard.ratio low": limits.low,
        "hazard.ratio high": limits.high,
    }
    return {name: value for name, value in found.items() if value is not None}
