"""Token streams as JSON lines."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from validate.schema.prompts import Int64
from validate.schema.sampling import SamplingParams

__all__ = ["DRAWN_KINDS", "Stream"]

DRAWN_KINDS = ("sampled", "spec-greedy", "spec-sampled")
"""Kinds beside ``greedy``: plain draws, and what speculation emits at T = 0 and at T > 0."""


class Stream(BaseModel):
    """One generated stream of one prompt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: str
    kind: Literal["greedy", "sampled", "spec-greedy", "spec-sampled"]
    token_ids: tuple[Int64, ...]
    logprobs: tuple[float | None, ...]
    """Natural-log probability of each emitted token by the path that emitted it; None: not finite."""
    finish_reason: Literal["length", "stop"]
    batch_row: Annotated[int, Field(ge=0)]
    batch_size: Annotated[int, Field(ge=1)]
    params: SamplingParams | None = None
    """What the request asked for; None for kind ``greedy``."""
