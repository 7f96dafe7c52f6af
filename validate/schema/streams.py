"""Token streams as JSON lines."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Stream"]


class Stream(BaseModel):
    """One generated stream of one prompt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: str
    kind: Literal["greedy"]
    token_ids: tuple[int, ...]
    logprobs: tuple[float | None, ...]
    """Natural-log probability of each emitted token by the path that emitted it; None: not finite."""
    finish_reason: Literal["length", "stop"]
    batch_row: Annotated[int, Field(ge=0)]
    batch_size: Annotated[int, Field(ge=1)]
