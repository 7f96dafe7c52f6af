"""How the tokens of a request are drawn."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["SamplingParams"]


class SamplingParams(BaseModel):
    """Parameters of one request; order: temperature, softmax, top-k, top-p, min-p."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    """0 is greedy; the filters then have no say."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """Most tokens kept; 0 keeps all."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Mass of the renormalised row that the kept tokens reach."""
    min_p: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Least probability kept, as a share of the row's largest."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """Of the request's own numbers; None for a greedy request."""

    @model_validator(mode="after")
    def _needs_a_seed(self) -> "SamplingParams":
        if self.temperature > 0 and self.seed is None:
            msg = "a sampled request needs a seed of its own; give `seed` or temperature 0"
            raise ValueError(msg)
        return self
