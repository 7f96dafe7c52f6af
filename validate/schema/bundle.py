"""``bundle.json``: what an evidence bundle holds, with a digest of every file."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from validate.schema.verdict import Outcome

__all__ = ["Bundle", "BundleCapture", "BundleFile"]

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BundleFile(_Record):
    """One file of the bundle, other than ``bundle.json`` itself."""

    path: str
    """Inside the bundle, forward slashes."""
    bytes: Annotated[int, Field(ge=0)]
    sha256: Sha256


class BundleCapture(_Record):
    """One capture of the bundle."""

    role: Literal["ref", "cand", "oracle", "repeat"]
    folder: str
    """Inside the bundle."""
    label: str
    """How the report names it."""
    digest: Sha256
    """Of its manifest."""


class Bundle(_Record):
    """Everything that the verdict can be computed from again."""

    schema_version: Literal[1] = 1
    tool_version: str
    """What wrote the report."""
    verdict: Outcome
    """Of the report inside."""
    report_digest: Sha256
    """SHA-256 of ``report/report.json``."""
    captures: tuple[BundleCapture, ...]
    weights: bool
    """Whether ref's weights and configuration are inside, for introduced errors."""
    golden: bool
    """Whether the suite's golden report is inside."""
    waivers: bool
    """Whether a file of waivers is inside."""
    files: tuple[BundleFile, ...]
    """Every other file, by name."""
