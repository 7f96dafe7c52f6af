"""One pair in, one ``Measurement`` out; one metric a file."""

from collections.abc import Callable, Mapping

from validate.metrics.attention_head_rel_l2 import attention_head_rel_l2
from validate.metrics.attention_hidden_rel_l2 import attention_hidden_rel_l2
from validate.metrics.attention_introduced_ratio import attention_introduced_ratio
from validate.metrics.attention_lse_abs import attention_lse_abs
from validate.metrics.attention_lse_slope import attention_lse_slope
from validate.metrics.attention_nonfinite import attention_nonfinite
from validate.metrics.attention_propagated_ratio import attention_propagated_ratio
from validate.metrics.attention_rel_l2 import attention_rel_l2
from validate.metrics.attention_routing_mismatch import attention_routing_mismatch
from validate.metrics.attention_routing_weight import attention_routing_weight
from validate.metrics.attention_row_rel_l2 import attention_row_rel_l2
from validate.metrics.attention_scale import attention_scale
from validate.metrics.evals_identical import evals_identical
from validate.metrics.evals_length import evals_length
from validate.metrics.evals_loglik_delta import evals_loglik_delta
from validate.metrics.evals_prompts import evals_prompts
from validate.metrics.evals_rates import evals_rates
from validate.metrics.evals_score_drop import evals_score_drop
from validate.metrics.evals_setup import evals_setup
from validate.metrics.evals_signal import evals_signal
from validate.metrics.flip_rate import flip_rate
from validate.metrics.greedy_divergence_rate import greedy_divergence_rate
from validate.metrics.greedy_flips_per_1000 import greedy_flips_per_1000
from validate.metrics.greedy_hazard_ratio import greedy_hazard_ratio
from validate.metrics.greedy_invalid_ids import greedy_invalid_ids
from validate.metrics.greedy_length_mismatch import greedy_length_mismatch
from validate.metrics.greedy_unexplained import greedy_unexplained
from validate.metrics.greedy_unexplained_rate import greedy_unexplained_rate
from validate.metrics.kl_exceed_rate import kl_exceed_rate
from validate.metrics.kl_max import kl_max
from validate.metrics.kl_p50 import kl_p50
from validate.metrics.kl_p90 import kl_p90
from validate.metrics.logits_err_ratio import logits_err_ratio
from validate.metrics.logits_nonfinite import logits_nonfinite
from validate.metrics.nll_delta import nll_delta
from validate.metrics.renorm_input_unchanged import renorm_input_unchanged
from validate.metrics.renorm_kept_mass import renorm_kept_mass
from validate.metrics.renorm_kept_set import renorm_kept_set
from validate.metrics.renorm_nonfinite import renorm_nonfinite
from validate.metrics.renorm_sum_error import renorm_sum_error
from validate.metrics.renorm_value_error import renorm_value_error
from validate.metrics.speculative_acceptance_delta import speculative_acceptance_delta
from validate.metrics.speculative_acceptance_z import speculative_acceptance_z
from validate.metrics.speculative_audit import speculative_audit
from validate.metrics.speculative_greedy_unexplained import speculative_greedy_unexplained
from validate.metrics.speculative_health import speculative_health
from validate.metrics.speculative_logprob import speculative_logprob
from validate.metrics.speculative_nonfinite import speculative_nonfinite
from validate.metrics.speculative_replay import speculative_replay
from validate.metrics.speculative_serial import speculative_serial
from validate.metrics.speculative_support import speculative_support
from validate.metrics.speculative_surprisal import speculative_surprisal
from validate.metrics.speculative_uniform import speculative_uniform
from validate.metrics.speculative_verify_kl import speculative_verify_kl
from validate.metrics.speculative_verify_logprob import speculative_verify_logprob
from validate.metrics.state_chunked_oneshot import state_chunked_oneshot
from validate.metrics.state_conv_rel_l2 import state_conv_rel_l2
from validate.metrics.state_kda_rel_l2 import state_kda_rel_l2
from validate.metrics.state_kv_rel_l2 import state_kv_rel_l2
from validate.metrics.state_nonfinite import state_nonfinite
from validate.metrics.state_prefill_decode import state_prefill_decode
from validate.metrics.top1_flips import top1_flips
from validate.schema import Levels, Measurement, Pair

