"""Proposing a block: the drafter's own context, its ids and laws, and how many are verified."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from validate.models.dspark import (
    ContextKv,
    block_hidden,
    block_logits,
    confidence,
    context_kv,
    markov_bias,
)
from validate.models.sampler import DRAFT, Build, Requests, draw, requested_law, uniforms
from validate.models.verify import Verifier
from validate.schema import DraftConfig

__all__ = [
    "DraftContext",
    "Drafted",
    "Drafter",
    "draft_block",
    "draft_law",
    "tap_names",
    "verified_drafts",
]

Weights = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
    """What proposes, and how its proposals are judged."""

    weights: Weights
    config: DraftConfig
    verifier: Verifier = "chain"
    build: Build = "dense"
    proposal: Literal["sampled", "greedy"] = "sampled"
    """``greedy`` proposes the drafter's argmax at every temperature: q is one-hot."""
    cut: float = 0.0
    """Drafts whose predicted chance to be reached and accepted is below it are not verified."""


class DraftContext:
    """The drafter's keys and values of committed tokens; grows, never rolls back."""

    def __init__(
        self,
        drafter: Drafter,
        *,
        batch: int,
        device: str | torch.device,
        fault: str | None = None,
    ) -> None:
        c = drafter.config
        empty = torch.zeros(batch, c.heads, 0, c.head_dim, device=device)
        self.drafter, self.fault = drafter, fault
        self.lengths = torch.zeros(batch, dtype=torch.long, device=device)
        self.kv = ContextKv([empty] * c.layers, [empty] * c.layers)

    def append(self, features: Tensor, counts: Tensor) -> None:
        """Add ``counts[b]`` of the (batch, tokens, hidden) features behind row b's context."""
        offsets = torch.arange(features.shape[1], device=features.device)
        places = self.lengths.unsqueeze(1) + offsets
        new = context_kv(
            self.drafter.weights,
            features,
            places,
            draft=self.drafter.config,
            fault=self.fault,
        )
        real = offsets < counts.unsqueeze(1)
        room = int((self.lengths + counts).max())
        rows = torch.arange(len(counts), device=features.device).unsqueeze(1).expand_as(real)

        def grown(held: Tensor, added: Tensor) -> Tensor:
            size = max(room, held.shape[2])
            wide = added.new_zeros(*held.shape[:2], size, held.shape[3])
            wide[:, :, : held.shape[2]] = held
            wide[rows[real], :, places[real]] = added.transpose(1, 2)[real]
            return wide

        self.kv = ContextKv(
            [grown(a, b) for a, b in zip(self.kv.keys, new.keys, strict=True)],
            [grown(a, b) for a, b in zip(self.kv.values, new.values, strict=True)],
        )
        self.lengths = self.lengths + counts

    def narrow(self, rows: Tensor) -> None:
        """Keep some rows, in the order of ``rows``."""
        self.lengths = self.lengths[rows]
        self.kv = ContextKv([k[rows] for k in self.kv.keys], [v[rows] for v in self.kv.values])

    def visible(self, block: int) -> Tensor:
        """(batch, 1, 1, context + block): the row's own context and the whole block."""
        keys = torch.arange(self.kv.keys[0].shape[2], device=self.lengths.device)
        seen = keys < self.lengths.unsqueeze(1)
        own = torch.ones(len(seen), block, dtype=torch.bool, device=seen.device)
        return torch.cat([seen, own], dim=1)[:, None, None]


class Drafted(NamedTuple):
    """One block of a batch."""

    ids: Tensor
    """(batch, block)."""
    logits: Tensor
    """(batch, block, vocab) float32, after the Markov bias, before temperature."""
    confidence: Tensor
    """(batch, block) predicted acceptance of each draft."""


