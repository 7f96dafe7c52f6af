"""Speculative decoding: draft a block, verify it in one pass, commit what was accepted, roll back.

A step feeds [anchor, drafts] to the target as one window. What the window wrote
is kept for the anchor and the accepted drafts alone: the latent cache by length,
the recurrent and convolution states from the snapshot after the last accepted
token. The drafter's own context grows by the same tokens. The token that ends
the step becomes the next anchor; the target has not seen it yet.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from validate.models.dspark import (
    ContextKv,
    block_hidden,
    block_logits,
    confidence,
    context_features,
    context_kv,
    markov_bias,
)
from validate.models.generate import prefill, right_padded
from validate.models.model import State, commit, empty_state, forward, forward_steps
from validate.models.options import PathOptions
from validate.models.sampler import (
    ACCEPT,
    DRAFT,
    FINAL,
    Build,
    Requests,
    draw,
    requested_law,
    token_logprobs,
    uniforms,
)
from validate.models.trace import SILENT, Silent, Trace
from validate.models.verify import Verifier, verify
from validate.schema import DraftConfig, ModelConfig, SamplingParams

__all__ = ["Drafter", "SpecStep", "Target", "Watch", "sample", "speculate"]

Weights = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The model whose law the stream must follow."""

    weights: Weights
    config: ModelConfig
    options: PathOptions


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecStep:
    """One step of a batch; rows that were finished before it are not ``live``."""

    live: Tensor
    """(batch,) bool."""
    place: Tensor
    """(batch,) position of the anchor."""
    anchor: Tensor
    """(batch,)."""
    drafts: Tensor
    """(batch, block)."""
    accepts: Tensor
    """(batch, block) bool: every draft's own decision, before any truncation."""
    limit: Tensor
    """(batch,) drafts that were verified."""
    count: Tensor
    """(batch,) drafts accepted."""
    final: Tensor
    """(batch,)."""
    draft_logits: Tensor
    """(batch, block, vocab) float32, after the Markov bias, before temperature."""
    logits: Tensor
    """(batch, block + 1, vocab) raw verify rows in the working dtype."""
    confidence: Tensor
    """(batch, block) predicted acceptance of each draft."""
    logprobs: Tensor
    """(batch, block + 1) what is returned for the token of each row: the draft's, or the
    final token's where the step ends; float32, natural log of the raw row's softmax."""


Watch = Callable[["SpecStep | None", State, Tensor, Tensor], None]
"""Called with a step (None before the first), the state after its commit, and the row and the
ids of the first tokens."""


class _Context:
    """The drafter's keys and values of committed tokens; grows, never rolls back."""

    def __init__(self, drafter: Drafter, *, batch: int, device: str | torch.device) -> None:
        c = drafter.config
        empty = torch.zeros(batch, c.heads, 0, c.head_dim, device=device)
        self.drafter = drafter
        self.lengths = torch.zeros(batch, dtype=torch.long, device=device)
        self.kv = ContextKv([empty] * c.layers, [empty] * c.layers)

    def append(self, features: Tensor, counts: Tensor) -> None:
        """Add ``counts[b]`` of the (batch, tokens, hidden) features behind row b's context."""
        offsets = torch.arange(features.shape[1], device=features.device)
        places = self.lengths.unsqueeze(1) + offsets
        new = context_kv(self.drafter.weights, features, places, draft=self.drafter.config)
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

    def visible(self, block: int) -> Tensor:
        """(batch, 1, 1, context + block): the row's own context and the whole block."""
        keys = torch.arange(self.kv.keys[0].shape[2], device=self.lengths.device)
        seen = keys < self.lengths.unsqueeze(1)
        own = torch.ones(len(seen), block, dtype=torch.bool, device=seen.device)
        return torch.cat([seen, own], dim=1)[:, None, None]


