"""Rows that tokens were drawn from, beside teacher-forced rows behind the same tokens."""

from dataclasses import dataclass

import numpy as np

from validate.metrics._reason import Reason
from validate.metrics._spec_streams import Column
from validate.metrics._spec_tests import judged_side
from validate.numerics import log_softmax
from validate.schema import Pair

__all__ = ["KIND", "REPLAYED", "VERIFIED", "VerifyRows", "asked", "cut", "verify_rows"]

KIND = "spec-sampled"
REPLAYED, VERIFIED = 12, 24
"""Tokens of each stream that the format asks to be drawn again, and to hold verify rows of."""
TAG = "tensors"
"""Tag of the prompts that hold rows and audits."""
VERIFY, FORCED = f"spec.{KIND}.verify.logits", f"spec.{KIND}.forced.logits"
LIKELY = 1e-3
"""Ids at least this probable on the forced side; log-probabilities of the rest are noise."""


@dataclass(frozen=True, kw_only=True)
class VerifyRows:
    """All compared rows; one entry a row."""

    kl: Column
    """KL(forced || verify) in nats."""
    apart: Column
    """Largest difference of a log-probability, of ids that are likely."""
    returned: Column
    """|returned log-probability - forced one| of the emitted token."""
    window: Column
    """Row of the verify window; 0 also for the first token."""
    position: Column
    prompt: tuple[str, ...]


def verify_rows(pair: Pair) -> VerifyRows | Reason:
    """Compare them, once a pair."""
    return pair.once("spec verify rows", lambda: _compare(pair))


def _compare(pair: Pair) -> VerifyRows | Reason:
    side = judged_side(pair)
    if isinstance(side, Reason):
        return side
    drawn = side.kinds.get(KIND)
    parts, owners = [], []
    for place, prompt in enumerate(pair.prompts):
        if drawn is None or not asked(pair, prompt, VERIFY, FORCED):
            continue
        tokens = drawn.tokens_of(place)
        for name in (VERIFY, FORCED):
            wanted = min(VERIFIED, len(tokens))
            if why := cut(pair, prompt, name, wanted=wanted, of="tokens"):
                return why
        if not len(tokens):
            continue
        forced = np.asarray(pair.cand.tensor(prompt, FORCED), np.float64)
        verify = np.asarray(pair.cand.tensor(prompt, VERIFY), np.float64)
        whole = forced.shape[1:] == (side.vocab,) and len(forced) <= len(tokens)
        if forced.shape != verify.shape or not whole:
            return Reason(
                f"{prompt}: verify rows {verify.shape}, forced rows {forced.shape}, "
                f"{len(tokens)} tokens and a vocabulary of {side.vocab} do not belong together",
                "unlike",
            )
        tokens = tokens.where(np.arange(len(forced)))
        parts.append(
            (*_rows(forced, verify, tokens.token, tokens.logprob), tokens.row, tokens.position)
        )
        owners += [prompt] * len(forced)
    if not owners:
        return Reason(
            "no prompt holds verify rows; capture prompts tagged 'speculative' and 'tensors'"
        )
    kl, apart, returned, window, position = (np.concatenate(c) for c in zip(*parts, strict=True))
    return VerifyRows(
        kl=kl,
        apart=apart,
        returned=returned,
        window=window,
        position=position,
        prompt=tuple(owners),
    )


def asked(pair: Pair, prompt: str, *names: str) -> bool:
    """Whether cand must hold such tensors of a prompt: of one that is tagged, or where ref does.

    A candidate without any of them on all prompts holds none on purpose; that is no cut capture.
    """
    held = any(name in pair.cand.names(one) for one in pair.prompts for name in names)
    here = {*pair.cand.names(prompt), *pair.ref.names(prompt)}
    return held and (TAG in pair.cand.prompts[prompt].tags or bool(here & {*names}))


def cut(pair: Pair, prompt: str, name: str, *, wanted: int, of: str) -> Reason | None:
    """Why cand's rows of a prompt are fewer than its own stream asks for; None where they are not."""
    held = len(pair.cand.tensor(prompt, name)) if name in pair.cand.names(prompt) else 0
    if held >= wanted:
        return None
    return Reason(
        f"{pair.cand.label}: {prompt}/{name} holds {held} rows, and the {wanted} first {of} of its "
        "stream ask for one each: rows are missing; capture the prompt again, whole",
        "unlike",
    )


def _rows(
    forced: Column, verify: Column, token: Column, logprob: Column
) -> tuple[Column, Column, Column]:
    """KL, largest difference, and that of the returned log-probability; NaN where a row is not finite."""
    bad = ~np.isfinite(forced.sum(axis=1) + verify.sum(axis=1))
    a = log_softmax(np.where(bad[:, None], 0.0, forced))
    b = log_softmax(np.where(bad[:, None], 0.0, verify))
    p = np.exp(a)
    kl = np.sum(p * (a - b), axis=1)
    apart = np.max(np.where(p >= LIKELY, np.abs(a - b), 0.0), axis=1)
    returned = np.abs(logprob - a[np.arange(len(a)), token])
    for column in (kl, apart, returned):
        column[bad] = np.nan
    return kl, apart, returned
