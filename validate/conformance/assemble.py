"""From what a sweep gave to the record of a verdict; nothing is run here."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import validate
from validate.capture.provenance import collect_provenance
from validate.conformance.guard import GENERAL
from validate.conformance.pattern import Point, find_patterns
from validate.conformance.records import Breach, Case, Implementation, Operation, Settings
from validate.conformance.shrink import size_of
from validate.schema.conformance import (
    BreachReport,
    ConformanceResult,
    PointReport,
    SmallestReport,
    UnrunReport,
)
from validate.schema.verdict import Outcome

__all__ = ["Sweep", "report_breach", "result_of"]


@dataclass(slots=True, kw_only=True)
class Sweep:
    """What the points of a sweep gave."""

    points: list[Point] = field(default_factory=list)
    smallest: dict[str, tuple[Case, tuple[Breach, ...]]] = field(default_factory=dict)
    """Broken clause to the failing case with the smallest input, and what it breaks of it."""
    stopped: str | None = None
    """Why points are missing; None when every point ran."""

    @property
    def failed(self) -> list[Point]:
        """Points that broke a clause."""
        return [point for point in self.points if point.breaches]

    def add(self, case: Case, breaches: tuple[Breach, ...]) -> None:
        """One more point that ran."""
        self.points.append(Point(id=case.id, axes=dict(case.axes), breaches=breaches))
        for clause in dict.fromkeys(breach.clause for breach in breaches):
            known = self.smallest.get(clause)
            if known is None or size_of(case) < size_of(known[0]):
                own = tuple(breach for breach in breaches if breach.clause == clause)
                self.smallest[clause] = (case, own)

    @property
    def least(self) -> tuple[Case, tuple[Breach, ...]] | None:
        """The smallest failing case of the clause that most points break."""
        if not self.smallest:
            return None
        most = max(self.smallest, key=self.count)
        return self.smallest[most]

    def count(self, clause: str) -> int:
        """How many points break a clause."""
        return sum(any(b.clause == clause for b in point.breaches) for point in self.points)


def report_breach(breach: Breach) -> BreachReport:
    """A breach as it is stored."""
    fields = {f.name: getattr(breach, f.name) for f in dataclasses.fields(breach)}
    ratio = breach.ratio
    fields["ratio"] = None if ratio is None or not math.isfinite(ratio) else float(ratio)
    fields["at"] = {name: int(value) for name, value in breach.at.items()}
    fields["wrong"] = {n: tuple(int(v) for v in values) for n, values in breach.wrong.items()}
    return BreachReport(**fields)


def result_of(
    operation: Operation,
    record: Implementation,
    done: Sweep,
    *,
    settings: Settings,
    device: str,
    effort: Any,
    isolated: bool,
    time_limit: float,
    why: str | None,
    smallest: SmallestReport | None,
    seconds: float,
    command: str | None,
) -> ConformanceResult:
    """The record of a sweep: PASS, FAIL, or INCONCLUSIVE when nothing could run (``why``)."""
    failed = done.failed
    known = (*operation.contract.clauses, *GENERAL)
    clauses = {clause: done.count(clause) for clause in known}
    verdict, reason = _verdict(done, why, clauses, one=effort == "case")
    return ConformanceResult(
        tool_version=validate.__version__,
        op=operation.contract.op,
        title=operation.contract.title,
        implementation=record.name,
        emulates=record.emulates,
        settings=dict(settings),
        effort=effort,
        device=device,
        provenance=collect_provenance(device=device if why is None else "cpu"),
        isolated=isolated,
        time_limit=time_limit,
        verdict=verdict,
        reason=reason,
        points=len(done.points),
        points_failed=len(failed),
        clauses=clauses,
        failed=tuple(
            PointReport(
                id=point.id,
                axes=dict(point.axes),
                breaches=tuple(report_breach(breach) for breach in point.breaches),
            )
            for point in failed
        ),
        pattern=find_patterns(done.points),
        smallest=smallest,
        unrun=_unrun(record, done, device, why),
        seconds=seconds,
        rerun=command,
    )


def _verdict(
    done: Sweep, why: str | None, clauses: Mapping[str, int], *, one: bool
) -> tuple[Any, str | None]:
    if why is not None:
        return Outcome.INCONCLUSIVE, f"nothing ran: {why}"
    if not done.failed:
        return Outcome.PASS, None
    broken = ", ".join(clause for clause, count in clauses.items() if count)
    if one:
        return Outcome.FAIL, f"it breaks: {broken}"
    return Outcome.FAIL, f"{len(done.failed)} of {len(done.points)} points break: {broken}"


def _unrun(
    record: Implementation, done: Sweep, device: str, why: str | None
) -> tuple[UnrunReport, ...]:
    found = [] if why is None else [UnrunReport(what=f"{record.name} on {device}", why=why)]
    if done.stopped is not None:
        found.append(UnrunReport(what="the rest of the sweep", why=done.stopped))
    found += [
        UnrunReport(what=f"{record.name} on {other}", why="not asked for (--device)")
        for other in record.devices
        if other != device
    ]
    found.append(UnrunReport(what=f"{record.name} on ROCm", why="no ROCm device was here"))
    return tuple(found)
