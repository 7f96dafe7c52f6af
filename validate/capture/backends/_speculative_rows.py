"""Per emitted token and per verify step: the numbers that the ``speculative`` artifact stores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor as TorchTensor

from validate.capture.format import Tensor
from validate.models.drafting import Drafter
from validate.models.speculate import SpecStep
from validate.oracle.lossless import Rule
from validate.oracle.lossless_rows import (
    AskedRows,
    edge_distances,
    falls,
    outcome_laws,
    requested_laws,
    surprisal_moments_of,
)

__all__ = ["StreamRows", "add_plain", "add_step"]

Array = NDArray[Any]
PLAIN, ACCEPTED, RESAMPLED, BONUS = range(4)
_DTYPES = {"tokens": np.int32, "outcome": np.uint8, "row": np.uint8, "step": np.int16}
_STEP_DTYPES = {
    "place": np.int32,
    "drafts": np.int32,
    "accepts": np.uint8,
    "limit": np.uint8,
    "count": np.uint8,
}
_TOKEN_AXES = {"falls": ("tokens", "laws", "orders", "parts")}
_BY_DRAFT = ("drafts", "accepts", "expected", "drafted_p", "drafted_q", "confidence")


@dataclass(slots=True)
class StreamRows:
    """What one stream has so far."""

    tokens: list[Mapping[str, Array]] = field(default_factory=list)
    steps: list[Mapping[str, Array]] = field(default_factory=list)
    raw: list[TorchTensor] = field(default_factory=list)
    """The rows that emitted tokens were drawn from, where ``keep_raw`` asks for them."""
    keep_raw: int = 0

    def ids(self, count: int) -> list[int]:
        """The first ``count`` emitted tokens."""
        return [int(x) for part in self.tokens for x in part["tokens"]][:count]

    def logprobs(self, count: int) -> list[float]:
        """The log-probabilities that were returned for them."""
        return [float(x) for part in self.tokens for x in part["logprob"]][:count]

    def tensors(self, kind: str, count: int) -> dict[str, Tensor]:
        """Tensors of the first ``count`` tokens and of every step, by name."""
        made = {}
        for name in self.tokens[0]:
            whole = np.concatenate([part[name] for part in self.tokens])[:count]
            made[f"spec.{kind}.{name}"] = Tensor(
                whole.astype(_DTYPES.get(name, np.float32)), _TOKEN_AXES.get(name, ("tokens",))
            )
        for name in self.steps[0] if self.steps else ():
            whole = np.stack([part[name] for part in self.steps])
            axes = ("steps", "block") if name in _BY_DRAFT else ("steps",)
            made[f"spec.{kind}.{name}"] = Tensor(
                whole.astype(_STEP_DTYPES.get(name, np.float32)), axes
            )
        return made


def add_plain(
    streams: Sequence[StreamRows],
    raw: TorchTensor,
    ids: TorchTensor,
    logprobs: TorchTensor,
    asked: AskedRows,
) -> None:
    """Give every stream the token drawn from its row of ``raw`` (batch, vocab)."""
    logits = raw.double().cpu().numpy()
    every = np.arange(len(streams))
    law = requested_laws(logits, asked)
    numbers = _of_tokens(
        logits,
        law,
        None,
        ids.cpu().numpy(),
        outcomes=np.full(len(streams), PLAIN),
        temperature=asked.temperature,
        rule="chain",
    )
    numbers |= {"logprob": logprobs.cpu().numpy(), "row": 0 * every, "step": 0 * every - 1}
    for at, stream in enumerate(streams):
        stream.tokens.append({name: x[at : at + 1] for name, x in numbers.items()})
        _keep(stream, raw[at : at + 1])


def add_step(
    streams: Sequence[StreamRows], made: SpecStep, asked: AskedRows, *, drafter: Drafter
) -> None:
    """Give every live stream its step and the tokens that the step emitted."""
    live = np.flatnonzero(made.live.cpu().numpy())
    keep = torch.from_numpy(live).to(made.live.device)
    rows = made.logits.shape[1]
    block, vocab = rows - 1, made.logits.shape[2]
    which_request = made.rows.cpu().numpy()[live]
    mine = asked.take(which_request)
    logits = made.logits[keep].double().cpu().numpy()
    p = requested_laws(logits.reshape(-1, vocab), mine.take(np.repeat(np.arange(len(live)), rows)))
    p = p.reshape(len(live), rows, vocab)
    proposed = mine.unfiltered()
    if drafter.proposal == "greedy":
        proposed = AskedRows(
            temperature=0.0 * mine.temperature,
            top_k=proposed.top_k,
            top_p=proposed.top_p,
            min_p=proposed.min_p,
            ties=mine.ties,
        )
    draft_logits = made.draft_logits[keep].double().cpu().numpy().reshape(-1, vocab)
    q = requested_laws(draft_logits, proposed.take(np.repeat(np.arange(len(live)), block)))
    q = q.reshape(len(live), block, vocab)
    told = {
        name: getattr(made, name)[keep].cpu().numpy()
        for name in ("place", "drafts", "accepts", "limit", "count", "final", "confidence")
    }
    told["logprobs"] = made.logprobs[keep].cpu().numpy()
    steps = _of_steps(p[:, :block], q, told, drafter.verifier)
    which, row = np.nonzero(np.arange(rows) <= told["count"][:, None])
    numbers = _emitted(logits, p, q, told, (which, row), mine, drafter.verifier)
    for at, stream in enumerate(streams[i] for i in which_request.tolist()):
        here = np.flatnonzero(which == at)
        number = np.full(len(here), len(stream.steps))
        stream.tokens.append({name: x[here] for name, x in numbers.items()} | {"step": number})
        stream.steps.append({name: x[at] for name, x in steps.items()})
        _keep(stream, made.logits[live[at], : len(here)])


def _keep(stream: StreamRows, rows: TorchTensor) -> None:
    if sum(len(held) for held in stream.raw) < stream.keep_raw:
        stream.raw.append(rows)


def _of_steps(p: Array, q: Array, told: Mapping[str, Array], rule: Rule) -> dict[str, Array]:
    drafts = told["drafts"][:, :, None]
    both = np.minimum(p, q) if rule == "chain" else p * q
    return {
        "place": told["place"],
        "drafts": told["drafts"],
        "accepts": told["accepts"],
        "limit": told["limit"],
        "count": told["count"],
        "expected": both.sum(axis=2),
        "drafted_p": np.take_along_axis(p, drafts, axis=2)[:, :, 0],
        "drafted_q": np.take_along_axis(q, drafts, axis=2)[:, :, 0],
        "confidence": told["confidence"],
    }


def _emitted(
    logits: Array,
    p: Array,
    q: Array,
    told: Mapping[str, Array],
    at: tuple[Array, Array],
    asked: AskedRows,
    rule: Rule,
) -> dict[str, Array]:
    """Numbers of the tokens that a step emitted, at (stream, row) pairs."""
    which, row = at
    block = q.shape[1]
    count = told["count"][which]
    inside = row.clip(max=block - 1)
    ids = np.where(row < count, told["drafts"][which, inside], told["final"][which])
    ended = np.where(count == told["limit"][which], BONUS, RESAMPLED)
    outcomes = np.where(row < count, ACCEPTED, ended)
    drafted = np.where((row < block)[:, None], q[which, inside], np.nan)
    numbers = _of_tokens(
        logits[which, row],
        p[which, row],
        drafted,
        ids,
        outcomes=outcomes,
        temperature=asked.temperature[which],
        rule=rule,
    )
    return numbers | {"logprob": told["logprobs"][which, row], "row": row}


def _of_tokens(
    logits: Array,
    p: Array,
    q: Array | None,
    ids: Array,
    *,
    outcomes: Array,
    temperature: Array,
    rule: Rule,
) -> dict[str, Array]:
    """Laws, falls, moments and distances of tokens; rows of ``q`` are NaN where nothing was drafted."""
    at = np.arange(len(ids))
    known = np.full_like(p, np.nan) if q is None else q
    law = outcome_laws(outcomes, rule, p, known)
    ratio = np.where(p > 0, known / np.where(p > 0, p, 1.0), -1.0)
    none = np.isnan(known[:, 0])[:, None]
    by_law = [
        [falls(one, ids, key=p), np.where(none, np.nan, falls(one, ids, key=ratio))]
        for one in (p, law)
    ]
    moments = surprisal_moments_of(p)
    return {
        "tokens": ids,
        "outcome": outcomes,
        "p": p[at, ids],
        "q": known[at, ids],
        "falls": np.stack([np.stack(orders, axis=1) for orders in by_law], axis=1),
        "entropy": moments.entropy,
        "variance": moments.variance,
        "edge": edge_distances(logits, p, ids, temperature),
        "top": p.max(axis=1),
    }
