"""What was loosened or tightened since the golden report of a suite was made."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from validate.schema.report import LimitChange, LimitReport, Report, SinceGolden
from validate.schema.suite import Limits, Suite
from validate.schema.verdict import Limit

__all__ = ["golden_path", "limit_report", "since_golden"]

NONE = "none"


def golden_path(suite: str) -> str:
    """Where the golden report of the suite called ``suite`` lies, below the project's root."""
    return f"golden/reports/{suite}.json"


def since_golden(suite: Suite, limits: Limits, *, golden: Report | None) -> SinceGolden:
    """Every number that a verdict depends on, held against the golden report's.

    Whatever gates run: the whole suite and the whole limits file are compared.

    Args:
        suite: The suite in force.
        limits: The limits in force.
        golden: The golden report; None: there is none, which the report says.
    """
    path = golden_path(suite.name)
    if golden is None:
        return SinceGolden(path=path, found=False)
    changes = (*_suite(suite, golden), *_gates(suite, golden), *_entries(limits, golden))
    return SinceGolden(
        path=path,
        found=True,
        limits_digest=golden.suite.limits_digest,
        changes=tuple(sorted(changes, key=lambda one: one.change != "loosened")),
    )


def limit_report(limit: Limit) -> LimitReport:
    """A limit as reports hold it."""
    return LimitReport(**asdict(limit))


def _suite(suite: Suite, golden: Report) -> Iterator[LimitChange]:
    where = suite.path
    beta = 1 - golden.suite.power
    # 1 - (1 - beta) loses the last bits of beta
    if not abs(suite.beta - beta) < 1e-12:  # noqa: PLR2004  far below any beta that is written
        yield _moved(f"{suite.name} beta", beta, suite.beta, where)
    if suite.alpha != golden.suite.alpha:
        yield _changed(f"{suite.name} alpha", golden.suite.alpha, suite.alpha, where)
    for kind in sorted({*suite.evidence} ^ {*golden.suite.evidence}):
        known = kind in golden.suite.evidence
        before, after = (kind, NONE) if known else (NONE, kind)
        yield LimitChange(
            name=f"{suite.name} evidence",
            change="tightened" if known else "loosened",
            before=before,
            after=after,
            where=where,
        )


def _gates(suite: Suite, golden: Report) -> Iterator[LimitChange]:
    before = {gate.name: gate for gate in golden.gates}
    after = {gate.name: gate for gate in suite.gates}
    for name in before:
        if name not in after:
            yield LimitChange(
                name=f"gate {name}", change="loosened", before="gated", after=NONE, where=suite.path
            )
    for name, gate in after.items():
        old = before.get(name)
        if old is None:
            yield LimitChange(
                name=f"gate {name}",
                change="tightened",
                before=NONE,
                after="gated",
                where=suite.path,
            )
            continue
        if old.kind != gate.kind:
            yield _changed(f"gate {name} kind", old.kind, gate.kind, suite.path)
        elif gate.kind == "exact" and old.limit is not None and old.limit.value != gate.equals:
            yield _changed(f"gate {name} equals", old.limit.value, gate.equals, suite.path)


def _entries(limits: Limits, golden: Report) -> Iterator[LimitChange]:
    before: Mapping[str, LimitReport] = golden.limits
    after = {key: limit_report(limit) for key, limit in limits.entries.items()}
    for key in (*before, *(key for key in after if key not in before)):
        line = limits.lines.get(key)
        where = limits.path if line is None else f"{limits.path}:{line}"
        old, new = before.get(key), after.get(key)
        if old is None or new is None:
            yield _budget(key, old, new, where)
            continue
        if old.value != new.value:
            yield _moved(key, old.value, new.value, where)
        for part in ("worst", "roundoff"):
            yield from _part(key, part, getattr(old, part), getattr(new, part), where)


def _budget(key: str, old: LimitReport | None, new: LimitReport | None, where: str) -> LimitChange:
    """A table that came or went: a new budget of a deviation allows what was not allowed."""
    before = NONE if old is None else f"{old.value:.6g}"
    after = NONE if new is None else f"{new.value:.6g}"
    change = "changed"
    if key.startswith("deviation."):
        change = "loosened" if old is None else "tightened"
    return LimitChange.model_validate(
        {"name": key, "change": change, "before": before, "after": after, "where": where}
    )


def _part(key: str, part: str, old: object, new: object, where: str) -> Iterator[LimitChange]:
    if old == new:
        return
    name = f"{key} {part}"
    if isinstance(old, float) and isinstance(new, float):
        yield _moved(name, old, new, where)
    else:
        yield _changed(name, NONE if old is None else old, NONE if new is None else new, where)


def _moved(name: str, before: float, after: float, where: str) -> LimitChange:
    return LimitChange(
        name=name,
        change="loosened" if after > before else "tightened",
        before=f"{before:.6g}",
        after=f"{after:.6g}",
        where=where,
    )


def _changed(name: str, before: object, after: object, where: str) -> LimitChange:
    return LimitChange(
        name=name, change="changed", before=str(before), after=str(after), where=where
    )
