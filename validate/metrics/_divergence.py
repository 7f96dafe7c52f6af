"""Where two greedy streams of one prompt part, for all prompts of a pair."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from validate.metrics._reason import Reason
from validate.schema import Pair, Side

__all__ = ["StreamPair", "Streams", "first_divergence", "row_count_reason", "stream_pairs"]

ROWS = "stream.logits"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPair:
    """The greedy streams of one prompt on both sides."""

    prompt: str
    start: int
    """Position of the first emitted token."""
    ref: tuple[int, ...]
    cand: tuple[int, ...]
    ref_finish: str
    cand_finish: str
    diverged: int | None
    """0-based first step whose ids differ; None within the shorter stream."""

    @property
    def compared(self) -> int:
        """Steps with identical prefixes: up to and including the first divergence."""
        common = min(len(self.ref), len(self.cand))
        return common if self.diverged is None else self.diverged + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """All stream pairs, or why there are none."""

    reason: Reason | None
    every: tuple[StreamPair, ...]
    """All prompts, in pair order."""

    @property
    def pairs(self) -> tuple[StreamPair, ...]:
        """Prompts whose streams hold a token on either side."""
        return tuple(streams for streams in self.every if streams.ref or streams.cand)


def first_divergence(ref: Sequence[int], cand: Sequence[int]) -> int | None:
    """0-based first index whose ids differ, None where the shorter one is a prefix of the other."""
    common = min(len(ref), len(cand))
    differs = np.asarray(ref[:common], dtype=np.int64) != np.asarray(cand[:common], dtype=np.int64)
    return int(np.argmax(differs)) if differs.any() else None


def stream_pairs(pair: Pair) -> Streams:
    """The greedy streams of every prompt, compared; read once for each pair."""
    return pair.once("greedy.streams", lambda: _read(pair))


def row_count_reason(side: Side, prompt: str, *, tokens: int, rows: int) -> Reason | None:
    """Complain where teacher-forced rows and stream tokens do not go together."""
    if rows == tokens:
        return None
    why = f"{side.label} prompt {prompt}: {ROWS} has {rows} rows for a stream of {tokens} tokens"
    return Reason(why, "unlike")


def _read(pair: Pair) -> Streams:
    missing = [
        f"{side.label} prompt {prompt}"
        for side in (pair.ref, pair.cand)
        for prompt in pair.prompts
        if prompt not in side.streams
    ]
    if missing:
        why = f"no greedy stream in {', '.join(missing[:3])} ({len(missing)} in all)"
        return Streams(reason=Reason(why, "unlike"), every=())
    found = Streams(reason=None, every=tuple(_stream_pair(pair, prompt) for prompt in pair.prompts))
    if found.pairs:
        return found
    reason = Reason(f"no stream token in any of {len(pair.prompts)} prompts")
    return replace(found, reason=reason)


def _stream_pair(pair: Pair, prompt: str) -> StreamPair:
    ref, cand = pair.ref.streams[prompt], pair.cand.streams[prompt]
    return StreamPair(
        prompt=prompt,
        start=pair.ref.prompts[prompt].prompt_length,
        ref=ref.token_ids,
        cand=cand.token_ids,
        ref_finish=ref.finish_reason,
        cand_finish=cand.finish_reason,
        diverged=first_divergence(ref.token_ids, cand.token_ids),
    )