__all__ = ["METRICS", "Metric"]

Metric = Callable[[Pair, Levels], Measurement]
"""A metric measures one pair; ``Levels`` are the confidence levels of its interval."""

METRICS: Mapping[str, Metric] = {
    "attention.nonfinite": attention_nonfinite,
    "attention.rel_l2": attention_rel_l2,
    "attention.head_rel_l2": attention_head_rel_l2,
    "attention.row_rel_l2": attention_row_rel_l2,
    "attention.scale": attention_scale,
    "attention.lse_abs": attention_lse_abs,
    "attention.lse_slope": attention_lse_slope,
    "attention.hidden_rel_l2": attention_hidden_rel_l2,
    "attention.introduced_ratio": attention_introduced_ratio,
    "attention.propagated_ratio": attention_propagated_ratio,
    "attention.routing_mismatch": attention_routing_mismatch,
    "attention.routing_weight": attention_routing_weight,
    "state.nonfinite": state_nonfinite,
    "state.kda_rel_l2": state_kda_rel_l2,
    "state.conv_rel_l2": state_conv_rel_l2,
    "state.kv_rel_l2": state_kv_rel_l2,
    "state.prefill_decode": state_prefill_decode,
    "state.chunked_oneshot": state_chunked_oneshot,
    "logits.nonfinite": logits_nonfinite,
    "logits.kl_p90": kl_p90,
    "logits.kl_max": kl_max,
    "logits.kl_exceed_rate": kl_exceed_rate,
    "logits.kl_p50": kl_p50,
    "logits.nll_delta": nll_delta,
    "logits.top1_flips": top1_flips,
    "logits.flip_rate": flip_rate,
    "logits.err_ratio": logits_err_ratio,
    "greedy.unexplained": greedy_unexplained,
    "greedy.unexplained_rate": greedy_unexplained_rate,
    "greedy.divergence_rate": greedy_divergence_rate,
    "greedy.flips_per_1000": greedy_flips_per_1000,
    "greedy.hazard_ratio": greedy_hazard_ratio,
    "greedy.invalid_ids": greedy_invalid_ids,
    "greedy.length_mismatch": greedy_length_mismatch,
    "speculative.nonfinite": speculative_nonfinite,
    "speculative.support": speculative_support,
    "speculative.uniform": speculative_uniform,
    "speculative.surprisal": speculative_surprisal,
    "speculative.serial": speculative_serial,
    "speculative.acceptance_z": speculative_acceptance_z,
    "speculative.acceptance_delta": speculative_acceptance_delta,
    "speculative.verify_kl": speculative_verify_kl,
    "speculative.verify_logprob": speculative_verify_logprob,
    "speculative.logprob": speculative_logprob,
    "speculative.audit": speculative_audit,
    "speculative.health": speculative_health,
    "speculative.greedy_unexplained": speculative_greedy_unexplained,
    "speculative.replay": speculative_replay,
    "renorm.nonfinite": renorm_nonfinite,
    "renorm.kept_set": renorm_kept_set,
    "renorm.kept_mass": renorm_kept_mass,
    "renorm.sum_error": renorm_sum_error,
    "renorm.value_error": renorm_value_error,
    "renorm.input_unchanged": renorm_input_unchanged,
    "evals.setup": evals_setup,
    "evals.prompts": evals_prompts,
    "evals.identical": evals_identical,
    "evals.signal": evals_signal,
    "evals.rates": evals_rates,
    "evals.score_drop": evals_score_drop,
    "evals.loglik_delta": evals_loglik_delta,
    "evals.length": evals_length,
}
"""Every metric by its name ``area.metric``."""
