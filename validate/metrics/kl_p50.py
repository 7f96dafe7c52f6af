"""``logits.kl_p50``: median over prompts of the prompt's mean KL."""

from validate.metrics._kl_quantile import kl_quantile
from validate.schema import Levels, Measurement, Pair

__all__ = ["kl_p50"]

NAME = "logits.kl_p50"
Q = 0.50


def kl_p50(pair: Pair, levels: Levels) -> Measurement:
    """Median over prompts of mean KL(ref || cand) over the prompt's own tokens.

    The drift of the typical prompt, by the same number a prompt as in ``logits.kl_p90``, held
    against the noise floor of ref's repeats. A small drift of every prompt shows
    here while the tail is still inside its limit. It stands in the place of a
    mean, which one prompt may carry and a few prompts cannot bound; the mean is shown beside it.

    Args:
        pair: Both sides' logits.
        levels: Levels of the two limits.

    Returns:
        Measurement in nats, ``n`` = prompts. The upper limit is None below 5 prompts at 95 %
        (``n_needed`` says how many). Undefined when a logit is not finite, when tensors,
        shapes or positions differ, or without logits.

    Source:
        ``validate.numerics.row_statistics`` and ``validate.stats.quantile_limits``.
    """
    return kl_quantile(pair, levels, name=NAME, q=Q)
