"""One batch of prompts through the torch model: everything a capture keeps of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor as TorchTensor

from validate.capture.backends.torch_renorm import renorm_artifact
from validate.capture.format import Tensor
from validate.models import (
    PathOptions,
    State,
    TieRule,
    Trace,
    decode_forced,
    empty_state,
    greedy,
    prefill,
)
from validate.schema import ModelConfig, Prompt, Stream

__all__ = ["STREAM_TOKENS", "BatchRow", "Runner", "looked_inside", "run_batch"]

STREAM_TOKENS = 16
"""Length of every greedy stream; no token stops it."""

Axes = tuple[str, ...]
_AXES: tuple[tuple[str, Axes], ...] = (
    (".in", ("rows", "hidden")),
    (".out", ("rows", "heads", "value")),
    (".lse", ("rows", "heads")),
    (".scores", ("rows", "experts")),
    (".ids", ("rows", "choice")),
    (".weights", ("rows", "choice")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """One path on one device."""

    weights: Mapping[str, TorchTensor]
    config: ModelConfig
    options: PathOptions
    device: str
    chunk: int
    """Tokens a prefill pass takes at most; 0 for the whole prompt."""
    state_chunk: int
    """Tokens a pass of the ``chunked`` state capture takes."""
    renorm: TieRule
    """What top-k and top-p do with ties."""
    trace: Trace

    def prefill(
        self, rows: Sequence[Sequence[int]], *, chunk: int | None = None
    ) -> tuple[TorchTensor, State]:
        """Prefill ragged rows, ``chunk`` tokens a pass (default: the runner's)."""
        return prefill(
            self.weights,
            rows,
            config=self.config,
            options=self.options,
            device=self.device,
            chunk=self.chunk if chunk is None else chunk,
            trace=self.trace,
        )

    def decode(self, rows: Sequence[Sequence[int]], state: State) -> tuple[TorchTensor, State]:
        """Feed given tokens one at a time."""
        return decode_forced(
            self.weights,
            rows,
            state,
            config=self.config,
            options=self.options,
            device=self.device,
            trace=self.trace,
        )

    def after(self, heads: Sequence[Sequence[int]]) -> State:
        """State after a prefill of ``heads``, any of which may be empty."""
        if not any(heads):
            return empty_state(self.config, self.options, batch=len(heads), device=self.device)
        return self.prefill(heads)[1]


class BatchRow(NamedTuple):
    """What one prompt of a batch gives the writer."""

    prompt: Prompt
    tensors: dict[str, Tensor]
    stream: Stream


def looked_inside(prompt: Prompt) -> bool:
    """Whether more than logits and streams is kept of a prompt."""
    return "tensors" in prompt.tags or "state" in prompt.tags


def run_batch(runner: Runner, prompts: Sequence[Prompt]) -> list[BatchRow]:
    """Teacher-forced logits, filtered rows, greedy streams and, for prompts tagged so, the inside.

    Prompts of one batch are either all looked inside of or none.
    """
    runner.trace.wants = lambda _: False
    logits, _ = runner.prefill([p.token_ids for p in prompts])
    filtered = renorm_artifact(
        prompts, logits, rule=runner.renorm, fault=runner.options.fault, trace=runner.trace
    )
    tensors = [_scored(p, logits[row]) | filtered[row] for row, p in enumerate(prompts)]
    streams = _streams(runner, prompts, tensors)
    if looked_inside(prompts[0]):
        _inside(runner, prompts, tensors)
    return [BatchRow(p, t, s) for p, t, s in zip(prompts, tensors, streams, strict=True)]


def _array(x: TorchTensor) -> NDArray[np.generic]:
    """A CPU array of the same values; bfloat16 becomes ``ml_dtypes.bfloat16``."""
    x = x.detach().to("cpu").contiguous()
    if x.dtype is torch.bfloat16:
        return np.asarray(x.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.asarray(x.numpy())


def _positions(positions: Sequence[int]) -> Tensor:
    return Tensor(np.asarray(positions, np.int32), ("rows",))


def _scored(prompt: Prompt, logits: TorchTensor) -> dict[str, Tensor]:
    positions = prompt.scored_positions()
    return {
        "logits": Tensor(_array(logits[list(positions)]), ("rows", "vocab")),
        "logits.positions": _positions(positions),
    }


def _streams(
    runner: Runner, prompts: Sequence[Prompt], tensors: Sequence[dict[str, Tensor]]
) -> list[Stream]:
    """Greedy streams; adds the rows of a teacher-forced pass over prompt and own stream."""
    asked = [p.token_ids[: p.prompt_length] for p in prompts]
    made = greedy(
        runner.weights,
        asked,
        steps=STREAM_TOKENS,
        config=runner.config,
        options=runner.options,
        device=runner.device,
        chunk=runner.chunk,
        trace=runner.trace,
    )
    ids = made.ids.tolist()
    logits, _ = runner.prefill([[*a, *i[:-1]] for a, i in zip(asked, ids, strict=True)])
    for row, (found, head) in enumerate(zip(tensors, asked, strict=True)):
        cut = slice(len(head) - 1, len(head) - 1 + STREAM_TOKENS)
        found["stream.logits"] = Tensor(_array(logits[row, cut]), ("steps", "vocab"))
    return [
        Stream(
            prompt=p.id,
            kind="greedy",
            token_ids=tuple(ids[row]),
            logprobs=tuple(v if np.isfinite(v) else None for v in made.logprobs[row].tolist()),
            finish_reason="length",
            batch_row=row,
            batch_size=len(prompts),
        )
        for row, p in enumerate(prompts)
    ]


def _inside(
    runner: Runner, prompts: Sequence[Prompt], tensors: Sequence[dict[str, Tensor]]
) -> None:
    """Add prefill and decode tensors and, for prompts tagged ``state``, the states.

    Prefill tensors have all rows of a prompt, whatever the chunk of the
    prefill. The path proof counts the batches whose captured prefill took
    several passes as ``inside.prefill.chunked``, others as ``inside.prefill.oneshot``.
    """
    tokens = [p.token_ids for p in prompts]
    halves = [len(t) // 2 for t in tokens]
    kept = ["tensors" in p.tags for p in prompts]  # a prompt may be tagged for its states alone
    runner.trace.wants = lambda name: name.startswith("prefill.")
    _, oneshot = runner.prefill(tokens)
    passes = _keep(runner, tensors, [len(t) * k for t, k in zip(tokens, kept, strict=True)])
    runner.trace.branch(f"inside.prefill.{'chunked' if passes > 1 else 'oneshot'}")
    runner.trace.wants = lambda name: name.startswith("prefill.attn.")
    started = runner.after([t[:h] for t, h in zip(tokens, halves, strict=True)])
    heads = [h * k for h, k in zip(halves, kept, strict=True)]
    _keep(runner, tensors, heads, rename=("prefill.", "decode.prefix."))
    runner.trace.wants = lambda name: name.startswith("decode.")
    rest = [t[h:] for t, h in zip(tokens, halves, strict=True)]
    logits, decoded = runner.decode(rest, started)
    _keep(runner, tensors, [len(r) * k for r, k in zip(rest, kept, strict=True)])
    runner.trace.wants = lambda _: False
    if passes > 1:
        _, oneshot = runner.prefill(tokens, chunk=0)
    _, chunked = runner.prefill(tokens, chunk=runner.state_chunk)
    states = {"oneshot": oneshot, "chunked": chunked, "decode": decoded}
    for row, (found, prompt) in enumerate(zip(tensors, prompts, strict=True)):
        count, half = len(prompt.token_ids), halves[row]
        if kept[row]:
            found["prefill.positions"] = _positions(range(count))
            found["decode.positions"] = _positions(range(half, count))
            found["decode.logits"] = Tensor(_array(logits[row, : count - half]), ("rows", "vocab"))
        if "state" in prompt.tags:
            for how, state in states.items():
                found.update(_states(state, how, row, count))


def _keep(
    runner: Runner,
    tensors: Sequence[dict[str, Tensor]],
    counts: Sequence[int],
    *,
    rename: tuple[str, str] = ("", ""),
) -> int:
    """Add what the trace kept, passes joined in order, cut to each row's ``counts`` positions.

    Returns:
        Passes that were joined.
    """
    joined = 0
    for name, passes in runner.trace.take().items():
        axes = next((a for suffix, a in _AXES if name.endswith(suffix)), ("rows", "hidden"))
        joined = max(joined, len(passes))
        whole = torch.cat(passes, dim=1)
        whole = whole.to(torch.int32) if name.endswith(".ids") else whole
        for row, (found, count) in enumerate(zip(tensors, counts, strict=True)):
            if count:
                key = rename[1] + name.removeprefix(rename[0])
                found[key] = Tensor(_array(whole[row, :count]), axes)
    return joined


def _states(state: State, how: str, row: int, tokens: int) -> dict[str, Tensor]:
    """Recurrent, convolution and latent-cache state of one row."""
    made: dict[str, Tensor] = {}
    for layer, kda in state.kda.items():
        wide = kda.recurrent[row].to(torch.promote_types(kda.recurrent.dtype, torch.float32))
        made[f"state.{how}.kda.{layer}"] = Tensor(_array(wide), ("heads", "key", "value"))
        made[f"state.{how}.conv.{layer}"] = Tensor(
            _array(kda.conv[row]), ("qkv", "channels", "taps")
        )
    for layer, cache in state.kv.items():
        made[f"state.{how}.kv.{layer}"] = Tensor(_array(cache[row, :tokens]), ("tokens", "latent"))
    return made
