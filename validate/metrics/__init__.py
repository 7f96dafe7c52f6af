"""One pair in, one ``Measurement`` out; one metric a file."""

from collections.abc import Callable, Mapping

from validate.metrics.greedy_divergence_rate import greedy_divergence_rate
from validate.metrics.greedy_invalid_ids import greedy_invalid_ids
from validate.metrics.greedy_length_mismatch import greedy_length_mismatch
from validate.metrics.greedy_unexplained import greedy_unexplained
from validate.metrics.kl_max import kl_max
from validate.metrics.kl_mean import kl_mean
from validate.metrics.kl_p90 import kl_p90
from validate.metrics.logits_err_ratio import logits_err_ratio
from validate.metrics.logits_nonfinite import logits_nonfinite
from validate.metrics.nll_delta import nll_delta
from validate.metrics.top1_flips import top1_flips
from validate.schema import Levels, Measurement, Pair

__all__ = ["METRICS", "Metric"]

Metric = Callable[[Pair, Levels], Measurement]
"""A metric measures one pair; ``Levels`` are the confidence levels of its interval."""

METRICS: Mapping[str, Metric] = {
    "logits.nonfinite": logits_nonfinite,
    "logits.kl_p90": kl_p90,
    "logits.kl_max": kl_max,
    "logits.kl_mean": kl_mean,
    "logits.nll_delta": nll_delta,
    "logits.top1_flips": top1_flips,
    "logits.err_ratio": logits_err_ratio,
    "greedy.unexplained": greedy_unexplained,
    "greedy.divergence_rate": greedy_divergence_rate,
    "greedy.invalid_ids": greedy_invalid_ids,
    "greedy.length_mismatch": greedy_length_mismatch,
}
"""Every metric by its name ``area.metric``."""
