"""The ``speculative`` artifact: sampled and speculative streams, with the law of every token.

A prompt tagged ``speculative`` gets three streams: ``sampled`` (one token at a time, T > 0),
``spec-sampled`` and ``spec-greedy`` (drafted, verified, rolled back). The two speculative kinds
share one batch, so that greedy and sampled requests and every kind of filter are batchmates.
Every request has its own seed and parameters, which depend on prompt and kind alone. What a
token's law was is computed here in float64 by ``validate.oracle`` from the raw rows and from what
was asked for, never from the path's own sampler. Tensors: ``docs/capture-format.md``.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import ml_dtypes
import numpy as np
import torch
from torch import Tensor as TorchTensor

from validate.capture.backends._speculative_audit import Audit
from validate.capture.backends._speculative_rows import StreamRows, add_plain, add_step
from validate.capture.format import Tensor
from validate.models import Trace
from validate.models.drafting import Drafter
from validate.models.generate import prefill
from validate.models.model import State
from validate.models.plain import Target, sample
from validate.models.sampler import Build, token_logprobs
from validate.models.speculate import SpecStep, speculate
from validate.numerics.keyed import keyed_hash
from validate.oracle.lossless import Asked
from validate.oracle.lossless_rows import AskedRows
from validate.oracle.renorm import Ties
from validate.schema import DRAWN_KINDS, Prompt, SamplingParams, Stream

__all__ = [
    "FORCED",
    "GRID",
    "REPLAY",
    "TOKENS",
    "Made",
    "Speculation",
    "asked_of",
    "params_of",
    "speculative_artifact",
]

TOKENS: Mapping[str, int] = {"sampled": 80, "spec-greedy": 24, "spec-sampled": 80}
"""Tokens of each stream where the target's key ``tokens`` names no other number."""
FORCED = 24
"""Emitted tokens whose verify rows are stored, beside teacher-forced ones."""
REPLAY = 12
"""Tokens of ``spec-sampled`` that are drawn again among other batchmates."""
GRID: tuple[SamplingParams, ...] = tuple(
    SamplingParams(temperature=t, top_k=k, top_p=p, min_p=m, seed=0)
    for t, k, p, m in (
        (1.0, 0, 1.0, 0.0),
        (0.7, 0, 0.9, 0.0),
        (1.0, 8, 0.8, 0.0),
        (1.3, 0, 1.0, 0.0),
        (0.8, 20, 1.0, 0.0),
        (1.0, 0, 1.0, 0.1),
        (1.2, 50, 0.95, 0.02),
    )
)
"""Parameters that requests take in turn: no filter, each alone, and several binding at once."""
DIGITS = 5
"""Decimals of a log-probability in the JSON lines; the tensors hold float32."""
Kind = Literal["sampled", "spec-greedy", "spec-sampled"]
Request = tuple[Prompt, Kind]
SPEC: Kind = "spec-sampled"
GREEDY: Kind = "spec-greedy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """What draws, what drafts, and how much."""

    target: Target
    drafter: Drafter | None
    """None leaves the speculative kinds out."""
    build: Build
    device: str
    chunk: int
    seed: int
    """Of the capture; every request's seed is hashed from it."""
    tokens: Mapping[str, int]
    trace: Trace


class Made(NamedTuple):
    """What one prompt gets."""

    tensors: dict[str, Tensor]
    streams: tuple[Stream, ...]


def params_of(prompt: Prompt, kind: str, *, seed: int) -> SamplingParams:
    """Parameters and seed of a request, by its prompt's id and its kind alone."""
    if kind == "spec-greedy":
        return SamplingParams(temperature=0.0)
    digest = hashlib.sha256(prompt.id.encode()).digest()
    name = int.from_bytes(digest[:7], "big")
    own = int(keyed_hash(seed, np.array([name]), np.array([DRAWN_KINDS.index(kind)]))[0])
    grid = GRID[int.from_bytes(digest[7:11], "big") % len(GRID)]
    return grid.model_copy(update={"seed": own >> 1})


def asked_of(params: Sequence[SamplingParams], *, build: Build) -> AskedRows:
    """The parameters as the oracle takes them; the build declares the rule of ties."""
    ties: Ties = "all" if build == "dense" else "exactly_k"
    rows = [
        Asked(temperature=p.temperature, top_k=p.top_k, top_p=p.top_p, min_p=p.min_p)
        for p in params
    ]
    return AskedRows.of(rows, ties=ties)


