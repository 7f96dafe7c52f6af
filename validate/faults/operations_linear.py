"""Planted faults and controls of KDA, its gate and convolution, residual mix, routing and norms."""

from collections.abc import Callable
from typing import Any

from validate.conformance.records import Effort
from validate.faults import (
    _linear_delta as delta,
    _linear_moe as moe,
    _linear_rows as rows,
    _linear_sizes as sizes,
)
from validate.faults._linear_controls import CONTROLS
from validate.faults.operations import OperationFault

__all__ = ["CONTROLS", "FAULTS"]

Maker = Callable[[], Callable[..., Any]]


def _fault(id_: str, op: str, make: Maker, source: str, **settings: str) -> OperationFault:
    """A fault whose title is the first sentence of its maker."""
    title = (make.__doc__ or "").strip().removesuffix(".")
    return OperationFault(
        id=id_, op=op, title=title, source=source, settings=settings, effort=Effort.QUICK, make=make
    )


_CHUNK = (
    _fault("LA-01", "kda_chunk", delta.carried_transposed, "vllm-project/vllm#41292"),
    _fault("LA-07", "kda_chunk", delta.padding_divides, "ROCm/ATOM#1750"),
    _fault(
        "LA-08",
        "kda_chunk",
        delta.half_state,
        "vllm-project/vllm#39032, sgl-project/sglang#10258: undeclared half-precision state",
    ),
    _fault("LA-10", "kda_chunk", delta.sequences_joined, "THUDM/slime#1686"),
    _fault(
        "LA-11",
        "kda_chunk",
        delta.tail_skipped,
        "fla-org/flash-linear-attention#906; scaled down from 65,536 tokens to 64",
    ),
    _fault("LA-12", "kda_chunk", delta.mask_by_tile, "fla-org/flash-linear-attention#1104"),
    _fault(
        "LA-14",
        "kda_chunk",
        delta.boundary_lost,
        "vllm-project/vllm#52909: differs from the first chunk boundary on",
    ),
    _fault(
        "VX-50",
        "kda_chunk",
        delta.state_forgotten,
        "lablup/mlxcel#1749: chunked prefill starts each piece from zeros",
    ),
    _fault(
        "VX-51",
        "kda_chunk",
        delta.state_read_transposed,
        "The V-first and K-first kernels of one engine given each other's states (ATOM's layout flag)",
    ),
    _fault(
        "VX-52",
        "kda_chunk",
        delta.exponents_of_one_sign,
        "Textbook form of the chunked rule without fla's safe gate: e^(5 * 64) is past float32",
    ),
    _fault(
        "VX-53",
        "kda_chunk",
        delta.inverse_by_powers,
        "An earlier form of this project's own chunked prefill: four digits lost in float32",
    ),
)

_RECURRENT = (
    _fault(
        "LA-06",
        "kda_recurrent",
        delta.slot_in_wrong_unit,
        "vllm-project/vllm#55600: divided by the smaller block size",
    ),
    _fault("LA-08", "kda_recurrent", delta.half_state_steps, "vllm-project/tpu-inference#2482"),
    _fault("LA-13", "kda_recurrent", delta.replayed_zeros, "sgl-project/sglang#27658 (review)"),
    _fault("VX-54", "kda_recurrent", delta.softplus_gate, "sgl-project/sglang#32980"),
    _fault(
        "VX-55",
        "kda_recurrent",
        delta.biased_beta,
        "ATOM's comment that bfloat16 beta cost GSM8K points",
    ),
    _fault(
        "VX-56",
        "kda_recurrent",
        delta.first_head_gate,
        "sglang narrows A_log to a rank's heads; without it every head reads the first",
    ),
    _fault(
        "VX-57", "kda_recurrent", delta.no_scale, "Scale left to the caller by one of two kernels"
    ),
    _fault(
        "VX-58",
        "kda_recurrent",
        delta.decay_after_update,
        "Order of decay and update: Kimi Linear (arXiv 2510.26692), eq. 1, decays first",
    ),
    _fault("VX-59", "kda_recurrent", delta.unguarded_norm, "fla keeps 1e-6 inside the root"),
)

_GATE = (
    _fault("VX-54", "kda_gate", rows.gate_softplus, "sgl-project/sglang#32980"),
    _fault("VX-60", "kda_gate", rows.gate_not_exponentiated, "A_log is the log of the rate"),
    _fault("VX-61", "kda_gate", rows.bias_transposed, "dt_bias is stored flat, [heads * key]"),
)

_CONV = (
    _fault("LA-10", "short_conv", rows.bounds_not_given, "THUDM/slime#1686, the other half"),
    _fault("VX-62", "short_conv", rows.taps_reversed, "Cross-correlation against convolution"),
    _fault(
        "VX-63",
        "short_conv",
        rows.history_lost,
        "Prefill pieces of fewer tokens than the kernel has taps",
    ),
    _fault("VX-64", "short_conv", rows.without_silu, "Activation argument with default None"),
)

