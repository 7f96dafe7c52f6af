"""Captures of a sampler whose law is known: what the speculative metrics read, made without a model."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.oracle.lossless import Rule, expected_acceptance, outcome_law, surprisal_moments
from validate.run.spec_sampler import (
    BLOCK,
    GROUPS,
    HONEST,
    Made,
    Pool,
    Sampler,
    plain,
    pool_of,
    target_logits,
    verified,
)
from validate.schema import Manifest, ModelIdentity, Pair, PathProof, Prompt, Provenance, Stream
from validate.schema.sampling import SamplingParams

__all__ = ["HeldSide", "simulated_pair", "simulated_side"]

Array = NDArray[Any]
REFERENCE_SEED = 1
NEAR_TIE = 0.555
"""Of the shipped limits, in nats."""
PROMPT_LENGTHS = (12, 17, 23, 30, 41)
Kind = Literal["sampled", "spec-sampled"]
KINDS: tuple[Kind, ...] = ("sampled", "spec-sampled")
PLAIN, ACCEPTED, RESAMPLED, BONUS = range(4)


class _Truth(NamedTuple):
    """What a capture stores of each (row, id) of one group, in float64."""

    p: Array
    q: Array
    falls: Array
    """[3 laws (p, accepted, resampled), 2 orders, 2 parts, rows, vocab]."""
    entropy: Array
    variance: Array
    edge: Array
    expected: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSide:
    """One side of a pair that lives in memory."""

    label: str
    manifest: Manifest
    prompts: Mapping[str, Prompt]
    streams: Mapping[str, Stream]
    drawn: Mapping[str, Mapping[str, Stream]]
    held: Mapping[str, Mapping[str, Array]]

    def names(self, prompt: str) -> tuple[str, ...]:
        """Names of the tensors of ``prompt``."""
        return tuple(sorted(self.held[prompt]))

    def tensor(self, prompt: str, name: str) -> Array:
        """One tensor."""
        return self.held[prompt][name]

    def axes(self, prompt: str, name: str) -> tuple[str, ...]:
        """Nobody asks for them here.

        Raises:
            KeyError: There is no such tensor.
        """
        return tuple(f"axis {at}" for at in range(self.held[prompt][name].ndim))


def simulated_pair(
    sampler: Sampler, *, streams: int, tokens: int, rng: np.random.Generator, kinds: str = "both"
) -> Pair:
    """A pair whose cand is drawn by ``sampler`` and whose ref is cand's own right twin.

    Args:
        sampler: Right, or wrong on purpose.
        streams: Prompts; each has one stream of every kind.
        tokens: Of each stream.
        rng: All randomness.
        kinds: ``both``, ``sampled`` or ``spec-sampled``.
    """
    cand = simulated_side(sampler, streams=streams, tokens=tokens, rng=rng, kinds=kinds)
    ref = _reference(streams, tokens, kinds)
    return Pair(ref=ref, cand=cand, prompts=tuple(cand.prompts), near_tie=NEAR_TIE)


@lru_cache(maxsize=8)
def _reference(streams: int, tokens: int, kinds: str) -> HeldSide:
    rng = np.random.default_rng(REFERENCE_SEED)
    return simulated_side(HONEST[0], streams=streams, tokens=tokens, rng=rng, kinds=kinds)


def simulated_side(
    sampler: Sampler, *, streams: int, tokens: int, rng: np.random.Generator, kinds: str = "both"
) -> HeldSide:
    """One capture; arguments as ``simulated_pair``."""
    pool = pool_of(sampler)
    names = [f"sim-{at:03d}" for at in range(streams)]
    held: dict[str, dict[str, Array]] = {name: {} for name in names}
    drawn: dict[str, dict[str, Stream]] = {}
    for kind in KINDS:
        if kinds not in ("both", kind):
            continue
        drawn[kind] = {}
        for at, made in _streams(pool, kind, streams=streams, tokens=tokens, rng=rng):
            found = _tensors(made, at, rule=sampler.rule, tokens=tokens)
            held[names[at]] |= {f"spec.{kind}.{name}": x for name, x in found.items()}
            drawn[kind][names[at]] = _stream(names[at], at, kind, found, streams)
    return HeldSide(
        label=sampler.name,
        manifest=_manifest(sampler, rng),
        prompts={n: _prompt(n, at) for at, n in enumerate(names)},
        streams={},
        drawn=drawn,
        held=held,
    )


def _streams(
    pool: Pool, kind: str, *, streams: int, tokens: int, rng: np.random.Generator
) -> Iterator[tuple[int, Made]]:
    """Each stream's raw results; prompts of one group are drawn together."""
    steps = tokens if kind == "sampled" else tokens - 1
    shape = (streams, steps)
    sizes = [()] if kind == "sampled" else [(BLOCK,), (BLOCK,), (BLOCK + 1,), ()]
    numbers = [_numbers(pool.sampler, (*shape, *size), rng) for size in sizes]
    if kind != "sampled":
        numbers.append(_numbers(pool.sampler, (streams, 1), rng))
    for group in range(len(GROUPS)):
        here = np.arange(group, streams, len(GROUPS))
        if not len(here):
            continue
        mine = [x[here] for x in numbers]
        if kind == "sampled":
            made = plain(pool, group, rng, mine[0])
            yield from ((int(at), Made(*(x[i] for x in made))) for i, at in enumerate(here))
            continue
        first = plain(pool, group, rng, mine[4])
        made = verified(pool, group, rng, mine[:4])
        for i, at in enumerate(here):
            yield int(at), _with_first(Made(*(x[i] for x in made)), first.rows[i], first.tokens[i])


