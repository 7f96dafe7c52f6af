"""Sampling without a drafter: one token a pass, drawn from the target's law."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from validate.models.generate import prefill
from validate.models.model import forward
from validate.models.options import PathOptions
from validate.models.sampler import (
    FINAL,
    Build,
    Requests,
    draw,
    target_law,
    token_logprobs,
    uniforms,
)
from validate.models.trace import SILENT, Silent, Trace
from validate.schema import ModelConfig, SamplingParams

__all__ = ["Target", "sample"]

Weights = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The model whose law the stream must follow."""

    weights: Weights
    config: ModelConfig
    options: PathOptions


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
    requests = Requests.of(params, device=device, fault=target.options.fault)
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
        law = target_law(row.unsqueeze(1), requests, build=build)[:, 0]
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
