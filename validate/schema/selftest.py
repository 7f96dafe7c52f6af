"""What a selftest reports: every planted fault and every control, and what each gate said of it."""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from validate.schema.conformance import PlantedReport
from validate.schema.fault import Expect, Where
from validate.schema.verdict import GRAVITY, Outcome

__all__ = [
    "PAIRING",
    "CaseReport",
    "CleanReport",
    "GateFinding",
    "Said",
    "Selftest",
    "SelftestSummary",
    "contradiction",
    "said_of",
    "table_contradiction",
]

PAIRING = "pairing"
"""What catches a case whose captures do not match."""
CAUGHT = (Outcome.FAIL, Outcome.INCOMPARABLE)

Number = Annotated[float, Field(allow_inf_nan=False)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class GateFinding(_Record):
    """One gate on one planted fault or control."""

    gate: str
    outcome: Outcome
    value: Number | None
    """What was measured; null where the measurement is undefined."""
    reason: str | None
    """Why it is not PASS."""
    needed: int | None = None
    """Of a ``lossless`` gate that is INCONCLUSIVE: units at which it would see its stated effect."""


class CaseReport(_Record):
    """One planted fault at one severity, or one control."""

    id: str
    kind: Literal["fault", "control"]
    title: str
    source: str
    cand: str
    """The target that was judged."""
    ref: str
    prompts: int
    severity: str | None = None
    """Null where the record has one size only."""
    expect: Expect
    expected_gates: tuple[str, ...] = ()
    """Gates of this area that the record names."""
    effect: dict[str, Number] = Field(default_factory=dict)
    """Gate to the fault's own size in the gate's unit, where the gate was asked to see that
    instead of the suite's effect."""
    verdict: Outcome
    """Gravest outcome of the area's gates."""
    caught_by: tuple[str, ...] = ()
    """Gates that FAIL or are INCOMPARABLE."""
    missed_by: tuple[str, ...] = ()
    """Gates that the record names and that did not reach its outcome."""
    needed: int | None = None
    """Units that the INCONCLUSIVE gates ask for, the largest."""
    gates: tuple[GateFinding, ...]
    finding: str | None
    """What the gravest gate said."""
    held: bool
    """A fault reached the outcome of its record; a control passed every gate."""
    reused: bool = False
    """Taken from an earlier selftest of the same sources, captures, suite and limits."""
    stage: str = "speculative"
    """Captures it was judged on: of drawn streams, of everything else, or results of evals."""
    where: Where = "cand"
    """Code or data that is made wrong."""
    leading: bool = True
    """At the severity of its record; what smaller ones say holds whatever it is."""
    seconds: Number


class Said(NamedTuple):
    """What follows from the gates of a case and its record, and from nothing else."""

    verdict: Outcome
    caught_by: tuple[str, ...]
    missed_by: tuple[str, ...]
    needed: int | None
    held: bool


def said_of(
    gates: Sequence[GateFinding],
    *,
    is_fault: bool,
    expect: Expect,
    expected_gates: Sequence[str],
    leading: bool,
) -> Said:
    """What the outcomes of gates say of a case, held against its record.

    A control holds when every gate PASSes. A fault holds when the gravest outcome is that of its
    record and every gate that the record names reached it; where the record expects INCONCLUSIVE,
    being caught is no less. Where pairing refuses, every gate would have been INCOMPARABLE, for
    nothing can be judged. Smaller severities than the record's hold whatever is said of them.

    Raises:
        ValueError: There is no gate, or one stands there twice.
    """
    outcome = {gate.gate: gate.outcome for gate in gates}
    if not gates or len(outcome) != len(gates):
        msg = f"it holds {len(gates)} gates of {len(outcome)} names"
        raise ValueError(msg)
    verdict = next(one for one in GRAVITY if one in outcome.values())
    refused = outcome == {PAIRING: Outcome.INCOMPARABLE} and expect == Outcome.INCOMPARABLE.value
    reached = {name for name, one in outcome.items() if one.value in (expect, Outcome.FAIL.value)}
    missed = tuple(gate for gate in expected_gates if gate not in reached and not refused)
    needed = [gate.needed for gate in gates if gate.needed is not None]
    if not is_fault:
        held = verdict is Outcome.PASS
    elif expect == Outcome.INCONCLUSIVE.value:
        held = verdict is Outcome.FAIL or (verdict is Outcome.INCONCLUSIVE and bool(needed))
    else:
        held = verdict.value == expect and not missed
    return Said(
        verdict=verdict,
        caught_by=tuple(gate.gate for gate in gates if gate.outcome in CAUGHT),
        missed_by=missed,
        needed=max(needed, default=None),
        held=held or not leading,
    )


def contradiction(row: CaseReport) -> str | None:
    """Where a row says something else than its own gates do; None where it does not."""
    try:
        said = said_of(
            row.gates,
            is_fault=row.kind == "fault",
            expect=row.expect,
            expected_gates=row.expected_gates,
            leading=row.leading,
        )
    except ValueError as error:
        return str(error)
    for name, value in said._asdict().items():
        told = getattr(row, name)
        if told != value:
            return f"it says {name} {_plain(told)}, its gates and its record say {_plain(value)}"
    return None


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "(none)"
    return value.value if isinstance(value, Outcome) else str(value)


class CleanReport(_Record):
    """Clean candidates, each run another way, and how many of them a gate alarmed on."""

    runs: int
    alarms: int
    """Candidates with a gate that is FAIL or INCOMPARABLE."""
    allowed: int
    """The 99 % quantile of alarms at a rate of 1 %."""
    open: int
    """Candidates without an alarm that a gate left INCONCLUSIVE."""
    prompts: int
    by_gate: dict[str, int] = Field(default_factory=dict)
    """Gate to the candidates it alarmed on."""
    options: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """What was varied, with the values that were taken."""
    alarmed: tuple[str, ...] = ()
    """The candidates with an alarm, and what the first gate said."""
    sources_digest: str
    date: str
    """ISO 8601, UTC."""
    seconds: Number


class SelftestSummary(_Record):
    """What a report says of the selftest of the tool that made it."""

    faults: int
    """Planted, at the severities of their records."""
    caught: int
    """Of them, by FAIL or INCOMPARABLE."""
    inconclusive: int
    """Of them, with the number of units that would do."""
    controls: int
    flagged: int
    clean: int
    """Clean candidates; 0: none were run."""
    alarms: int
    date: str
    sources_digest: str
    complete: bool
    """False: some cases were not judged."""
    stale: bool
    """The sources have changed since."""


class Selftest(_Record):
    """All planted faults and controls of one area, or of all."""

    schema_version: Literal[1] = 1
    tool_version: str
    area: str
    suite: str
    sources_digest: str
    """Of everything that could change a row."""
    date: str
    """ISO 8601, UTC."""
    rows: tuple[CaseReport, ...]
    smallest: dict[str, str] = Field(default_factory=dict)
    """Graded fault to the smallest severity at which it is caught."""
    silent: tuple[str, ...] = ()
    """Gates of the area that no planted fault made FAIL; empty when cases were picked."""
    alone: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Gate to the faults that it alone catches, at the severities at which it does."""
    redundant: tuple[str, ...] = ()
    """Gates that see faults, each of which another gate sees as well."""
    conformance: tuple[PlantedReport, ...] = ()
    """Faults and controls of operations, through the sweeps."""
    clean: CleanReport | None = None
    """Clean candidates; null where none were run."""
    left: tuple[str, ...] = ()
    """Cases that were not judged, for want of time."""
    held: bool
    """Every row held, none was left, and clean candidates alarm no more than allowed."""
    seconds: Number


def table_contradiction(table: Selftest) -> str | None:
    """Where a stored table says something else than its own rows do; None where it does not."""
    for row in table.rows:
        why = contradiction(row)
        if why is not None:
            return f"row {row.id}: {why}"
    for planted in table.conformance:
        why = planted.contradiction()
        if why is not None:
            return f"row {planted.id} in {planted.op}: {why}"
    clean = table.clean
    if clean is not None and not clean.alarms == len(clean.alarmed) <= clean.runs:
        return f"{clean.alarms} alarms in {clean.runs} clean candidates, {len(clean.alarmed)} named"
    open_rows = [row.id for row in table.rows if not row.held]
    open_rows += [planted.id for planted in table.conformance if not planted.held]
    if table.held and (open_rows or table.left):
        return f"it says that it held; {', '.join((*open_rows, *table.left)[:3])} did not"
    return None