def _with_first(made: Made, row: Array, token: Array) -> Made:
    """A step of its own for the token behind the prompt: nothing drafted, count -1."""
    rows = np.vstack([np.full((1, BLOCK + 1), row[0]), made.rows])

    def padded(x: Array, value: int) -> Array:
        return np.concatenate([np.full((1, *x.shape[1:]), value, x.dtype), x])

    return Made(
        rows,
        np.concatenate([token, made.tokens]),
        padded(made.drafts, 0),
        padded(made.accepts, 0),
        padded(made.limit, 0),
        padded(made.taken, 0),
    )


def _numbers(sampler: Sampler, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Uniform numbers by stream and step: fresh, or shared as the fault has it."""
    if sampler.numbers == "same each step":
        return np.broadcast_to(rng.random((shape[0], 1, *shape[2:])), shape)
    if sampler.numbers == "one seed":
        return np.broadcast_to(rng.random((1, *shape[1:])), shape)
    return rng.random(shape)


@cache
def _truth(group: int, rule: Rule) -> _Truth:
    tables = pool_of(HONEST[0]).tables[group]
    p, q = tables.p, tables.q
    laws = [
        p,
        np.array([outcome_law("accepted", rule, a, b) for a, b in zip(p, q, strict=True)]),
        np.array([outcome_law("resampled", rule, a, b) for a, b in zip(p, q, strict=True)]),
    ]
    ratio = np.where(p > 0, q / np.where(p > 0, p, 1.0), -1.0)
    falls = np.array([[_below_and_mass(law, key) for key in (p, ratio)] for law in laws])
    moments = np.array([surprisal_moments(law) for law in p])
    return _Truth(
        p=p,
        q=q,
        falls=falls,
        entropy=moments[:, 0],
        variance=moments[:, 1],
        edge=_edges(p, group),
        expected=np.array([expected_acceptance(rule, a, b) for a, b in zip(p, q, strict=True)]),
    )


def _edges(p: Array, group: int) -> Array:
    """Nats below the least kept logit, at the temperature; 0 inside the support."""
    scaled = target_logits() / GROUPS[group].temperature
    least = np.min(np.where(p > 0, scaled, np.inf), axis=1, keepdims=True)
    return np.where(p > 0, 0.0, least - scaled)


def _below_and_mass(law: Array, key: Array) -> Array:
    """Mass before each id in falling order of ``key``, ties by id, and on it."""
    order = np.argsort(-key, axis=1, kind="stable")
    ordered = np.take_along_axis(law, order, axis=1)
    below = np.empty_like(law)
    np.put_along_axis(below, order, np.cumsum(ordered, axis=1) - ordered, axis=1)
    return np.array([below, law])


def _tensors(made: Made, at: int, *, rule: Rule, tokens: int) -> dict[str, Array]:
    """The artifact's tensors of one stream, by name without prefix."""
    truth = _truth(at % len(GROUPS), rule)
    if not made.drafts.shape[-1]:
        step = np.full(len(made.tokens), -1)
        return _of_tokens(
            truth,
            made.tokens,
            made.rows,
            outcome=step * 0,
            row=step * 0,
            step=step,
            drafted=step < 0,
        )
    counts = made.taken + 1
    end = int(np.searchsorted(np.cumsum(counts), tokens)) + 1
    step = np.repeat(np.arange(end), counts[:end])
    row = np.arange(len(step)) - np.repeat(np.cumsum(counts[:end]) - counts[:end], counts[:end])
    step, row = step[:tokens], row[:tokens]
    last = row == made.taken[step]
    ids = np.where(last, made.tokens[step], made.drafts[step, np.minimum(row, BLOCK - 1)])
    outcome = np.where(last, np.where(made.taken < made.limit, RESAMPLED, BONUS)[step], ACCEPTED)
    outcome[0] = PLAIN
    found = _of_tokens(
        truth,
        ids,
        made.rows[step, row],
        outcome=outcome,
        row=row,
        step=step - 1,
        drafted=(row < BLOCK) & (step > 0),
    )
    used = slice(1, end)
    place = PROMPT_LENGTHS[at % len(PROMPT_LENGTHS)] + np.cumsum(counts)[:end] - counts[:end] - 1
    before = made.rows[used, :BLOCK]
    drafts = made.drafts[used].astype(np.int64)
    return found | {
        "place": place[1:].astype(np.int32),
        "drafts": drafts.astype(np.int32),
        "accepts": made.accepts[used].astype(np.uint8),
        "limit": made.limit[used].astype(np.uint8),
        "count": made.taken[used].astype(np.uint8),
        "expected": truth.expected[before].astype(np.float32),
        "drafted_p": truth.p[before, drafts].astype(np.float32),
        "drafted_q": truth.q[before, drafts].astype(np.float32),
        "confidence": truth.expected[before].astype(np.float32),
    }


def _of_tokens(
    truth: _Truth,
    ids: Array,
    rows: Array,
    *,
    outcome: Array,
    row: Array,
    step: Array,
    drafted: Array,
) -> dict[str, Array]:
    law = np.choose(outcome, [0, 1, 2, 0])
    falls = np.empty((len(ids), 2, 2, 2))
    for order in (0, 1):
        for part in (0, 1):
            falls[:, 0, order, part] = truth.falls[0, order, part, rows, ids]
            falls[:, 1, order, part] = truth.falls[law, order, part, rows, ids]
    falls[~drafted, :, 1] = np.nan
    p = truth.p[rows, ids]
    with np.errstate(divide="ignore"):
        logprob = np.log(np.maximum(p, 1e-30))
    found = {
        "logprob": logprob,
        "p": p,
        "q": np.where(drafted, truth.q[rows, ids], np.nan),
        "falls": falls,
        "entropy": truth.entropy[rows],
        "variance": truth.variance[rows],
        "edge": truth.edge[rows, ids],
        "top": truth.p.max(axis=1)[rows],
    }
    return {name: x.astype(np.float32) for name, x in found.items()} | {
        "tokens": ids.astype(np.int32),
        "outcome": outcome.astype(np.uint8),
        "row": row.astype(np.uint8),
        "step": step.astype(np.int16),
    }


def _prompt(name: str, at: int) -> Prompt:
    length = PROMPT_LENGTHS[at % len(PROMPT_LENGTHS)]
    return Prompt(id=name, token_ids=(1,) * length, prompt_length=length)


def _stream(name: str, at: int, kind: Kind, found: Mapping[str, Array], streams: int) -> Stream:
    asked = GROUPS[at % len(GROUPS)]
    return Stream.model_construct(
        prompt=name,
        kind=kind,
        token_ids=tuple(found["tokens"].tolist()),
        logprobs=(),
        finish_reason="length",
        batch_row=at,
        batch_size=streams,
        params=SamplingParams(
            temperature=asked.temperature,
            top_k=asked.top_k,
            top_p=asked.top_p,
            min_p=asked.min_p,
            seed=at if kind == "sampled" else streams + at,
        ),
    )


def _manifest(sampler: Sampler, rng: np.random.Generator) -> Manifest:
    zero = hashlib.sha256(b"simulated").hexdigest()
    return Manifest(
        schema_version=1,
        target="simulated",
        dtype="float64",
        model=ModelIdentity(
            name="toy",
            architecture="none",
            config_digest=zero,
            weights_digest=zero,
            weights="none",
            tokenizer_digest=zero,
            tokenizer_length=24,
            vocab_size=24,
        ),
        prompt_set="simulated",
        prompt_digest=zero,
        options={"verifier": sampler.rule},
        artifacts=(),
        provenance=Provenance(created="", device="cpu", hardware="none", arch="none"),
        path_proof=PathProof(path="reference", branches={"simulated": 1}),
        evidence="emulated",
        sources_digest=zero,
        digest=rng.bytes(32).hex(),
    )