class _Loop:
    """A batch of requests under way."""

    def __init__(
        self, target: Target, drafter: Drafter, requests: Requests, trace: Trace | Silent
    ) -> None:
        self.target, self.drafter, self.requests, self.trace = target, drafter, requests, trace
        self.taps = [f"hidden.{layer}" for layer in drafter.config.taps]

    def _features(self, kept: Trace, mode: str) -> Tensor:
        tensors = kept.take()
        taps = [tensors[f"{mode}.{name}"][0] for name in self.taps]
        return context_features(self.drafter.weights, taps, draft=self.drafter.config)

    def _listening(self) -> Trace:
        wanted = {f"{mode}.{name}" for mode in ("prefill", "decode") for name in self.taps}
        return Trace(wants=wanted.__contains__)

    def _tell(self, kept: Trace) -> None:
        for name, count in kept.branches.items():
            for _ in range(count):
                self.trace.branch(name)

    def prefill(
        self, tokens: Tensor, lengths: Tensor, context: _Context, *, chunk: int
    ) -> tuple[Tensor, State]:
        """The prompt in passes of ``chunk``: the row behind its last token, and the state."""
        t = self.target
        made: list[Tensor] = []
        state = empty_state(t.config, t.options, batch=len(lengths), device=tokens.device)
        for part in tokens.split(chunk or tokens.shape[1], dim=1):
            real = (lengths - sum(m.shape[1] for m in made)).clamp(0, part.shape[1])
            kept = self._listening()
            logits, state = forward(
                t.weights,
                part,
                config=t.config,
                options=t.options,
                state=state,
                lengths=real,
                trace=kept,
            )
            made.append(logits)
            context.append(self._features(kept, "prefill"), real)
            self._tell(kept)
        row = torch.arange(len(lengths), device=lengths.device)
        return torch.cat(made, dim=1)[row, lengths - 1], state

    def first(self, row: Tensor, place: Tensor) -> Tensor:
        """The token behind the prompt, drawn by the target alone."""
        law = requested_law(row.unsqueeze(1), self.requests, build=self.drafter.build)
        u = uniforms(self.requests, place.unsqueeze(1), FINAL)
        return draw(law[:, 0], u[:, 0])

    def draft(
        self, anchor: Tensor, place: Tensor, context: _Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Ids (batch, block), logits (batch, block, vocab) and predicted acceptance (batch, block)."""
        c, w = self.drafter.config, self.drafter.weights
        hidden = block_hidden(
            w,
            self.target.weights["embed.weight"].to(context.kv.keys[0].dtype),
            anchor.unsqueeze(1),
            place.unsqueeze(1),
            context.kv,
            context.visible(c.block),
            draft=c,
        )[:, 0]
        base = block_logits(hidden, self.target.weights["lm_head.weight"])
        places = place.unsqueeze(1) + 1 + torch.arange(c.block, device=place.device)
        coins = uniforms(self.requests, places, DRAFT)
        ids, rows, sure, previous = [], [], [], anchor
        for k in range(c.block):
            sure.append(torch.sigmoid(confidence(w, hidden[:, k], previous)))
            logits = base[:, k] + markov_bias(w, previous)
            law = self.draft_law(logits.unsqueeze(1))[:, 0]
            previous = draw(law, coins[:, k])
            ids.append(previous)
            rows.append(logits)
        self.trace.branch("draft.block")
        return torch.stack(ids, 1), torch.stack(rows, 1), torch.stack(sure, 1)

    def draft_law(self, logits: Tensor) -> Tensor:
        """q: softmax at the request's temperature, no filter; all on the argmax when greedy."""
        warm = self.requests.temperature
        plain = Requests(
            temperature=torch.zeros_like(warm) if self.drafter.proposal == "greedy" else warm,
            top_k=torch.zeros_like(self.requests.top_k),
            top_p=torch.ones_like(self.requests.top_p),
            min_p=torch.zeros_like(self.requests.min_p),
            seeds=self.requests.seeds,
        )
        return requested_law(logits, plain, build="dense")

    def limit(self, sure: Tensor) -> Tensor:
        """Drafts to verify: those that are likely enough to be reached and accepted.

        The chance of a draft is told from the committed prefix and the drafts before it alone.
        """
        if not self.drafter.cut > 0:
            return torch.full_like(sure[:, 0], sure.shape[1], dtype=torch.long)
        return (sure.cumprod(1) >= self.drafter.cut).long().cumprod(1).sum(1)

    def step(
        self, anchor: Tensor, place: Tensor, live: Tensor, state: State, context: _Context
    ) -> tuple[SpecStep, State]:
        """Draft, verify, commit."""
        drafts, draft_logits, sure = self.draft(anchor, place, context)
        limit = self.limit(sure)
        fed = torch.cat([anchor.unsqueeze(1), drafts], dim=1)
        kept = self._listening()
        logits, window = forward_steps(
            self.target.weights,
            fed,
            config=self.target.config,
            options=self.target.options,
            state=state,
            trace=kept,
        )
        features = self._features(kept, "decode")
        self._tell(kept)
        q = self.draft_law(draft_logits)
        p = requested_law(logits, self.requests, build=self.drafter.build)
        places = place.unsqueeze(1) + 1 + torch.arange(p.shape[1], device=place.device)
        judged = verify(
            drafts,
            q,
            p,
            verifier=self.drafter.verifier,
            coins=uniforms(self.requests, places[:, :-1], ACCEPT),
            final_coins=uniforms(self.requests, places, FINAL),
            limit=limit,
        )
        self.trace.branch(f"verify.{self.drafter.verifier}")
        self.trace.branch(f"sampler.{self.drafter.build}")
        ends = torch.cat([drafts, judged.final.unsqueeze(1)], dim=1)
        ends = ends.scatter(1, judged.taken.unsqueeze(1), judged.final.unsqueeze(1))
        used = torch.where(live, judged.taken + 1, 0)
        context.append(features, used)
        made = SpecStep(
            live=live,
            place=place,
            anchor=anchor,
            drafts=drafts,
            accepts=judged.accepts,
            limit=limit,
            count=judged.taken,
            final=judged.final,
            draft_logits=draft_logits,
            logits=logits,
            confidence=sure,
            logprobs=token_logprobs(logits, ends),
        )
        return made, commit(window, used)


@torch.inference_mode()
def speculate(
    target: Target,
    drafter: Drafter,
    rows: Sequence[Sequence[int]],
    params: Sequence[SamplingParams],
    *,
    tokens: int | Sequence[int],
    device: str | torch.device,
    chunk: int = 0,
    trace: Trace | Silent = SILENT,
    watch: Watch | None = None,
) -> tuple[Tensor, Tensor, list[SpecStep]]:
    """Generate at least ``tokens`` tokens behind every prompt; no token stops a stream.

    Args:
        target: the model.
        drafter: the drafter and the verifier.
        rows: prompts, ids.
        params: parameters of each request.
        tokens: at least 1; for all, or of each prompt.
        device: where the weights are.
        chunk: tokens that a prefill pass takes at most; 0 for the whole prompt.
        trace: records branches.
        watch: told of every step and of the state after its commit; the steps are then
            not kept, so that memory does not grow with their number.

    Returns:
        The row (batch, vocab) that the first token was drawn from, the first tokens
        (batch,), and the steps; a stream is the first token, then of each live step the
        accepted drafts and the final token.
    """
    ids, lengths = right_padded(rows, device=device)
    requests = Requests.of(params, device=device)
    loop = _Loop(target, drafter, requests, trace)
    context = _Context(drafter, batch=len(rows), device=device)
    row, state = loop.prefill(ids, lengths, context, chunk=chunk)
    wanted = torch.as_tensor(tokens, device=device).expand_as(lengths)
    first = anchor = loop.first(row, lengths)
    place, done = lengths, torch.ones_like(lengths)
    steps: list[SpecStep] = []
    if watch is not None:
        watch(None, state, row, first)
    while bool((done < wanted).any()):
        made, state = loop.step(anchor, place, done < wanted, state, context)
        used = torch.where(made.live, made.count + 1, 0)
        anchor = torch.where(made.live, made.final, anchor)
        place, done = place + used, done + used
        if watch is None:
            steps.append(made)
        else:
            watch(made, state, row, first)
    return row, first, steps


@torch.inference_mode()
def sample(
    target: Target,
    rows: Sequence[Sequence[int]],
    params: Sequence[SamplingParams],
    *,
    build: Build,
    tokens: int,
    device: str | torch.device,
    chunk: int = 0,
    trace: Trace | Silent = SILENT,
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Draw ``tokens`` tokens behind every prompt one at a time, without a drafter.

    Yields:
        Of each position the raw rows (batch, vocab), and (batch,) each the ids drawn from them
        and their returned log-probabilities.
    """
    requests = Requests.of(params, device=device)
    logits, state = prefill(
        target.weights,
        rows,
        config=target.config,
        options=target.options,
        device=device,
        chunk=chunk,
        trace=trace,
    )
    place = torch.tensor([len(r) for r in rows], device=device)
    row = logits[torch.arange(len(rows), device=device), place - 1]
    for step in range(tokens):
        law = requested_law(row.unsqueeze(1), requests, build=build)[:, 0]
        ids = draw(law, uniforms(requests, place.unsqueeze(1), FINAL)[:, 0])
        trace.branch(f"sampler.{build}")
        yield row, ids, token_logprobs(row, ids)
        if step + 1 < tokens:
            logits, state = forward(
                target.weights,
                ids.unsqueeze(1),
                config=target.config,
                options=target.options,
                state=state,
                decode=True,
                trace=trace,
            )
            row, place = logits[:, 0], place + 1
