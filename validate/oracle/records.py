"""Frozen records of the oracle: weights of one layer, results of one operation.

This module defines data only, no function, so that two independent derivations
may both speak of it and still share no arithmetic.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Float64, Int32
from numpy.typing import NDArray

__all__ = [
    "Array",
    "KdaOutput",
    "KdaWeights",
    "MlaOutput",
    "MlaWeights",
    "MoeOutput",
    "MoeWeights",
    "Partial",
    "Routing",
]

Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaWeights:
    """Weights of one MLA layer; every matrix is [out, in] and is applied as ``W x``."""

    q_a: Float64[Array, "q_lora hidden"]
    q_a_norm: Float64[Array, " q_lora"]
    q_b: Float64[Array, "heads_qk q_lora"]
    """Per head: nope rows, then rope rows."""
    kv_a: Float64[Array, "latent_rope hidden"]
    """Latent rows, then the rope rows that all heads share."""
    kv_a_norm: Float64[Array, " latent"]
    kv_b: Float64[Array, "heads_nope_value latent"]
    """Per head: nope rows, then value rows."""
    g: Float64[Array, "heads_value hidden"]
    o: Float64[Array, "hidden heads_value"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KdaWeights:
    """Weights of one KDA layer; every matrix is [out, in] and is applied as ``W x``."""

    q: Float64[Array, "heads_key hidden"]
    k: Float64[Array, "heads_key hidden"]
    v: Float64[Array, "heads_key hidden"]
    q_conv: Float64[Array, "heads_key kernel"]
    """The last tap multiplies the current token."""
    k_conv: Float64[Array, "heads_key kernel"]
    v_conv: Float64[Array, "heads_key kernel"]
    f_a: Float64[Array, "rank hidden"]
    f_b: Float64[Array, "heads_key rank"]
    a_log: Float64[Array, " heads"]
    dt_bias: Float64[Array, " heads_key"]
    b: Float64[Array, "heads hidden"]
    g: Float64[Array, "heads_key hidden"]
    o_norm: Float64[Array, " key"]
    o: Float64[Array, "hidden heads_key"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeWeights:
    """Weights of one latent mixture of experts with its shared expert."""

    router: Float64[Array, "experts hidden"]
    correction_bias: Float64[Array, " experts"]
    down: Float64[Array, "latent hidden"]
    expert_gate: Float64[Array, "experts inter latent"]
    expert_up: Float64[Array, "experts inter latent"]
    expert_down: Float64[Array, "experts latent inter"]
    norm: Float64[Array, " latent"]
    up: Float64[Array, "hidden latent"]
    shared_gate: Float64[Array, "shared hidden"]
    shared_up: Float64[Array, "shared hidden"]
    shared_down: Float64[Array, "hidden shared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """Attention over some of the keys: normalised output and log of the normaliser."""

    out: Float64[Array, "rows heads value"]
    """Zero in rows that saw no key."""
    lse: Float64[Array, "rows heads"]
    """Natural log of the sum of exponentials of the scaled scores; -inf where no key was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaOutput:
    """What one MLA layer gives for ``rows`` new tokens."""

    out: Float64[Array, "rows heads value"]
    """Attention output before the output gate."""
    lse: Float64[Array, "rows heads"]
    """Natural log."""
    y: Float64[Array, "rows hidden"]
    """Layer output: gate and output projection applied."""
    kv: Float64[Array, "tokens latent_rope"]
    """Cache after the new tokens: normed latent, then k_pe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KdaOutput:
    """What the KDA recurrence gives for ``tokens`` new tokens."""

    out: Float64[Array, "tokens heads value"]
    """S^T q, before norm and gate."""
    state: Float64[Array, "heads key value"]
    """S after the last token, key first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """Which experts each row takes, and how much of each."""

    scores: Float64[Array, "rows experts"]
    """Selection scores: sigmoid plus correction bias."""
    ids: Int32[NDArray[np.int32], "rows choice"]
    """Chosen experts, highest selection score first; the lowest index wins a tie."""
    weights: Float64[Array, "rows choice"]
    """Share of each chosen expert, in the order of ``ids``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeOutput:
    """Output of the mixture and how it was routed."""

    y: Float64[Array, "rows hidden"]
    routing: Routing
