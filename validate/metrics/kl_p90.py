"""``logits.kl_p90``: 90th percentile over prompts of the prompt's mean KL."""

from validate.metrics._kl_quantile import kl_quantile
from validate.schema import Levels, Measurement, Pair

__all__ = ["kl_p90"]

NAME = "logits.kl_p90"
Q = 0.90


def kl_p90(pair: Pair, levels: Levels) -> Measurement:
    """90th percentile over prompts of mean KL(ref || cand) over the prompt's own tokens.

    Nine of ten prompts drift by no more than this on average. A prompt's number is the mean
    over its prefill rows (``logits``) or over its decode rows (``decode.logits``, where captured),
    whichever is greater, so that a fault of one path is not thinned by the other. Prompts
    are the independent units: the limits are order statistics of prompt numbers
    and hold for any distribution.

    Args:
        pair: Both sides' logits.
        levels: Levels of the two limits.

    Returns:
        Measurement in nats, ``n`` = prompts. The upper limit is None below 29 prompts at 95 %
        (``n_needed`` says how many). Undefined when a logit is not finite, when tensors,
        shapes or positions differ, or without logits.

    Source:
        ``validate.numerics.row_statistics`` and ``validate.stats.quantile_limits``.
    """
    return kl_quantile(pair, levels, name=NAME, q=Q)
