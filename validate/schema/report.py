"""``report.json``: strict JSON without NaN; an undefined value is null with ``why_undefined``."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from validate.schema.claims import ClaimsReport
from validate.schema.explained import Explained
from validate.schema.manifest import Evidence, Provenance
from validate.schema.selftest import SelftestSummary
from validate.schema.series import Series, WorstCase
from validate.schema.verdict import EXIT_CODES, GRAVITY, WAIVABLE, GateKind, Outcome

__all__ = [
    "DeviationReport",
    "DeviationSize",
    "GateReport",
    "IntervalReport",
    "LimitChange",
    "LimitReport",
    "MeasurementReport",
    "NoiseReport",
    "OtherSide",
    "Report",
    "SideReport",
    "SinceGolden",
    "SuiteReport",
    "WorstReport",
]

Number = Annotated[float, Field(allow_inf_nan=False)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class IntervalReport(_Record):
    """Two one-sided confidence limits, each with its level."""

    low: Number | None
    """Null where the data cannot give one."""
    low_level: Number
    high: Number | None
    """Null where the data cannot give one."""
    high_level: Number
    method: str


class WorstReport(_Record):
    """Where the measured quantity is largest."""

    prompt: str | None = None
    position: int | None = None
    place: str | None = None
    value: Number | None = None
    detail: str | None = None


class MeasurementReport(_Record):
    """What a metric measured."""

    metric: str
    value: Number | None
    """Null exactly when ``why_undefined`` says why."""
    unit: str
    n: int
    n_of: str
    why_undefined: str | None = None
    interval: IntervalReport | None = None
    worst: WorstReport | None = None
    worst_value: Number | None = None
    pattern: str | None = None
    """Structure found in the error, e.g. ``heads 3,7,11``."""
    detects: Number | None = None
    """Smallest effect that would have been rejected with the suite's power; of p-values alone, and
    null where no effect would."""
    breakdown: dict[str, Number | None] = Field(default_factory=dict)
    """Companions, never gated; null where one is not finite."""
    n_needed: int | None = None


class LimitReport(_Record):
    """The number a gate compares with, and where it comes from."""

    value: Number
    source: Literal["measured", "derived", "published"]
    pointer: str
    """File and key."""
    basis: str | None = None
    worst: Number | None = None
    clean: Number | None = None
    fault: Number | None = None
    fault_id: str | None = None
    roundoff: tuple[Number, int] | None = None
    """``scale * unit_roundoff ** power`` stands in for a floor below it."""


class LimitChange(_Record):
    """One number of the suite or the limits file that is not what the golden report holds."""

    name: str
    """Table of the limits file, or gate or key of the suite."""
    change: Literal["loosened", "tightened", "changed"]
    """``changed``: which of the two cannot be told from the numbers."""
    before: str
    after: str
    where: str
    """File and line."""


class SinceGolden(_Record):
    """The limits in force against those of the suite's golden report."""

    path: str
    """The golden report, below the project's root."""
    found: bool
    """False: there is none, so nobody can tell whether a limit was loosened."""
    limits_digest: str | None = None
    """Of the golden report."""
    changes: tuple[LimitChange, ...] = ()


class NoiseReport(_Record):
    """The same measurement between ref and its repeats."""

    value: Number | None
    """Upper confidence limit; null exactly when ``why_undefined`` says why."""
    repeats: int
    values: tuple[Number, ...] = ()
    derived: bool = False
    """True when repeats measured 0 and unit roundoff stands in."""
    why_undefined: str | None = None


class GateReport(_Record):
    """One gate's verdict and all that it was made from."""

    name: str
    outcome: Outcome
    kind: GateKind
    alpha_share: Number
    measurement: MeasurementReport | None
    """Null when nothing was measured; ``reason`` says why."""
    judged: Number | None = None
    """What was held against ``limit.value``: the value, or value over floor (``noise_ratio``)."""
    limit: LimitReport | None
    noise: NoiseReport | None
    reason: str | None
    """Why it is not PASS; null on PASS."""
    rerun: str
    deviation: str | None = None
    """Declared deviation whose budget ``limit`` is."""
    waiver: str | None = None
    """The waiver that keeps ``outcome`` out of the verdict, in words; then it shows as WAIVED."""

    @model_validator(mode="after")
    def _consistent(self) -> "GateReport":
        if (self.outcome is Outcome.PASS) != (self.reason is None):
            has = "no reason" if self.reason is None else "a reason why it is not PASS"
            msg = f"gate {self.name} is {self.outcome} and has {has}"
            raise ValueError(msg)
        if self.outcome is Outcome.PASS and (
            self.measurement is None or self.measurement.value is None
        ):
            msg = f"gate {self.name} is PASS and nothing was measured"
            raise ValueError(msg)
        if self.waiver is not None and (
            self.outcome not in WAIVABLE or self.name.startswith("yardstick.")
        ):
            msg = f"gate {self.name} is {self.outcome} and waived, which no waiver can do"
            raise ValueError(msg)
        return self


