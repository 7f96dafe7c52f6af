"""What judging an implementation against a contract gives: ``conformance.json``."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from validate.schema.manifest import Provenance
from validate.schema.verdict import Outcome

__all__ = [
    "BreachReport",
    "ConformanceResult",
    "ConformanceSelftest",
    "PlantedReport",
    "PointReport",
    "SmallestReport",
    "UnrunReport",
]

Number = Annotated[float, Field(allow_inf_nan=False)]
AxisValue = bool | int | Number | str


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class BreachReport(_Record):
    """One broken clause at one sweep point."""

    clause: str
    what: str
    """Place, numbers, limit, in words."""
    at: dict[str, int] = Field(default_factory=dict)
    """Worst place, by axis."""
    wrong: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    """Coordinates that are wrong, by axis."""
    ratio: Number | None = None
    """Error over limit; null where there is none or it is not finite."""


class PointReport(_Record):
    """One sweep point that failed."""

    id: str
    axes: dict[str, AxisValue]
    breaches: tuple[BreachReport, ...]


class SmallestReport(_Record):
    """The smallest failing input that was found."""

    id: str
    axes: dict[str, AxisValue]
    breaches: tuple[BreachReport, ...]
    size: int
    """Bytes of its inputs."""
    tried: int
    """How many smaller inputs were run to find it."""
    folder: str | None = None
    """Where it is saved; null when nothing was to be written."""
    rerun: str | None = None
    """The command that runs it again."""


class UnrunReport(_Record):
    """Something of the sweep that was not run."""

    what: str
    why: str


class ConformanceResult(_Record):
    """The verdict on one implementation under one contract, and all that it was made from."""

    schema_version: Literal[1] = 1
    tool_version: str
    op: str
    title: str
    """The contract in one line."""
    implementation: str
    emulates: str | None = None
    """Kernel that the implementation stands in for."""
    settings: dict[str, str]
    """Every setting of the contract that it was judged under."""
    effort: Literal["quick", "full", "case"]
    """``case``: one saved input, not a sweep."""
    device: str
    provenance: Provenance
    isolated: bool
    """Whether it ran in a process of its own."""
    time_limit: Number | None
    """Seconds a call may take."""
    verdict: Literal[Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE]
    """INCONCLUSIVE when nothing ran."""
    reason: str | None
    """Why it is not PASS; null on PASS."""
    points: int
    """Sweep points that ran."""
    points_failed: int
    clauses: dict[str, int]
    """Every clause of the contract, and at how many points it was broken."""
    failed: tuple[PointReport, ...]
    """Every failed point, in the order of the sweep."""
    pattern: tuple[str, ...]
    """What failing points and wrong coordinates have in common, in words."""
    smallest: SmallestReport | None
    unrun: tuple[UnrunReport, ...]
    """What did not run, and why: devices that are not here, points after the sweep stopped."""
    seconds: Number
    rerun: str | None = None
    """The command that judges it again."""


class PlantedReport(_Record):
    """What the sweep said of one planted fault, or of one control."""

    id: str
    op: str
    kind: Literal["fault", "control"]
    title: str
    source: str
    settings: dict[str, str]
    effort: Literal["quick", "full"]
    points: int
    """Sweep points that ran."""
    points_failed: int
    clauses: dict[str, int]
    """Broken clause to the points that broke it."""
    first: str | None
    """First sweep point that failed."""
    finding: str | None
    """What it said there."""
    pattern: tuple[str, ...]
    held: bool
    """A fault was caught at one point at least; a control was flagged at none."""
    seconds: Number

    def contradiction(self) -> str | None:
        """Where the row says something else than its own points do; None where it does not."""
        failed = self.points_failed
        if not 0 <= failed <= self.points or self.points == 0:
            return f"it says {failed} of {self.points} points failed"
        if self.held != ((failed > 0) == (self.kind == "fault")):
            return f"it says held {self.held} of a {self.kind} that failed at {failed} points"
        told = {bool(self.clauses), self.first is not None, self.finding is not None}
        if told != {failed > 0}:
            return f"it says {failed} points failed; clauses, first and finding say otherwise"
        if any(not 0 < count <= failed for count in self.clauses.values()):
            return f"it says {failed} points failed; a clause counts another number"
        return None


class ConformanceSelftest(_Record):
    """Every planted operation fault and every control through the sweeps."""

    schema_version: Literal[1] = 1
    tool_version: str
    rows: tuple[PlantedReport, ...]
    unplanted: tuple[str, ...] = ()
    """Operations without a planted fault."""
    held: bool
    """Every fault was caught and no control was flagged."""
    seconds: Number
