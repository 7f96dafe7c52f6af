"""``greedy.unexplained``: stream tokens that no rounding explains, each of them one too many."""

from validate.metrics._explained import checked_streams, widest
from validate.metrics._near_tie import hard_cap
from validate.metrics._reason import Reason, without_value
from validate.schema import Levels, Measurement, Pair

__all__ = ["greedy_unexplained"]

NAME = "greedy.unexplained"


def greedy_unexplained(pair: Pair, levels: Levels) -> Measurement:
    """Count of greedy tokens that no clean path comes near.

    Two kinds. A first divergence counts when ref rates the two ids further apart than
    the hard cap, eight near-tie limits. And on either side every stream token must be
    within the near-tie limit of the top of its own row, also where both sides
    agree: the row comes from the prefill path, the token from the decode path of the same
    side, so this catches faults of decoding alone. A token that is both counts once.
    Divergences between the limit and the cap are judged by their rate over prompts
    (``greedy.unexplained_rate``): a model can be chaotic on a prompt.

    Args:
        pair: Both sides' greedy streams and ``stream.logits``, and the near-tie limit.
        levels: Not used: a count is deterministic.

    Returns:
        Measurement in tokens, ``n`` = prompts with a token on either side; ``worst_value`` is the
        widest gap in nats (None where an id has no logit at all). The breakdown
        counts the kinds and sides, explained near-ties beside the number that the limit
        predicts, and ``near_tie_rows``: the compared rows where a near-tie could happen.
        Undefined when a stream or its rows are missing, of unlike length, or not finite.

    Source:
        design.md section 4, greedy streams.
    """
    del levels
    checked = checked_streams(pair)
    if isinstance(checked, Reason):
        return without_value(NAME, checked, unit="tokens", n_of="prompts")
    divergences = [event for found in checked for event in found.unexplained]
    off = [event for found in checked for event in found.off]
    counted = [event for found in checked for event in found.beyond]
    places = {(event.prompt, event.step, event.side) for event in counted}
    worst = widest(counted)
    cap = hard_cap(pair.near_tie)
    return Measurement(
        metric=NAME,
        value=float(len(places)),
        unit="tokens",
        n=len(checked),
        n_of="prompts",
        worst=worst,
        worst_value=0.0 if worst is None else worst.value,
        breakdown={
            "divergences.beyond_cap": float(sum(not event.gap <= cap for event in divergences)),
            "divergences.unexplained": float(len(divergences)),
            "divergences.near_tie": float(sum(found.near_tie for found in checked)),
            "divergences.near_tie.predicted": sum(found.predicted for found in checked),
            "off_argmax.ref": float(sum(event.side == "ref" for event in off)),
            "off_argmax.cand": float(sum(event.side == "cand" for event in off)),
            "near_tie_rows": float(sum(found.near_tie_rows for found in checked)),
            "near_tie_limit": pair.near_tie,
            "hard_cap": cap,
        },
    )