class OtherSide(_Record):
    """A capture that took part: oracle or repeat."""

    target: str
    digest: str
    evidence: Evidence
    provenance: Provenance


class SideReport(OtherSide):
    """ref or cand."""

    reused: bool
    """True when a capture made earlier for this name was taken as it is."""
    label: str
    """The target as the user wrote it."""
    path: str | None = None
    """Folder of the capture."""
    dtype: str
    weights: str
    fault: str | None = None
    """Planted fault, if any."""
    ran: dict[str, int] = Field(default_factory=dict)
    """Path proof: branches and kernels with counts."""
    timing: dict[str, Number] = Field(default_factory=dict)
    """Timing of the capture, by name; absent from the JSON where empty."""


class DeviationSize(_Record):
    """A declared deviation, as one gate measured it."""

    gate: str
    value: Number | None
    unit: str
    limit: Number | None
    outcome: Outcome


class DeviationReport(_Record):
    """A difference that cand declares, with its measured size."""

    id: str
    title: str
    expected: str
    sizes: tuple[DeviationSize, ...] = ()
    """Gates that its budget judged; empty: it has none, so ordinary limits held."""


class SuiteReport(_Record):
    """Which suite judged, at which risks."""

    name: str
    digest: str
    alpha: Number
    power: Number
    """1 - beta: chance that a candidate at the limit is not passed."""
    path: str
    limits: str
    limits_digest: str
    evidence: tuple[Evidence, ...] = ()
    """Accepted for ref and cand."""


class Report(_Record):
    """The whole report."""

    schema_version: Literal[1] = 1
    tool_version: str
    verdict: Outcome
    suite: SuiteReport
    ref: SideReport
    cand: SideReport
    oracle: OtherSide | None = None
    repeats: tuple[OtherSide, ...] = ()
    gates: tuple[GateReport, ...]
    deviations: tuple[DeviationReport, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader must know before the numbers, e.g. that cand is ref itself."""
    not_tested: tuple[str, ...] = ()
    """What this run says nothing about."""
    limits: dict[str, LimitReport] = Field(default_factory=dict)
    """The whole limits file in force, by table."""
    since_golden: SinceGolden | None = None
    """What was loosened or tightened since the golden report."""
    selftest: SelftestSummary | None = None
    """What the selftest of the tool found, planted fault by planted fault; null: none was run."""
    series: tuple[Series, ...] = ()
    """What plots are drawn from; absent from the JSON where empty."""
    worst_cases: tuple[WorstCase, ...] = ()
    """The rows of logits that gates point at; absent from the JSON where empty."""
    prompts: tuple[str, ...] = ()
    """The prompts that were asked for; empty, and absent from the JSON: all."""
    blocked: tuple[str, ...] = ()
    """Why nothing could be judged, as known before any capture was paired, e.g. a stale golden;
    absent from the JSON where empty."""
    claims: ClaimsReport | None = None
    """Claimed figures of speed and cost; absent from the JSON where there are none."""
    explained: Explained | None = None
    """What ``--explain`` found of one gate; absent from the JSON where it was not asked for."""

    @model_validator(mode="after")
    def _follows(self) -> "Report":
        """The verdict is the gravest of the gates that count; each gate is there once."""
        names = [gate.name for gate in self.gates]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            msg = f"gate listed twice: {', '.join(twice)}"
            raise ValueError(msg)
        counted = [gate for gate in self.gates if gate.waiver is None]
        if not counted:
            if self.verdict is Outcome.INCOMPARABLE and not self.gates:
                return self
            what = "only waived gates" if self.gates else "no gate at all"
            msg = f"verdict {self.verdict} does not follow from {what}: nothing was judged"
            raise ValueError(msg)
        gravest = min(counted, key=lambda gate: GRAVITY.index(gate.outcome))
        if self.verdict is not gravest.outcome:
            msg = (
                f"verdict {self.verdict} does not follow from gate {gravest.name} {gravest.outcome}"
            )
            raise ValueError(msg)
        return self

    @property
    def exit_code(self) -> int:
        """Exit code of ``verdict``."""
        return EXIT_CODES[self.verdict]
