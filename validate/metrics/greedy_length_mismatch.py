"""``greedy.length_mismatch``: streams that agree as far as both go, but do not end alike."""

from validate.metrics._divergence import StreamPair, stream_pairs
from validate.metrics._reason import without_value
from validate.schema import Levels, Measurement, Pair, Worst

__all__ = ["greedy_length_mismatch"]

NAME = "greedy.length_mismatch"


def greedy_length_mismatch(pair: Pair, levels: Levels) -> Measurement:
    """Count of prompts whose streams agree on their common part and end otherwise.

    Equal tokens decide equal endings, so a difference is a fault of the stop rule or a lost
    token, not of rounding. Prompts that diverge are counted by the other greedy metrics.

    Args:
        pair: Both sides' greedy streams.
        levels: Not used: a count is deterministic.

    Returns:
        Measurement in prompts, ``n`` = prompts. Undefined when a stream is missing or all are empty.

    Source:
        ``Stream.token_ids`` and ``Stream.finish_reason``.
    """
    del levels
    streams = stream_pairs(pair)
    if streams.reason is not None:
        return without_value(NAME, streams.reason, unit="prompts", n_of="prompts")
    agreeing = [one for one in streams.every if one.diverged is None]
    lengths = [one for one in agreeing if len(one.ref) != len(one.cand)]
    finishes = [one for one in agreeing if one.ref_finish != one.cand_finish]
    wrong = [one for one in agreeing if one in lengths or one in finishes]
    return Measurement(
        metric=NAME,
        value=float(len(wrong)),
        unit="prompts",
        n=len(streams.every),
        n_of="prompts",
        worst=_worst(wrong),
        breakdown={
            "length": float(len(lengths)),
            "finish_reason": float(len(finishes)),
            "compared": float(len(agreeing)),
            "empty": float(len(streams.every) - len(streams.pairs)),
        },
    )


def _worst(wrong: list[StreamPair]) -> Worst | None:
    """The prompt with the greatest difference in length; the first among equals."""
    if not wrong:
        return None
    one = max(wrong, key=lambda streams: abs(len(streams.ref) - len(streams.cand)))
    return Worst(
        prompt=one.prompt,
        position=one.start + min(len(one.ref), len(one.cand)),
        place="end of stream",
        value=float(abs(len(one.ref) - len(one.cand))),
        detail=f"ref {len(one.ref)} tokens ({one.ref_finish}), cand {len(one.cand)} tokens "
        f"({one.cand_finish})",
    )
