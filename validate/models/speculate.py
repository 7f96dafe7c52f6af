"""Speculative decoding: draft a block, verify it in one pass, commit what was accepted, roll back.

A step feeds [anchor, drafts] to the target as one window. What the window wrote
is kept for the anchor and the accepted drafts alone: the latent cache by length,
the recurrent and convolution states from the snapshot after the last accepted
token. The drafter's own context grows by the same tokens. The token that ends
the step becomes the next anchor; the target has not seen it yet.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from validate.models.drafting import (
    DraftContext,
    Drafter,
    draft_block,
    draft_law,
    tap_names,
    verified_drafts,
)
from validate.models.dspark import context_features
from validate.models.generate import right_padded
from validate.models.model import State, commit, empty_state, forward, forward_steps, take_rows
from validate.models.plain import Target
from validate.models.sampler import (
    ACCEPT,
    FINAL,
    REDRAW,
    Requests,
    draw,
    target_law,
    token_logprobs,
    uniforms,
)
from validate.models.trace import SILENT, Silent, Trace
from validate.models.verify import Verified, argmax_law, runner_up_law, verify
from validate.schema import SamplingParams

__all__ = ["SpecStep", "Watch", "speculate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecStep:
    """One step of a batch; rows that were finished before it are not ``live``."""

    rows: Tensor
    """(batch,) which requests these are: once a quarter of the rows is finished they leave."""
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


class _Loop:
    """A batch of requests under way."""

    def __init__(
        self, target: Target, drafter: Drafter, requests: Requests, trace: Trace | Silent
    ) -> None:
        self.target, self.drafter, self.requests, self.trace = target, drafter, requests, trace
        self.fault = target.options.fault
        self.taps = tap_names(drafter, layers=target.config.layers, fault=self.fault)
        self.stale: Tensor | None = None
        """The anchors of the step before, which ``ND-04`` drafts from."""

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
        self, tokens: Tensor, lengths: Tensor, context: DraftContext, *, chunk: int
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
        law = target_law(row.unsqueeze(1), self.requests, build=self.drafter.build)
        u = uniforms(self.requests, place.unsqueeze(1), FINAL)
        return draw(law[:, 0], u[:, 0])

    def step(
        self,
        rows: Tensor,
        anchor: Tensor,
        place: Tensor,
        live: Tensor,
        state: State,
        context: DraftContext,
    ) -> tuple[SpecStep, State]:
        """Draft, verify, commit."""
        late, self.stale = self.stale, anchor
        from_ = late if self.fault == "ND-04" and late is not None else anchor
        drafted = draft_block(
            self.drafter, self.target.weights, self.requests, from_, place, context
        )
        self.trace.branch("draft.block")
        q = draft_law(self.drafter, drafted.logits, self.requests)
        limit = verified_drafts(self.drafter, drafted, q, fault=self.fault)
        drafts = drafted.ids
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
        judged = self.judge(drafts, q, logits, place, limit)
        ends = torch.cat([drafts, judged.final.unsqueeze(1)], dim=1)
        ends = ends.scatter(1, judged.taken.unsqueeze(1), judged.final.unsqueeze(1))
        used = torch.where(live, judged.taken + 1, 0)
        context.append(features, used)
        made = SpecStep(
            rows=rows,
            live=live,
            place=place,
            anchor=anchor,
            drafts=drafts,
            accepts=judged.accepts,
            limit=limit,
            count=judged.taken,
            final=judged.final,
            draft_logits=drafted.logits,
            logits=logits,
            confidence=drafted.confidence,
            logprobs=token_logprobs(logits, ends, fault=self.fault),
        )
        return made, commit(window, used, fault=self.fault)

    def narrow(self, keep: Tensor) -> None:
        """Keep some requests of the batch."""
        self.requests = self.requests.take(keep)
        self.stale = None if self.stale is None else self.stale[keep]

    def judge(
        self, drafts: Tensor, q: Tensor, logits: Tensor, place: Tensor, limit: Tensor
    ) -> Verified:
        """Verify drafts (batch, block) behind anchors at ``place`` by the raw rows ``logits``."""
        verifier, build = self.drafter.verifier, self.drafter.build
        p = target_law(logits, self.requests, build=build)
        if self.fault == "SA-01":  # the op for sampled batches is missing; all greedy is assumed
            p, verifier = argmax_law(logits), "exact_match"
        if self.fault == "SP-10":
            p = torch.where(self.requests.greedy[:, None, None], runner_up_law(logits), p)
        places = place.unsqueeze(1) + 1 + torch.arange(p.shape[1], device=place.device)
        judged = verify(
            drafts,
            q,
            p,
            verifier=verifier,
            coins=uniforms(self.requests, places[:, :-1], ACCEPT),
            final_coins=uniforms(self.requests, places, FINAL),
            limit=limit,
            redraws=uniforms(self.requests, places, REDRAW) if self.fault == "SP-07" else None,
            fault=self.fault,
        )
        self.trace.branch(f"verify.{self.drafter.verifier}")
        self.trace.branch(f"sampler.{build}")
        return judged


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
    requests = Requests.of(params, device=device, fault=target.options.fault)
    loop = _Loop(target, drafter, requests, trace)
    context = DraftContext(drafter, batch=len(rows), device=device, fault=target.options.fault)
    row, state = loop.prefill(ids, lengths, context, chunk=chunk)
    wanted = torch.as_tensor(tokens, device=device).expand_as(lengths)
    first = anchor = loop.first(row, lengths)
    place, done = lengths, torch.ones_like(lengths)
    left = torch.arange(len(rows), device=device)
    steps: list[SpecStep] = []
    if watch is not None:
        watch(None, state, row, first)
    while bool((done < wanted).any()):
        keep = (done < wanted).nonzero()[:, 0]
        if 4 * len(keep) <= 3 * len(left):
            left, anchor, place = left[keep], anchor[keep], place[keep]
            done, wanted, state = done[keep], wanted[keep], take_rows(state, keep)
            context.narrow(keep)
            loop.narrow(keep)
        made, state = loop.step(left, anchor, place, done < wanted, state, context)
        used = torch.where(made.live, made.count + 1, 0)
        anchor = torch.where(made.live, made.final, anchor)
        place, done = place + used, done + used
        if watch is None:
            steps.append(made)
        else:
            watch(made, state, row, first)
    return row, first, steps
