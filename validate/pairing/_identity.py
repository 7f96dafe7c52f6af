"""Reasons that the manifests alone give: model, weights, sampling, honesty."""

from validate.pairing._reasons import Reason
from validate.schema import ModelIdentity, Side

__all__ = ["identity_reasons"]

DIGITS = 12
"""Leading hexadecimal digits of a digest that a message shows."""


def identity_reasons(ref: Side, other: Side, *, name: str) -> list[Reason]:
    """Compare what the two manifests say of model, weights, sampling and planted faults.

    Args:
        ref: The reference side.
        other: Candidate or oracle.
        name: ``cand`` or ``oracle``.

    Returns:
        Every reason, gravest first; empty when the manifests agree.
    """
    reasons = _model(ref.manifest.model, other.manifest.model, name)
    reasons += _weights(ref, other, name)
    reasons += _sampling(ref, other, name)
    if name == "oracle":
        reasons += _honest_oracle(other)
    else:
        reasons += _honest_ref(ref, name)
    return reasons


def _model(ref: ModelIdentity, other: ModelIdentity, name: str) -> list[Reason]:
    """Architecture, configuration, tokenizer and vocabulary must be the same."""
    reasons = []
    if ref.architecture != other.architecture or ref.config_digest != other.config_digest:
        reasons.append(
            Reason(
                other=name,
                kind="architecture",
                headline="are of another architecture or configuration",
                facts=(
                    (
                        f"ref {ref.name} ({ref.architecture}, config {_short(ref.config_digest)}), "
                        f"{name} {other.name} ({other.architecture}, config {_short(other.config_digest)})"
                    ),
                ),
                cause=f"{name} was captured from another model or another config.json",
                next_step="capture both sides from one config.json",
            )
        )
    tokenizer = (ref.tokenizer_digest, ref.tokenizer_length, ref.vocab_size)
    if tokenizer != (other.tokenizer_digest, other.tokenizer_length, other.vocab_size):
        reasons.append(
            Reason(
                other=name,
                kind="tokenizer",
                headline="use another tokenizer or vocabulary",
                facts=(
                    (
                        f"ref {_short(ref.tokenizer_digest)} (length {ref.tokenizer_length}, "
                        f"vocab {ref.vocab_size}), {name} {_short(other.tokenizer_digest)} "
                        f"(length {other.tokenizer_length}, vocab {other.vocab_size})"
                    ),
                ),
                cause="the same text gives other token ids, or logits rows of another width",
                next_step="capture both sides with one tokenizer",
            )
        )
    return reasons


def _weights(ref: Side, other: Side, name: str) -> list[Reason]:
    """Other weights are a reason unless cand's own target declared them, by another name."""
    a, b = ref.manifest.model, other.manifest.model
    if a.weights_digest == b.weights_digest:
        return []
    if name == "cand" and other.manifest.declared_weights:
        return [] if a.weights != b.weights else [_one_name(a, b)]
    step = (
        f"capture the oracle with weights {a.weights}"
        if name == "oracle"
        else f"capture cand with weights {a.weights}, or declare the difference in the target: "
        f"{other.manifest.target.partition(':')[0]}:weights={b.weights}"
    )
    return [
        Reason(
            other=name,
            kind="weights",
            headline="hold other weights, which no target declared",
            facts=(
                (
                    f"ref {a.weights} ({_short(a.weights_digest)}), "
                    f"{name} {b.weights} ({_short(b.weights_digest)})"
                ),
            ),
            cause=f"{name} was captured from another checkpoint",
            next_step=step,
        )
    ]


def _one_name(ref: ModelIdentity, cand: ModelIdentity) -> Reason:
    """Declared weights that are called as ref's are, and are others."""
    return Reason(
        other="cand",
        kind="weights",
        headline=f"hold other weights under one name, {ref.weights}",
        facts=(
            (
                f"cand declares the weights {cand.weights} ({_short(cand.weights_digest)}), "
                f"ref's {ref.weights} are {_short(ref.weights_digest)}"
            ),
        ),
        cause="a checkpoint was changed and kept its name, so the declaration names nothing",
        next_step=f"capture cand with ref's weights {ref.weights}, or give the others their own name",
    )


def _sampling(ref: Side, other: Side, name: str) -> list[Reason]:
    """Sampling parameters must be the same, key by key."""
    a, b = ref.manifest.sampling, other.manifest.sampling
    facts = tuple(
        f"{key}: ref {a.get(key, '(unset)')}, {name} {b.get(key, '(unset)')}"
        for key in sorted({*a, *b})
        if a.get(key) != b.get(key)
    )
    if not facts:
        return []
    return [
        Reason(
            other=name,
            kind="sampling",
            headline=f"differ in {len(facts)} sampling parameters",
            facts=facts,
            cause="the streams were drawn with other parameters",
            next_step=f"capture {name} anew with ref's sampling parameters",
        )
    ]


def _honest_ref(ref: Side, name: str) -> list[Reason]:
    """A fault planted in ref is allowed only when ref's own target asked for it."""
    fault, target = ref.manifest.fault, ref.manifest.target
    if fault is None or f"fault={fault}" in target.partition(":")[2].split(","):
        return []
    return [
        Reason(
            other=name,
            kind="honesty",
            headline=f"cannot be compared: ref carries the planted fault {fault}, "
            f"which its target {target!r} does not name",
            facts=(f"ref carries the planted fault {fault}; its target is {target!r}",),
            cause="a capture made to test the gates was filed as a reference",
            next_step=f"capture ref anew, or name the fault: {target.partition(':')[0]}:fault={fault}",
        )
    ]


def _honest_oracle(oracle: Side) -> list[Reason]:
    """The oracle never carries a fault."""
    fault = oracle.manifest.fault
    if fault is None:
        return []
    return [
        Reason(
            other="oracle",
            kind="honesty",
            headline=f"cannot be compared: the oracle carries the planted fault {fault}",
            facts=(f"the oracle carries the planted fault {fault}",),
            cause="a capture made to test the gates was filed as the oracle",
            next_step="capture the oracle anew",
        )
    ]


def _short(digest: str) -> str:
    return digest[:DIGITS]
