"""Prompt sets: JSON lines, one prompt each, identified by the digest of their tokens."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["PROMPT_ID", "Int64", "Prompt"]

Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""What an array of the format can hold; an id outside the vocabulary is for a gate to judge."""

PROMPT_ID = r"^[a-z0-9][a-z0-9-]{0,63}$"


class Prompt(BaseModel):
    """One prompt as every capture stores it.

    ``token_ids`` is the prompt and its forced continuation; teacher-forced
    artifacts run over all of it, greedy streams start after
    ``token_ids[:prompt_length]``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[str, Field(pattern=PROMPT_ID)]
    token_ids: Annotated[tuple[Int64, ...], Field(min_length=1)]
    prompt_length: Annotated[int, Field(ge=1, lt=2**63)]
    tags: tuple[str, ...] = ()
    """``tensors``: attention, hidden and router tensors are captured; ``state``: states too."""
    score_stride: Annotated[int, Field(ge=1, lt=2**63)] = 1
    """Logits are stored at every ``score_stride``-th position and at the last 16."""

    def scored_positions(self) -> tuple[Int64, ...]:
        """Positions whose logits are stored, 0-based, ascending."""
        n = len(self.token_ids)
        return tuple(p for p in range(n) if p % self.score_stride == 0 or p >= n - 16)
