"""Float64 truth: one obvious function an operation, in NumPy, each proved by a second derivation."""

from validate.oracle.attention import LayerOutput, LayerState, attention_layer
from validate.oracle.attn_res import attn_res
from validate.oracle.formats import (
    MxFp4,
    e2m1_values,
    e8m0_of,
    e8m0_values,
    float8_decode,
    float8_encode,
    float8_values,
    mxfp4_decode,
    mxfp4_encode,
)
from validate.oracle.kda import kda, l2_norm, lower_bound_gate
from validate.oracle.kda_chunk import kda_chunk
from validate.oracle.lse_merge import lse_merge
from validate.oracle.mla import causal_attention, mla
from validate.oracle.mla_absorbed import latent_attention, mla_absorbed
from validate.oracle.model import (
    Forward,
    Greedy,
    LayerTrace,
    forward,
    forward_in_pieces,
    greedy,
    logits_of,
)
from validate.oracle.moe import moe, route
from validate.oracle.records import (
    Array,
    KdaOutput,
    KdaWeights,
    MlaOutput,
    MlaWeights,
    MoeOutput,
    MoeWeights,
    Partial,
    Routing,
)
from validate.oracle.renorm import (
    min_p,
    min_p_kept,
    top_k_kept,
    top_k_renorm_prob,
    top_p_kept,
    top_p_renorm_prob,
)
from validate.oracle.rms_norm import rms_norm
from validate.oracle.sampling import draw, filtered
from validate.oracle.short_conv import ShortConv, short_conv
from validate.oracle.sigmoid import sigmoid
from validate.oracle.situ import situ, situ_mlp
from validate.oracle.trace import NamedAxes, PromptRun, run_prompt
from validate.oracle.verify import (
    Verified,
    residual,
    verify_chain,
    verify_exact_match,
    verify_greedy,
    verify_target_only,
)
from validate.oracle.weights import (
    check_weights,
    kda_weights,
    load_weights,
    mla_weights,
    moe_weights,
    weight_shapes,
)

__all__ = [
    "Array",
    "Forward",
    "Greedy",
    "KdaOutput",
    "KdaWeights",
    "LayerOutput",
    "LayerState",
    "LayerTrace",
    "MlaOutput",
    "MlaWeights",
    "MoeOutput",
    "MoeWeights",
    "MxFp4",
    "NamedAxes",
    "Partial",
    "PromptRun",
    "Routing",
    "ShortConv",
    "Verified",
    "attention_layer",
    "attn_res",
    "causal_attention",
    "check_weights",
    "draw",
    "e2m1_values",
    "e8m0_of",
    "e8m0_values",
    "filtered",
    "float8_decode",
    "float8_encode",
    "float8_values",
    "forward",
    "forward_in_pieces",
    "greedy",
    "kda",
    "kda_chunk",
    "kda_weights",
    "l2_norm",
    "latent_attention",
    "load_weights",
    "logits_of",
    "lower_bound_gate",
    "lse_merge",
    "min_p",
    "min_p_kept",
    "mla",
    "mla_absorbed",
    "mla_weights",
    "moe",
    "moe_weights",
    "mxfp4_decode",
    "mxfp4_encode",
    "residual",
    "rms_norm",
    "route",
    "run_prompt",
    "short_conv",
    "sigmoid",
    "situ",
    "situ_mlp",
    "top_k_kept",
    "top_k_renorm_prob",
    "top_p_kept",
    "top_p_renorm_prob",
    "verify_chain",
    "verify_exact_match",
    "verify_greedy",
    "verify_target_only",
    "weight_shapes",
]