_MIX = (
    _fault("ND-13", "attn_res", rows.bank_as_scratch, "local-inference-lab/vllm#467"),
    _fault("VX-65", "attn_res", rows.mixed_normed, "fla ops/attnres/naive.py mixes raw candidates"),
    _fault("VX-66", "attn_res", rows.prefix_left_out, "The running prefix is the last candidate"),
    _fault("VX-67", "attn_res", rows.plain_exponentials, "Softmax without its maximum"),
)

_ROUTE = (
    _fault("MO-01", "moe_route", moe.bias_in_bfloat16, "sgl-project/sglang#31213, #37133"),
    _fault("MO-04", "moe_route", moe.padding_routed, "sgl-project/sglang#28378"),
    _fault("MO-07", "moe_route", moe.logits_read_as_float32, "flashinfer-ai/flashinfer#2889"),
    _fault(
        "MO-07-norm", "moe_route", moe.renormalised_always, "flashinfer-ai/flashinfer#2889 (flag)"
    ),
    _fault(
        "MO-07-score",
        "moe_route",
        moe.softmax_scores,
        "flashinfer-ai/flashinfer#2889 (scoring function missing)",
    ),
    _fault("MO-09", "moe_route", moe.scaled_twice, "sgl-project/sglang#8511, #8402, #8333"),
    _fault("MO-09-none", "moe_route", moe.scaled_never, "sgl-project/sglang#8333"),
    _fault("VX-68", "moe_route", moe.bias_in_weights, "DeepSeek-V3 weighs by the unbiased score"),
    _fault("VX-69", "moe_route", moe.no_smallest_sum, "sgl-project/sglang#31017"),
)

_COMBINE = (
    _fault("MO-02", "moe_combine", moe.every_rank_adds_shared, "sgl-project/sglang#31476, #26845"),
    _fault("MO-04", "moe_combine", moe.slots_multiplied_by_zero, "sgl-project/sglang#28378"),
    _fault("MO-10", "moe_combine", moe.experts_bias_unweighted, "NVIDIA-NeMo/Automodel#2591"),
)

_POINTWISE = (
    _fault("VX-70", "situ", rows.activation_unbounded, "A SwiGLU kernel under SiTU weights"),
    _fault("VX-71", "situ", rows.betas_swapped, "Two floats side by side in a signature"),
    _fault("VX-72", "situ", rows.exponentials_overflow, "tanh from exponentials in a fused kernel"),
    _fault("MO-05", "rms_norm", rows.norm_per_rank, "sgl-project/sglang#38230"),
    _fault("MO-06", "rms_norm", rows.norm_weight_slice, "sgl-project/sglang#20967"),
    _fault("MO-11", "rms_norm", rows.norm_over_heads, "vllm-project/vllm#16311"),
    _fault("VX-73", "rms_norm", rows.eps_outside_root, "eps placed as in some older frameworks"),
    _fault("VX-74", "rms_norm", rows.half_squares, "Squares of a stream with channels above 256"),
    _fault(
        "VX-75",
        "rms_norm",
        rows.silu_output_gate,
        "A pre-merge modeling_kimi_linear.py fixed the output gate to silu",
    ),
)

_TILE = "A grid or tile that was sized for smaller inputs, and no mask or loop past it"
_BOUND = "gate_lower_bound is -5 in the one model that has it"

_SIZES = (
    _fault("VX-110", "rms_norm", sizes.norm_rows_from_64, _TILE),
    _fault("VX-110", "moe_route", sizes.route_rows_from_67, _TILE),
    _fault("VX-111", "moe_route", sizes.last_expert_never, "Masks that end one expert too early"),
    _fault("VX-112", "moe_route", sizes.five_choices, "Choices padded to a power of two"),
    _fault("VX-113", "moe_route", sizes.no_valid_rows, "0 taken for `not given`"),
    _fault("VX-110", "short_conv", sizes.conv_sequences_from_7, _TILE),
    _fault("VX-111", "short_conv", sizes.conv_of_128, "A tail of length % 128 tokens, here 0"),
    _fault("VX-110", "kda_recurrent", sizes.recurrent_batch_from_6, _TILE),
    _fault("VX-111", "kda_recurrent", sizes.keys_past_32, _TILE),
    _fault("VX-112", "kda_recurrent", sizes.twelve_heads_of_128, "A dispatch by shape"),
    _fault("VX-113", "kda_recurrent", sizes.recurrent_bound_fixed, _BOUND),
    _fault("VX-113", "kda_gate", sizes.gate_bound_fixed, _BOUND),
    _fault("VX-110", "kda_chunk", sizes.chunk_tokens_past_130, _TILE),
    _fault("VX-111", "kda_chunk", sizes.chunk_whole_48, "A tail of length % 48 tokens, here 0"),
    _fault("VX-113", "kda_chunk", sizes.chunk_bound_fixed, _BOUND),
)

FAULTS: tuple[OperationFault, ...] = (
    *_CHUNK,
    *_RECURRENT,
    *_GATE,
    *_CONV,
    *_MIX,
    *_ROUTE,
    *_COMBINE,
    *_POINTWISE,
    *_SIZES,
)
"""Every planted fault of these operations."""
