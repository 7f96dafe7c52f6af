"""The first tokens of every drawn stream, seen as a capture of their own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validate.schema import Manifest, Prompt, Side, Stream

__all__ = ["Shortened", "shorten"]

SAMPLED = ("sampled", "spec-sampled")
"""Kinds that draw at T > 0; a stream at T = 0 is no sample and stays whole."""
CUT_AXES = ("tokens", "rows")
"""First axes that have an entry a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortened:
    """The reading side of another side whose sampled streams end early; nothing is copied."""

    whole: Side
    lengths: Mapping[str, Mapping[str, int]]
    """Kind, then prompt, to the tokens that are kept."""
    drawn: Mapping[str, Mapping[str, Stream]]

    @property
    def label(self) -> str:
        """Target name, for messages."""
        return self.whole.label

    @property
    def manifest(self) -> Manifest:
        """That of the whole capture."""
        return self.whole.manifest

    @property
    def prompts(self) -> Mapping[str, Prompt]:
        """Prompts by id, in capture order."""
        return self.whole.prompts

    @property
    def streams(self) -> Mapping[str, Stream]:
        """Greedy streams by prompt id."""
        return self.whole.streams

    @property
    def digest(self) -> str | None:
        """Digest of the whole capture, where it has one."""
        return getattr(self.whole, "digest", None)

    @property
    def path(self) -> Any:
        """Folder of the whole capture, where it has one."""
        return getattr(self.whole, "path", None)

    def names(self, prompt: str) -> tuple[str, ...]:
        """Sorted names of the tensors captured for ``prompt``."""
        return self.whole.names(prompt)

    def axes(self, prompt: str, name: str) -> tuple[str, ...]:
        """Axis names of one tensor, in order."""
        return self.whole.axes(prompt, name)

    def tensor(self, prompt: str, name: str) -> NDArray[Any]:
        """One tensor, with the entries of the tokens and verify steps that are kept."""
        array = self.whole.tensor(prompt, name)
        kind = name.split(".")[1] if name.startswith("spec.") else ""
        kept = self.lengths.get(kind, {}).get(prompt)
        if kept is None:
            return array
        first = self.axes(prompt, name)[0]
        if first in CUT_AXES:
            return array[:kept]
        return array[: self._steps(prompt, kind, kept)] if first == "steps" else array

    def _steps(self, prompt: str, kind: str, kept: int) -> int:
        """Verify steps that emitted any of the tokens that are kept."""
        step = np.asarray(self.whole.tensor(prompt, f"spec.{kind}.step"), np.int64)[:kept]
        return int(step[-1]) + 1 if len(step) else 0


def shorten(side: Side, tokens: int, *, prompts: tuple[str, ...] = ()) -> Side:
    """Keep ``tokens`` sampled tokens of each kind: every stream's first ones, evenly over prompts.

    Which are kept depends on their place alone, never on what was drawn, so that a right sampler
    stays right. A stream that is shorter than its share is kept whole.

    Args:
        side: The capture.
        tokens: At least 1; how many of each kind of streams at T > 0, in all.
        prompts: Prompts that count; empty: all.
    """
    lengths: dict[str, dict[str, int]] = {}
    drawn = dict(side.drawn)
    for kind in SAMPLED:
        streams = side.drawn.get(kind, {})
        held = [name for name in streams if not prompts or name in prompts]
        if not held:
            continue
        share, more = divmod(tokens, len(held))
        lengths[kind] = {
            name: min(share + (place < more), len(streams[name].token_ids))
            for place, name in enumerate(held)
        }
        drawn[kind] = {
            name: _cut(stream, lengths[kind].get(name)) for name, stream in streams.items()
        }
    return Shortened(whole=side, lengths=lengths, drawn=drawn)


def _cut(stream: Stream, kept: int | None) -> Stream:
    if kept is None or kept >= len(stream.token_ids):
        return stream
    changes = {
        "token_ids": stream.token_ids[:kept],
        "logprobs": stream.logprobs[:kept],
        "finish_reason": "length",
    }
    return stream.model_copy(update=changes)
