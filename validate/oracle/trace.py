"""All tensors of one prompt under the names, axes and dtypes of the capture format."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.oracle.attention import LayerState
from validate.oracle.model import Forward, LayerTrace, forward, forward_in_pieces, greedy, logits_of
from validate.oracle.records import Array
from validate.schema import ModelConfig, Prompt

__all__ = ["NamedAxes", "PromptRun", "run_prompt"]


class NamedAxes(NamedTuple):
    """An array and one name per axis."""

    array: NDArray[Any]
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRun:
    """Everything the oracle says about one prompt."""

    tensors: Mapping[str, NamedAxes]
    """Computed in float64, given as float32 (indices as int32)."""
    stream: tuple[int, ...]
    """Greedy continuation of the prompt proper."""
    logprobs: tuple[float, ...]
    """Natural-log probability of each token of ``stream`` when it was taken."""
    passes: Mapping[str, int]
    """Forward passes by kind: ``prefill``, ``chunk``, ``decode``."""


def run_prompt(
    prompt: Prompt,
    weights: Mapping[str, Array],
    config: ModelConfig,
    *,
    stream_tokens: int,
    chunk: int,
) -> PromptRun:
    """Run one prompt in every way that its tags ask for.

    One-shot prefill over all tokens always; for ``tensors`` and ``state`` also
    a prefill of the first half and one token at a time after it; for ``state``
    also prefill by chunks; then greedy decoding after the prompt proper, and a
    teacher-forced pass over what it emitted. Each is genuinely run.

    Args:
        prompt: The prompt; ``token_ids`` is teacher-forced, the stream starts
            after ``token_ids[:prompt_length]``.
        weights: Float64 weights by name.
        config: The architecture.
        stream_tokens: Length of the greedy stream; at least 1.
        chunk: Tokens a chunk of the chunked prefill.

    Returns:
        ``PromptRun`` with the tensors of the capture format.

    Raises:
        InputError: A token id is outside the vocabulary.
    """
    ids = prompt.token_ids
    passes = {"prefill": 1, "chunk": 0, "decode": 0}
    oneshot = forward(ids, weights, config)
    scored = prompt.scored_positions()
    tensors = {
        "logits": _f32(logits_of(oneshot.final[list(scored)], weights), "rows", "vocab"),
        "logits.positions": _i32(scored, "rows"),
    }
    halves = _halves(len(ids))
    decoded: tuple[Forward, ...] = ()
    if {"tensors", "state"} & set(prompt.tags):
        decoded = forward_in_pieces(ids, weights, config, lengths=halves)
        passes["prefill"] += len(ids) // 2 > 0
        passes["decode"] += len(ids) - len(ids) // 2
    if "tensors" in prompt.tags:
        first = len(ids) // 2
        steps = decoded[1:] if first > 0 else decoded
        tensors |= _mode_tensors("prefill", [oneshot], range(len(ids)))
        tensors |= _router_tensors("prefill", [oneshot])
        tensors |= _router_tensors("decode", steps)
        if first > 0:
            tensors |= {
                f"decode.prefix.attn.{layer}.in": _f32(trace.attn_in, "rows", "hidden")
                for layer, trace in enumerate(decoded[0].layers)
            }
        tensors |= _mode_tensors("decode", steps, range(first, len(ids)))
        final = np.concatenate([step.final for step in steps])
        tensors["decode.logits"] = _f32(logits_of(final, weights), "rows", "vocab")
    if "state" in prompt.tags:
        lengths = [len(ids[start : start + chunk]) for start in range(0, len(ids), chunk)]
        chunked = forward_in_pieces(ids, weights, config, lengths=lengths)
        passes["chunk"] += len(chunked)
        tensors |= _state_tensors("oneshot", oneshot.state)
        tensors |= _state_tensors("chunked", chunked[-1].state)
        tensors |= _state_tensors("decode", decoded[-1].state)
    head = ids[: prompt.prompt_length]
    stream = greedy(head, weights, config, steps=stream_tokens)
    forced = forward([*head, *stream.token_ids[:-1]], weights, config)
    rows = logits_of(forced.final[len(head) - 1 :], weights)
    tensors["stream.logits"] = _f32(rows, "steps", "vocab")
    passes["prefill"] += 2
    passes["decode"] += stream_tokens - 1
    return PromptRun(
        tensors=tensors, stream=stream.token_ids, logprobs=stream.logprobs, passes=passes
    )


def _halves(tokens: int) -> list[int]:
    """Piece lengths of the decode run: a prefill of the first half, then single tokens."""
    first = tokens // 2
    return [first] * (first > 0) + [1] * (tokens - first)


def _mode_tensors(
    mode: str, pieces: Sequence[Forward], positions: Sequence[int]
) -> dict[str, NamedAxes]:
    tensors = {f"{mode}.positions": _i32(positions, "rows")}
    for layer, trace in enumerate(pieces[0].layers):

        def rows(pick: Callable[[LayerTrace], Array], layer: int = layer) -> Array:
            return np.concatenate([pick(piece.layers[layer]) for piece in pieces])

        kind = "kda" if trace.lse is None else "mla"
        tensors[f"{mode}.attn.{layer}.in"] = _f32(rows(lambda t: t.attn_in), "rows", "hidden")
        out = rows(lambda t: t.out)
        tensors[f"{mode}.{kind}.{layer}.out"] = _f32(out, "rows", "heads", "value")
        if trace.lse is not None:
            lse = np.concatenate([p.layers[layer].lse for p in pieces])
            tensors[f"{mode}.mla.{layer}.lse"] = _f32(lse, "rows", "heads")
        tensors[f"{mode}.hidden.{layer}"] = _f32(rows(lambda t: t.hidden), "rows", "hidden")
    return tensors


def _router_tensors(mode: str, pieces: Sequence[Forward]) -> dict[str, NamedAxes]:
    """Selection scores, chosen experts and their weights of every layer that routes."""
    tensors: dict[str, NamedAxes] = {}
    for layer, first in enumerate(pieces[0].layers):
        if first.routing is None:
            continue
        found = [r for piece in pieces if (r := piece.layers[layer].routing) is not None]
        at = f"{mode}.router.{layer}"
        tensors[f"{at}.scores"] = _f32(np.concatenate([r.scores for r in found]), "rows", "experts")
        ids = np.concatenate([r.ids for r in found])
        tensors[f"{at}.ids"] = NamedAxes(ids, ("rows", "choice"))
        tensors[f"{at}.weights"] = _f32(
            np.concatenate([r.weights for r in found]), "rows", "choice"
        )
    return tensors


def _state_tensors(how: str, state: Sequence[LayerState]) -> dict[str, NamedAxes]:
    tensors = {}
    for layer, one in enumerate(state):
        at = f"state.{how}"
        if one.kv is not None:
            tensors[f"{at}.kv.{layer}"] = _f32(one.kv, "tokens", "latent")
        if one.kda is not None:
            tensors[f"{at}.kda.{layer}"] = _f32(one.kda, "heads", "key", "value")
        if one.conv is not None:
            tensors[f"{at}.conv.{layer}"] = _f32(one.conv, "qkv", "channels", "taps")
    return tensors


def _f32(array: Array, *axes: str) -> NamedAxes:
    return NamedAxes(np.ascontiguousarray(array, dtype=np.float32), axes)


def _i32(values: Sequence[int], *axes: str) -> NamedAxes:
    return NamedAxes(np.asarray(values, dtype=np.int32), axes)
