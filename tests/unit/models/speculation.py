"""Speculation on the small model: a random drafter, and drafts of a chosen quality."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.unit.models.small import CPU, SMALL, WEIGHTS
from validate.models import PathOptions, greedy
from validate.models.drafting import Drafted, Drafter
from validate.models.dspark import initialise_drafter
from validate.models.plain import Target, sample
from validate.models.speculate import SpecStep, speculate
from validate.schema import DraftConfig, SamplingParams

DRAFT = DraftConfig(
    name="small-draft",
    taps=(1, 2, 4),
    layers=1,
    heads=2,
    head_dim=4,
    intermediate=8,
    markov_rank=3,
)
COLD = SamplingParams(temperature=0.0)
PROMPTS: tuple[tuple[int, ...], ...] = ((3, 1, 4, 1, 5, 9, 2, 6), (8, 9, 7), (16, 0, 16, 16, 2))
WARM = (
    SamplingParams(temperature=1.0, seed=11),
    SamplingParams(temperature=0.6, top_k=6, top_p=0.8, seed=12),
    SamplingParams(temperature=1.4, min_p=0.05, seed=13),
)


def drafter(**changes: Any) -> Drafter:
    """A random drafter for the small model, in the dtype of its target."""
    weights = initialise_drafter(DRAFT, SMALL, seed=3)
    dtype = changes.pop("dtype", torch.float64)
    return Drafter(weights={n: w.to(dtype) for n, w in weights.items()}, config=DRAFT, **changes)


def target(options: PathOptions) -> Target:
    dtype = torch.float32 if options.dtype is torch.bfloat16 else options.dtype
    weights = {name: w.to(dtype) for name, w in WEIGHTS.items()}
    return Target(weights=weights, config=SMALL, options=options)


def plain_greedy(options: PathOptions, tokens: int) -> Tensor:
    made = greedy(
        target(options).weights, PROMPTS, steps=tokens, config=SMALL, options=options, device=CPU
    )
    return made.ids


def spec_streams(
    options: PathOptions,
    params: Sequence[SamplingParams],
    *,
    tokens: int,
    rows: Sequence[Sequence[int]] = PROMPTS,
    **changes: Any,
) -> tuple[list[list[int]], list[SpecStep]]:
    """The first ``tokens`` tokens of every stream, and the steps."""
    own = drafter(dtype=target(options).weights["embed.weight"].dtype, **changes)
    _, first, steps = speculate(target(options), own, rows, params, tokens=tokens, device=CPU)
    streams = [[int(x)] for x in first]
    for step in steps:
        for row, request in enumerate(step.rows.tolist()):
            stream = streams[request]
            if bool(step.live[row]):
                taken = int(step.count[row])
                stream += [*step.drafts[row, :taken].tolist(), int(step.final[row])]
    return [s[:tokens] for s in streams], steps


def sampled_streams(
    options: PathOptions, params: Sequence[SamplingParams], *, tokens: int, build: Any = "dense"
) -> list[list[int]]:
    drawn = sample(target(options), PROMPTS, params, build=build, tokens=tokens, device=CPU)
    return torch.stack([ids for _, ids, _ in drawn], 1).tolist()


def good_drafts(monkeypatch: pytest.MonkeyPatch, truth: Tensor, *, seed: int) -> None:
    """Have drafts follow ``truth`` (batch, tokens) up to a random place in each block, from 0 to 7."""
    rng = torch.Generator().manual_seed(seed)

    def made(own: Drafter, _target: Any, requests: Any, anchor: Tensor, place: Tensor, _c: Any):
        block, vocab = own.config.block, SMALL.vocab_size
        ids = torch.zeros(len(anchor), block, dtype=torch.long)
        for row in range(len(anchor)):
            # Finished requests leave the batch: a row is known by its anchor and place.
            told = ((r, int(place[row]) - len(prompt)) for r, prompt in enumerate(PROMPTS))
            which, at = next((r, a) for r, a in told if int(truth[r, a]) == int(anchor[row]))
            follow = truth[which, at + 1 : at + 1 + block]
            ids[row, : len(follow)] = follow
            wrong = int(torch.randint(0, block + 1, (1,), generator=rng))
            if wrong < block:
                ids[row, wrong] = (ids[row, wrong] + 1) % vocab
        logits = torch.full((*ids.shape, vocab), -30.0).scatter_(2, ids.unsqueeze(-1), 0.0)
        return Drafted(ids, logits, torch.full(ids.shape, 0.5))

    monkeypatch.setattr("validate.models.speculate.draft_block", made)
