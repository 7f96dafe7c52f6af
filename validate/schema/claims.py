"""A claims file: published figures of speed and cost, and what follows from them."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["FIGURES", "Claims", "ClaimsReport", "Derived", "Figure", "Stated", "System"]

Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1, max_length=2000)]
Name = Annotated[str, Field(min_length=1, max_length=100)]

FIGURES = {
    "throughput": "tok/s",
    "decode": "tok/s",
    "ttft": "s",
    "acceptance_length": "tokens per step",
    "price": "$/GPU-hour",
    "power": "W per GPU",
}
"""Figures that a system may claim, with their units; ``throughput`` is the peak aggregate of all
GPUs, ``decode`` that of one stream."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Figure(_Record):
    """One measured number."""

    value: Positive
    evidence: Text | None = None
    """Where it can be looked up: a log beside the claims file, an address; None: nowhere."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Digest of the file that ``evidence`` names; it is then checked."""
    prompt_tokens: Annotated[int, Field(strict=True, gt=0, le=10**9)] | None = None
    """Of ``ttft``: length of the prompt."""
    conditions: Text | None = None
    """Where they differ from those of the whole file."""

    @model_validator(mode="after")
    def _consistent(self) -> "Figure":
        if self.sha256 is not None and self.evidence is None:
            msg = "sha256 without evidence: name the file it is the digest of"
            raise ValueError(msg)
        return self


class Stated(_Record):
    """A derived number as the claim itself states it."""

    low: Positive
    high: Positive
    """Equal to ``low`` for a single number, which is then taken as rounded to its last digit."""
    digits: Annotated[int, Field(strict=True, ge=0, le=9)] = 0
    """Decimals that a single number was rounded to."""

    @model_validator(mode="after")
    def _consistent(self) -> "Stated":
        if not self.low <= self.high:
            msg = f"the range [{self.low:g}, {self.high:g}] is empty; write the smaller end first"
            raise ValueError(msg)
        return self


class System(_Record):
    """One machine, or several that serve together."""

    name: Name
    gpu: Name
    gpus: Annotated[int, Field(strict=True, gt=0, le=10**6)]
    setup: Text | None = None
    """Parallelism and interconnect, in words."""
    figures: dict[str, Figure]
    stated: dict[str, Stated] = Field(default_factory=dict)
    """Derived numbers that the claim states, by the name of ``Derived``."""

    @model_validator(mode="after")
    def _consistent(self) -> "System":
        unknown = sorted(set(self.figures) - set(FIGURES))
        if unknown:
            msg = f"no figure is called {', '.join(unknown)}; known: {', '.join(FIGURES)}"
            raise ValueError(msg)
        if not self.figures:
            msg = f"system '{self.name}' claims no figure; known: {', '.join(FIGURES)}"
            raise ValueError(msg)
        return self


class Claims(_Record):
    """The whole file."""

    schema_version: Literal[1]
    title: Text
    source: Text | None = None
    """Where the figures were published."""
    conditions: Annotated[dict[str, str], Field(min_length=1)]
    """What was measured how: model, engine, lengths of inputs and outputs, date."""
    baseline: Name
    """The system that ratios are taken to."""
    candidate: Name | None = None
    """The system that the accuracy verdict is meant to stand beside."""
    caveats: tuple[Text, ...] = ()
    systems: Annotated[tuple[System, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _consistent(self) -> "Claims":
        names = [system.name for system in self.systems]
        if len(set(names)) < len(names):
            msg = f"two systems have one name: {', '.join(names)}"
            raise ValueError(msg)
        for role, name in (("baseline", self.baseline), ("candidate", self.candidate)):
            if name is not None and name not in names:
                msg = f"{role} '{name}' is none of the systems {', '.join(names)}"
                raise ValueError(msg)
        return self


class Derived(_Record):
    """A number that follows from figures."""

    system: str
    name: str
    value: float
    unit: str
    formula: str
    """From which figures, in words."""
    stated: str | None = None
    """What the claim says instead of, or beside, the computed number."""
    agrees: bool | None = None
    """Whether what is stated is the computed number, rounded; None: nothing is stated."""


class ClaimsReport(_Record):
    """Claims as they stand beside a verdict."""

    path: str
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    claims: Claims
    evidence: dict[str, str]
    """``system/figure`` to what its evidence is worth, in words."""
    derived: tuple[Derived, ...]
    notes: tuple[str, ...] = ()
    """What a reader must know before setting the figures beside the verdict."""
