"""``greedy.hazard_ratio``: how much oftener cand leaves ref than ref's own repeats do."""

import math

from validate.metrics._divergence import stream_pairs
from validate.metrics._reason import Reason, without_value
from validate.metrics._survival import earliest, survival_beside, who_parts_first
from validate.schema import Levels, Measurement, Pair
from validate.stats import hazard_ratio_limits

__all__ = ["greedy_hazard_ratio"]

NAME = "greedy.hazard_ratio"
FLOOR_MIN = 10
"""Fewest prompts on which the repeat parts first; below it the ratio is a matter of luck."""


def greedy_hazard_ratio(pair: Pair, levels: Levels) -> Measurement:
    """Hazard of divergence of cand over that of a repeat of ref, paired by prompt.

    On each prompt cand's stream and one repeat's (chosen by the prompt's id) are set beside ref's. Where
    hazards are proportional with ratio r inside a prompt, cand parts first with chance
    r / (1 + r): the ratio is the count of prompts where cand parts first over that where the
    repeat does. Its upper limit inside a margin is non-inferiority.

    Args:
        pair: Greedy streams of both sides and of ref's repeats.
        levels: Levels of the two exact limits.

    Returns:
        Measurement as a ratio, ``n`` = prompts with a token on either side. 0 where cand never
        parts from ref. Undefined without repeats, with repeats that part first on fewer than
        10 prompts (then ``greedy.flips_per_1000`` bounds the rate itself, and ``n_needed`` says how
        many prompts would do), or without streams.

    Source:
        ``validate.stats.hazard_ratio_limits`` (Holt and Prentice 1974).
    """
    streams = stream_pairs(pair)
    if streams.reason is not None:
        return without_value(NAME, streams.reason, unit="ratio", n_of="prompts")
    pairs = streams.pairs
    firsts = who_parts_first(pair, pairs)
    if firsts is None:
        return without_value(
            NAME, Reason("no repeat of ref holds every stream"), unit="ratio", n_of="prompts"
        )
    cand, floor = len(firsts.cand), len(firsts.floor)
    shown = {
        "cand_first": float(cand),
        "floor_first": float(floor),
        "floor_flips": float(firsts.events),
        **survival_beside(pair, pairs),
    }
    if floor < FLOOR_MIN and any(one.diverged is not None for one in pairs):
        return Measurement(
            metric=NAME,
            value=None,
            unit="ratio",
            n=len(pairs),
            n_of="prompts",
            why_undefined=f"ref's repeats part first on {floor} prompts, {FLOOR_MIN} needed",
            breakdown=shown,
            n_needed=math.ceil(len(pairs) * FLOOR_MIN / floor) if floor else None,
        )
    return Measurement(
        metric=NAME,
        value=cand / floor if floor else 0.0,
        unit="ratio",
        n=len(pairs),
        n_of="prompts",
        interval=hazard_ratio_limits(cand, floor, levels=levels),
        worst=earliest(firsts.cand),
        breakdown=shown,
    )