def tap_names(drafter: Drafter, *, layers: int, fault: str | None = None) -> list[str]:
    """Names, behind the mode, of the target's tensors that the drafter reads; ``layers`` in all."""
    taps = drafter.config.taps
    if fault == "SP-06":  # the heuristic (2, n/2, n-3) in place of the trained layers
        taps = (2, layers // 2, layers - 3)
    stream = "attn.{}.in" if fault == "SP-05" else "hidden.{}"  # the normed mixture, not the prefix
    return [stream.format(layer) for layer in taps]


def draft_block(
    drafter: Drafter,
    target: Weights,
    requests: Requests,
    anchor: Tensor,
    place: Tensor,
    context: DraftContext,
) -> Drafted:
    """Propose a block behind each anchor.

    Args:
        drafter: the drafter.
        target: the target's weights, of which the drafter shares embedding and head.
        requests: parameters of the batch.
        anchor: (batch,) last committed tokens.
        place: (batch,) their positions.
        context: keys and values of the tokens before the anchors.
    """
    c, w = drafter.config, drafter.weights
    shift = {"SP-02": -1, "SP-03": 1}.get(requests.fault or "", 0)
    hidden = block_hidden(
        w,
        target["embed.weight"].to(context.kv.keys[0].dtype),
        anchor.unsqueeze(1),
        place.unsqueeze(1) + shift,
        context.kv,
        context.visible(c.block),
        draft=c,
        fault=requests.fault,
    )[:, 0]
    base = block_logits(hidden, target["lm_head.weight"])
    places = place.unsqueeze(1) + 1 + torch.arange(c.block, device=place.device)
    coins = uniforms(requests, places, DRAFT)
    ids, rows, sure, previous = [], [], [], anchor
    for k in range(c.block):
        sure.append(torch.sigmoid(confidence(w, hidden[:, k], previous)))
        logits = base[:, k] + markov_bias(w, previous)
        previous = draw(_drawn_from(drafter, logits, requests), coins[:, k])
        ids.append(previous)
        rows.append(logits)
    return Drafted(torch.stack(ids, 1), torch.stack(rows, 1), torch.stack(sure, 1))


def _drawn_from(drafter: Drafter, logits: Tensor, requests: Requests) -> Tensor:
    """The law (batch, vocab) that a draft is drawn from: q of the ratio, if nothing is planted."""
    if requests.fault == "SP-09":  # the drafter samples at T = 1, whatever the request asks for
        warm = torch.where(requests.temperature == 0, 0.0, 1.0)
        return draft_law(drafter, logits.unsqueeze(1), requests, temperature=warm)[:, 0]
    if requests.fault == "VX-22":  # drawn in bfloat16, the ratio in float32
        logits = logits.bfloat16().float()
    return draft_law(drafter, logits.unsqueeze(1), requests)[:, 0]


def draft_law(
    drafter: Drafter, logits: Tensor, requests: Requests, *, temperature: Tensor | None = None
) -> Tensor:
    """Q of (batch, rows, vocab): softmax at the request's temperature, no filter.

    All mass is on the argmax for a greedy request and for greedy proposals.
    """
    warm = requests.temperature if temperature is None else temperature
    plain = Requests(
        temperature=torch.zeros_like(warm) if drafter.proposal == "greedy" else warm,
        top_k=torch.zeros_like(requests.top_k),
        top_p=torch.ones_like(requests.top_p),
        min_p=torch.zeros_like(requests.min_p),
        seeds=requests.seeds,
    )
    return requested_law(logits, plain, build="dense")


def verified_drafts(drafter: Drafter, drafted: Drafted, q: Tensor, *, fault: str | None) -> Tensor:
    """How many drafts (batch,) to verify: those that are likely enough to be reached and accepted.

    The chance of a draft is told from the committed prefix and the drafts before it alone.
    """
    sure = drafted.confidence
    if not drafter.cut > 0:
        return torch.full_like(sure[:, 0], sure.shape[1], dtype=torch.long)
    if fault == "VX-21":  # the drafted token's own probability decides on it
        sure = q.gather(-1, drafted.ids.unsqueeze(-1)).squeeze(-1)
    return (sure.cumprod(1) >= drafter.cut).long().cumprod(1).sum(1)