def speculative_artifact(run: Speculation, prompts: Sequence[Prompt]) -> dict[str, Made]:
    """Run all kinds over ``prompts``: one batch for plain draws, one for speculation.

    Returns:
        Tensors and streams by prompt id.
    """
    tensors: dict[str, dict[str, Tensor]] = {prompt.id: {} for prompt in prompts}
    streams: dict[str, list[Stream]] = {prompt.id: [] for prompt in prompts}

    def put(requests: Sequence[Request], made: Sequence[StreamRows]) -> None:
        for row, ((prompt, kind), held) in enumerate(zip(requests, made, strict=True)):
            count = run.tokens[kind]
            tensors[prompt.id].update(held.tensors(kind, count))
            streams[prompt.id].append(_stream(run, requests, row, held, count))

    requests: list[Request] = [(prompt, "sampled") for prompt in prompts]
    put(requests, _sampled(run, requests))
    if run.drafter is not None:
        requests = [request for p in prompts for request in ((p, SPEC), (p, GREEDY))]
        inside = [r for r, (p, k) in enumerate(requests) if k == SPEC and "tensors" in p.tags]
        audit = Audit(run.target, inside, device=run.device)
        made = _speculated(run, run.drafter, requests, run.tokens, audit=audit)
        put(requests, made)
        for at, row in enumerate(inside):
            prompt = requests[row][0]
            tensors[prompt.id].update(_inside(run, prompt, made[row]))
            tensors[prompt.id][f"spec.{SPEC}.audit"] = audit.of(at)
        again: list[Request] = [(prompt, SPEC) for prompt in reversed(prompts)]
        count = min(REPLAY, run.tokens[SPEC])
        for (prompt, _), held in zip(
            again, _speculated(run, run.drafter, again, {SPEC: count}), strict=True
        ):
            ids = np.asarray(held.ids(count), np.int32)
            tensors[prompt.id][f"spec.{SPEC}.replay"] = Tensor(ids, ("tokens",))
    return {p.id: Made(tensors[p.id], tuple(streams[p.id])) for p in prompts}


def _params(run: Speculation, requests: Sequence[Request]) -> list[SamplingParams]:
    return [params_of(prompt, kind, seed=run.seed) for prompt, kind in requests]


def _heads(requests: Sequence[Request]) -> list[tuple[int, ...]]:
    return [prompt.token_ids[: prompt.prompt_length] for prompt, _ in requests]


def _sampled(run: Speculation, requests: Sequence[Request]) -> list[StreamRows]:
    params = _params(run, requests)
    asked = asked_of(params, build=run.build)
    held = [StreamRows() for _ in requests]
    drawn = sample(
        run.target,
        _heads(requests),
        params,
        build=run.build,
        tokens=run.tokens["sampled"],
        device=run.device,
        chunk=run.chunk,
        trace=run.trace,
    )
    for raw, ids, logprobs in drawn:
        add_plain(held, raw, ids, logprobs, asked)
    return held


def _speculated(
    run: Speculation,
    drafter: Drafter,
    requests: Sequence[Request],
    tokens: Mapping[str, int],
    *,
    audit: Audit | None = None,
) -> list[StreamRows]:
    params = _params(run, requests)
    asked = asked_of(params, build=run.build)
    inside = ["tensors" in p.tags and kind == SPEC for p, kind in requests]
    held = [StreamRows(keep_raw=FORCED if i and audit is not None else 0) for i in inside]

    def watch(made: SpecStep | None, state: State, row: TorchTensor, first: TorchTensor) -> None:
        if made is None:
            add_plain(held, row, first, token_logprobs(row, first), asked)
            if audit is not None:
                audit.begin(state)
            return
        add_step(held, made, asked, drafter=drafter)
        if audit is not None:
            audit.step(made, state)

    speculate(
        run.target,
        drafter,
        _heads(requests),
        params,
        tokens=[tokens[kind] for _, kind in requests],
        device=run.device,
        chunk=run.chunk,
        trace=run.trace,
        watch=watch,
    )
    return held


def _inside(run: Speculation, prompt: Prompt, held: StreamRows) -> dict[str, Tensor]:
    """The rows that the first tokens were drawn from, and teacher-forced ones behind the same tokens."""
    count = min(FORCED, run.tokens[SPEC])
    head = prompt.token_ids[: prompt.prompt_length]
    logits, _ = prefill(
        run.target.weights,
        [[*head, *held.ids(count - 1)]],
        config=run.target.config,
        options=run.target.options,
        device=run.device,
        chunk=run.chunk,
        trace=run.trace,
    )
    verified = torch.cat(held.raw)[:count]
    return {
        f"spec.{SPEC}.verify.logits": Tensor(_array(verified), ("rows", "vocab")),
        f"spec.{SPEC}.forced.logits": Tensor(_array(logits[0, len(head) - 1 :]), ("rows", "vocab")),
    }


def _array(x: TorchTensor) -> np.ndarray:
    x = x.detach().to("cpu").contiguous()
    if x.dtype is torch.bfloat16:
        return np.asarray(x.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.asarray(x.numpy())


def _stream(
    run: Speculation, requests: Sequence[Request], row: int, held: StreamRows, count: int
) -> Stream:
    prompt, kind = requests[row]
    finite = (v if np.isfinite(v) else None for v in held.logprobs(count))
    return Stream(
        prompt=prompt.id,
        kind=kind,
        token_ids=tuple(held.ids(count)),
        logprobs=tuple(v if v is None else round(v, DIGITS) for v in finite),
        finish_reason="length",
        batch_row=row,
        batch_size=len(requests),
        params=params_of(prompt, kind, seed=run.seed),
    )
