"""Latent mixture of experts with a sigmoid router and a correction bias."""

import numpy as np
from jaxtyping import Float64

from validate.oracle.records import Array, MoeOutput, MoeWeights, Routing
from validate.oracle.rms_norm import rms_norm
from validate.oracle.sigmoid import sigmoid
from validate.oracle.situ import situ_mlp

__all__ = ["moe", "route"]


def route(
    x: Float64[Array, "rows hidden"],
    *,
    router: Float64[Array, "experts hidden"],
    correction_bias: Float64[Array, " experts"],
    experts_per_token: int,
) -> Routing:
    """Sigmoid router: pick by ``sigmoid + bias``, weigh by ``sigmoid`` alone.

    Args:
        x: Rows after the pre-norm, float64.
        router: One row of weights an expert.
        correction_bias: Added for the choice, never for the weights.
        experts_per_token: How many experts a row takes.

    Returns:
        ``Routing``: selection scores of all experts; ids by falling score, the
        lowest index winning a tie; weights renormalised by ``sum + 1e-20``.

    Source:
        DeepSeek-V3 (arXiv 2412.19437), section 2.1.2 (auxiliary-loss-free balancing); HF and
        sglang Kimi K3 (``noaux_tc``, one group, renormalise, scale 1.0).

    Example:
        Sigmoids 0.5, 0.5, 0.5; the bias lifts expert 2, the tie goes to expert 0.

        >>> bias = np.array([0.0, 0.0, 0.1])
        >>> r = route(
        ...     np.ones((1, 1)), router=np.zeros((3, 1)), correction_bias=bias, experts_per_token=2
        ... )
        >>> r.ids.tolist(), r.weights.tolist()
        ([[2, 0]], [[0.5, 0.5]])
    """
    probability = sigmoid(x @ router.T)
    scores = probability + correction_bias
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :experts_per_token]
    picked = np.take_along_axis(probability, ids, axis=1)
    weights = picked / (np.sum(picked, axis=1, keepdims=True) + 1e-20)
    return Routing(scores=scores, ids=ids.astype(np.int32), weights=weights)


def moe(
    x: Float64[Array, "rows hidden"],
    weights: MoeWeights,
    *,
    experts_per_token: int,
    eps: float,
    beta: float,
    linear_beta: float,
) -> MoeOutput:
    """Latent MoE: ``W_up RMSNorm(sum_e w_e expert_e(W_down x)) + shared(x)``.

    Args:
        x: Rows after the pre-norm, float64.
        weights: The layer's matrices.
        experts_per_token: How many experts a row takes.
        eps: Eps of the latent norm; 1e-5 in Kimi K3.
        beta: See ``situ``.
        linear_beta: See ``situ``.

    Returns:
        ``MoeOutput``: output rows, and how they were routed.

    Source:
        ATOM ``models/kimi_k3.py`` and sglang ``models/kimi_k3.py``
        (``routed_expert_hidden_size``, ``latent_moe_use_norm``): norm after the
        weighted sum, before the up-projection.
    """
    routing = route(
        x,
        router=weights.router,
        correction_bias=weights.correction_bias,
        experts_per_token=experts_per_token,
    )
    z = x @ weights.down.T
    mixed = np.zeros_like(z)
    for expert in range(len(weights.router)):
        rows, choice = np.nonzero(routing.ids == expert)
        if len(rows) == 0:
            continue
        y = situ_mlp(
            z[rows],
            gate=weights.expert_gate[expert],
            up=weights.expert_up[expert],
            down=weights.expert_down[expert],
            beta=beta,
            linear_beta=linear_beta,
        )
        mixed[rows] += routing.weights[rows, choice, None] * y
    routed = rms_norm(mixed, weights.norm, eps=eps) @ weights.up.T
    shared = situ_mlp(
        x,
        gate=weights.shared_gate,
        up=weights.shared_up,
        down=weights.shared_down,
        beta=beta,
        linear_beta=linear_beta,
    )
    return MoeOutput(y=routed + shared, routing=routing)
