"""What is public: compare what must be equal, then hand out the pair."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from validate.errors import IncomparableError
from validate.pairing._dtypes import dtype_reasons
from validate.pairing._identity import identity_reasons
from validate.pairing._prompts import prompt_reasons, stream_reasons
from validate.pairing._reasons import Reason, message
from validate.pairing._tensors import tensor_reasons
from validate.pairing.evals import match_evals, pair_evals
from validate.schema import Pair, Side

__all__ = ["pair", "pair_evals_alone"]


def pair(
    ref: Side,
    cand: Side,
    *,
    oracle: Side | None = None,
    weights: Mapping[str, NDArray[Any]] | None = None,
    config: Mapping[str, Any] | None = None,
    near_tie: float,
    route_gap: float,
) -> Pair:
    """Match ref and cand, and the oracle where there is one; nothing is ever skipped.

    Args:
        ref: The run compared against.
        cand: The run under judgement. Other weights are accepted only when its manifest has
            ``declared_weights``; they are then compared like any other difference.
        oracle: The float64 run of the same model on the same prompts; may be stored in float32.
        weights: Float64 weights by name for the introduced-error oracle.
        config: Model configuration that goes with ``weights``.
        near_tie: Limit on the change of a logit difference, in nats, passed through.
        route_gap: Router score gap below which another expert set is a tie, passed through.

    Returns:
        The pair: same prompts, tensor names, shapes, axes and positions on every side.

    Raises:
        IncomparableError: Anything differs that must not; the message names every reason.
    """
    reasons = _reasons(ref, cand, "cand")
    labels = {"ref": ref.label, "cand": cand.label}
    if oracle is not None:
        reasons += _reasons(ref, oracle, "oracle")
        labels["oracle"] = oracle.label
    if reasons:
        raise IncomparableError(message(labels, reasons))
    return Pair(
        ref=ref,
        cand=cand,
        prompts=tuple(ref.prompts),
        oracle=oracle,
        weights=weights,
        config=config,
        near_tie=near_tie,
        route_gap=route_gap,
        evals=match_evals(ref, cand),
    )


def pair_evals_alone(
    ref: Side,
    cand: Side,
    *,
    oracle: Side | None = None,
    weights: Mapping[str, NDArray[Any]] | None = None,
    config: Mapping[str, Any] | None = None,
    near_tie: float,
    route_gap: float,
) -> Pair:
    """Match two captures by model, weights and evals, where a side holds no prompts.

    Args:
        ref: The run compared against.
        cand: The run under judgement.
        oracle: Ignored, as weights and config are: they are of prompts.
        weights: Ignored.
        config: Ignored.
        near_tie: Passed through.
        route_gap: Passed through.

    Returns:
        A pair without prompts; what its evals lack stands in its match.

    Raises:
        IncomparableError: Model, weights, sampling or honesty differ; every reason is named.
    """
    reasons = identity_reasons(ref, cand, name="cand")
    if reasons:
        raise IncomparableError(message({"ref": ref.label, "cand": cand.label}, reasons))
    return pair_evals(
        ref,
        cand,
        oracle=oracle,
        weights=weights,
        config=config,
        near_tie=near_tie,
        route_gap=route_gap,
    )


def _reasons(ref: Side, other: Side, name: str) -> list[Reason]:
    """Every reason between ref and one other side, gravest first."""
    reasons = identity_reasons(ref, other, name=name)
    reasons += prompt_reasons(ref, other, name=name)
    if name == "cand":
        reasons += stream_reasons(ref, other)
    reasons += tensor_reasons(ref, other, name=name)
    return reasons + dtype_reasons(ref, other, name=name)
