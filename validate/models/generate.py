"""Loops over forward passes: chunked prefill of ragged rows, one-token decode, greedy streams."""

from collections.abc import Sequence

import torch
from torch import Tensor

from validate.models.model import State, Weights, empty_state, forward
from validate.models.options import PathOptions
from validate.models.trace import SILENT, Silent, Trace
from validate.schema import ModelConfig

__all__ = ["GreedyStreams", "decode_forced", "greedy", "prefill", "right_padded"]

PAD_ID = 0
"""Fills ragged rows; never read as a token, whatever its value (tested with poison)."""


def right_padded(
    rows: Sequence[Sequence[int]], *, device: str | torch.device
) -> tuple[Tensor, Tensor]:
    """Ids (batch, longest) filled with ``PAD_ID`` and the true lengths (batch,)."""
    lengths = torch.tensor([len(r) for r in rows], device=device)
    longest = max(len(r) for r in rows)
    padded = [[*r, *[PAD_ID] * (longest - len(r))] for r in rows]
    return torch.tensor(padded, device=device), lengths


@torch.inference_mode()
def prefill(
    weights: Weights,
    rows: Sequence[Sequence[int]],
    *,
    config: ModelConfig,
    options: PathOptions,
    device: str | torch.device,
    chunk: int = 0,
    trace: Trace | Silent = SILENT,
) -> tuple[Tensor, State]:
    """Prefill ragged rows, whole or ``chunk`` tokens at a time.

    Returns:
        Logits (batch, longest, vocab) and the state after each row's own length.
    """
    tokens, lengths = right_padded(rows, device=device)
    step = chunk or tokens.shape[1]
    state = empty_state(config, options, batch=len(rows), device=device)
    made = []
    for start in range(0, tokens.shape[1], step):
        part = tokens[:, start : start + step]
        real = (lengths - start).clamp(0, part.shape[1])
        logits, state = forward(
            weights, part, config=config, options=options, state=state, lengths=real, trace=trace
        )
        made.append(logits)
    return torch.cat(made, dim=1), state


@torch.inference_mode()
def decode_forced(
    weights: Weights,
    rows: Sequence[Sequence[int]],
    state: State,
    *,
    config: ModelConfig,
    options: PathOptions,
    device: str | torch.device,
    trace: Trace | Silent = SILENT,
) -> tuple[Tensor, State]:
    """Feed given tokens one at a time through the decode form; ragged rows stop at their length.

    Returns:
        Logits (batch, longest, vocab) and the state after each row's own length.
    """
    tokens, lengths = right_padded(rows, device=device)
    made = []
    for t in range(tokens.shape[1]):
        real = (lengths > t).long()
        logits, state = forward(
            weights,
            tokens[:, t : t + 1],
            config=config,
            options=options,
            state=state,
            lengths=real,
            decode=True,
            trace=trace,
        )
        made.append(logits)
    return torch.cat(made, dim=1), state


class GreedyStreams:
    """Streams of one batch: ids and log-probabilities, (batch, steps)."""

    def __init__(self, ids: Tensor, logprobs: Tensor) -> None:
        self.ids, self.logprobs = ids, logprobs


@torch.inference_mode()
def greedy(
    weights: Weights,
    rows: Sequence[Sequence[int]],
    *,
    steps: int,
    config: ModelConfig,
    options: PathOptions,
    device: str | torch.device,
    chunk: int = 0,
    trace: Trace | Silent = SILENT,
) -> GreedyStreams:
    """Take the argmax ``steps`` times after each prompt, lowest id among equals, ignoring stop tokens."""
    logits, state = prefill(
        weights, rows, config=config, options=options, device=device, chunk=chunk, trace=trace
    )
    last = torch.tensor([len(r) - 1 for r in rows], device=device)
    row = logits[torch.arange(len(rows), device=device), last]
    ids, logprobs = [], []
    for step in range(steps):
        wide = torch.log_softmax(row.to(torch.float64), dim=-1)
        top = wide.amax(-1, keepdim=True)
        ids.append((wide == top).int().argmax(-1))
        logprobs.append(top.squeeze(-1))
        if step + 1 < steps:
            logits, state = forward(
                weights,
                ids[-1].unsqueeze(1),
                config=config,
                options=options,
                state=state,
                decode=True,
                trace=trace,
            )
            row = logits[:, 0]
    return GreedyStreams(torch.stack(ids, dim=1), torch.stack(logprobs, dim=1))
