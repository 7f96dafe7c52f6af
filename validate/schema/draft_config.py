"""The dimensions of a DSpark drafter for a Kimi-K3-shaped model."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["DraftConfig"]

Size = Annotated[int, Field(ge=1)]


class DraftConfig(BaseModel):
    """All that fixes the drafter beside its target's configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    block: Size = 7
    """Tokens drafted a step: block position k predicts the token at anchor + k + 1."""
    taps: tuple[int, ...]
    """0-based target layers whose hidden states (after the FFN output was added) are read."""
    layers: Size
    heads: Size
    head_dim: Size
    intermediate: Size
    markov_rank: Size
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-5
