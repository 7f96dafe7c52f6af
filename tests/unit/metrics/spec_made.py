"""Hand-made drawn streams: a law of two ids, (3/4, 1/4), and verify steps of one draft."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.fakes import FakeSide, digest, make_manifest, make_prompt
from validate.schema import Pair, SamplingParams, Stream

LAW = (0.75, 0.25)
ENTROPY = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
VARIANCE = 0.75 * 0.25 * np.log(3.0) ** 2
PROMPT = 5
"""Tokens of every prompt."""
TWO_IDS = make_manifest().model.model_copy(update={"vocab_size": 2, "tokenizer_length": 2})
"""A model whose rows have an entry for each id of ``LAW``."""


def plain(ids: Sequence[int] | np.ndarray, **changes: Any) -> dict[str, np.ndarray]:
    """Tensors of a stream drawn from ``LAW`` without drafts; ``changes`` replace whole tensors."""
    x = np.asarray(ids)
    mass = np.asarray(LAW)[x]
    falls = np.full((len(x), 2, 2, 2), np.nan)
    falls[:, :, 0] = np.stack([np.where(x == 0, 0.0, 0.75), mass], axis=1)[:, None]
    made = {
        "tokens": x.astype(np.int32),
        "outcome": np.zeros(len(x), np.uint8),
        "row": np.zeros(len(x), np.uint8),
        "step": np.full(len(x), -1, np.int16),
        "logprob": np.log(mass),
        "p": mass,
        "q": np.full(len(x), np.nan),
        "falls": falls,
        "entropy": np.full(len(x), ENTROPY),
        "variance": np.full(len(x), VARIANCE),
        "edge": np.zeros(len(x)),
        "top": np.full(len(x), max(LAW)),
    }
    return {name: np.asarray(value) for name, value in (made | changes).items()}


def drafted(
    accepts: Sequence[int] | np.ndarray, *, expected: float = 0.5, **changes: Any
) -> dict[str, np.ndarray]:
    """A first token, then steps of one draft each: token 0 when accepted, and a final token 0.

    q equals (1, 0) at every draft, p is ``LAW``; ``expected`` is what the capture says of each.
    The mean confidence is 0.6.
    """
    taken = np.asarray(accepts, np.int64)
    counts = np.concatenate([[1], taken + 1])
    step = np.repeat(np.arange(len(counts)), counts) - 1
    row = np.arange(len(step)) - np.repeat(np.cumsum(counts) - counts, counts)
    last = row == np.concatenate([[0], taken])[step + 1]
    outcome = np.where(step < 0, 0, np.where(last, 3, 1))
    outcome[last & (step >= 0) & (row == 0)] = 2
    ids = np.zeros(len(step), np.int64)
    tokens = plain(ids, outcome=outcome, row=row, step=step)
    tokens["q"] = np.where((outcome == 1) | (outcome == 2), 1.0, np.nan)
    tokens["falls"] = tokens["falls"].copy()
    tokens["falls"][np.isfinite(tokens["q"]), :, 1] = [0.0, 0.75]
    n = len(taken)
    steps = {
        "place": PROMPT + np.cumsum(counts)[:-1] - 1,
        "drafts": np.zeros((n, 1), np.int32),
        "accepts": taken[:, None].copy(),
        "limit": np.ones(n, np.int64),
        "count": taken,
        "expected": np.full((n, 1), expected),
        "drafted_p": np.full((n, 1), 0.75),
        "drafted_q": np.full((n, 1), 1.0),
        "confidence": np.full((n, 1), 0.6),
    }
    if n > 3:  # one number throughout would be remarked on
        steps["confidence"][:2, 0] = 0.5, 0.7
    return {name: np.asarray(value) for name, value in (tokens | steps | changes).items()}


def stepped(stream: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A plain stream as one of drafts: a step for each token but the first, no draft verified."""
    tokens = np.arange(len(stream["tokens"]))
    n = max(len(tokens) - 1, 0)
    none = np.zeros((n, 1), np.int64)
    steps = {
        "outcome": np.where(tokens > 0, 3, 0),
        "step": tokens - 1,
        "place": PROMPT + np.arange(n),
        "drafts": none,
        "accepts": none,
        "limit": none[:, 0],
        "count": none[:, 0],
        "expected": np.full((n, 1), 0.5),
        "drafted_p": np.full((n, 1), 0.75),
        "drafted_q": np.full((n, 1), 1.0),
        "confidence": 0.5 + np.arange(n)[:, None] / (4 * n + 4),
    }
    return {**stream, **steps}


def all_stepped(streams: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, Any]:
    """``stepped`` of every prompt."""
    return {prompt: stepped(stream) for prompt, stream in streams.items()}


def side(
    kinds: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]],
    *,
    label: str = "rocm",
    temperature: float = 1.0,
    seeds: Mapping[str, int] | None = None,
    finish: str = "length",
    extra: Mapping[str, Mapping[str, np.ndarray]] | None = None,
    **manifest: Any,
) -> FakeSide:
    """A side from tensors by kind and prompt; every prompt has a seed of its own."""
    prompts = list(dict.fromkeys(p for streams in kinds.values() for p in streams))
    held: dict[str, dict[str, np.ndarray]] = {p: {} for p in prompts}
    for kind, streams in kinds.items():
        for prompt, tensors in streams.items():
            held[prompt] |= {f"spec.{kind}.{name}": x for name, x in tensors.items()}
    for prompt, tensors in (extra or {}).items():
        held[prompt] |= tensors
    made = FakeSide(
        label,
        held,
        prompts={p: make_prompt(p, range(1, PROMPT + 1)) for p in prompts},
        manifest=make_manifest(label, digest=digest(label), **manifest),
    )
    for kind, streams in kinds.items():
        warm = 0.0 if kind == "spec-greedy" else temperature
        made.drawn[kind] = {
            prompt: Stream(
                prompt=prompt,
                kind=kind,
                token_ids=tuple(int(t) for t in tensors["tokens"]),
                logprobs=tuple(float(x) if np.isfinite(x) else None for x in tensors["logprob"]),
                finish_reason=finish,
                batch_row=at,
                batch_size=len(streams),
                params=SamplingParams(
                    temperature=warm, seed=at if seeds is None else seeds[prompt]
                ),
            )
            for at, (prompt, tensors) in enumerate(streams.items())
        }
    return made


def pair(cand: FakeSide, ref: FakeSide | None = None, **settings: Any) -> Pair:
    """Cand against ref, or against itself."""
    return Pair(
        ref=cand if ref is None else ref, cand=cand, prompts=tuple(cand.prompts), **settings
    )


def fair(count: int, *, prompts: int = 8, zeros: float = 0.75, seed: int = 3) -> dict[str, Any]:
    """Plain streams by prompt with ids drawn from (zeros, 1 - zeros)."""
    rng = np.random.default_rng(seed)
    return {f"p-{at}": plain((rng.random(count) >= zeros).astype(int)) for at in range(prompts)}
