"""What moved between two reports: verdicts, measurements, limits, provenance."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from validate.gates.outcome import number
from validate.report.markdown import escape
from validate.report.visible import visible
from validate.report.wording import limit_text, shown, value_text
from validate.schema.report import GateReport, LimitReport, OtherSide, Report

__all__ = ["Moved", "diff_reports", "render_diff"]

Part = Literal["verdicts", "limits", "measurements", "provenance"]
TITLES: dict[Part, str] = {
    "verdicts": "Verdicts",
    "limits": "Limits and risks",
    "measurements": "Measurements",
    "provenance": "Provenance",
}
"""Parts of a diff, in order."""
NONE = "none"
SHORT = 12
"""Hex digits of a digest that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One thing that is not what it was."""

    part: Part
    name: str
    before: str
    after: str
    change: str = ""
    """``worse``, ``better``, ``loosened``, ``tightened``; empty where neither can be told."""


def diff_reports(old: Report, new: Report) -> tuple[Moved, ...]:
    """Everything that moved, the gravest part first; of limits the loosened ones.

    Args:
        old: The earlier report.
        new: The later one.
    """
    limits = sorted(_limits(old, new), key=lambda one: one.change != "loosened")
    return (*_verdicts(old, new), *limits, *_measurements(old, new), *_provenance(old, new))


def render_diff(old: Report, new: Report, *, style: Literal["console", "markdown", "json"]) -> str:
    """The same as text.

    Args:
        old: The earlier report.
        new: The later one.
        style: ``json`` is ``{"old", "new", "moved": [...]}``.
    """
    moved = diff_reports(old, new)
    if style == "json":
        heads = {"old": str(old.verdict), "new": str(new.verdict)}
        told = {**heads, "moved": [asdict(one) for one in moved]}
        return json.dumps(told, indent=1, allow_nan=False) + "\n"
    return "\n".join(_page(old, new, moved) if style == "markdown" else _lines(old, new, moved))


def _lines(old: Report, new: Report, moved: Iterable[Moved]) -> Iterator[str]:
    yield f"old: {_head(old)}"
    yield f"new: {_head(new)}"
    for part, title in TITLES.items():
        here = [one for one in moved if one.part == part]
        yield f"{title}: {len(here)} moved"
        for one in here:
            change = f"  {one.change.upper()}" if one.change else ""
            before, after = visible(one.before), visible(one.after)
            yield f"  {visible(one.name)}: {before} -> {after}{change}"


def _page(old: Report, new: Report, moved: Iterable[Moved]) -> Iterator[str]:
    yield f"### validate: {old.verdict} to {new.verdict}"
    yield f"\n- old: {escape(_head(old))}\n- new: {escape(_head(new))}\n"
    for part, title in TITLES.items():
        here = [one for one in moved if one.part == part]
        yield f"**{title}**: {len(here)} moved\n"
        if here:
            yield "| what | before | after | |\n|---|---|---|---|"
            for one in here:
                cells = (one.name, one.before, one.after, one.change)
                yield f"| {' | '.join(escape(visible(cell)) for cell in cells)} |"
            yield ""


def _head(report: Report) -> str:
    suite, ref, cand, version = (
        visible(text)
        for text in (
            report.suite.name,
            report.ref.label,
            report.cand.label,
            report.tool_version,
        )
    )
    return (
        f"{report.verdict}, suite {suite}, ref {ref}, cand {cand} ({report.cand.evidence}), "
        f"validate {version}"
    )


# --- verdicts and measurements --------------------------------------------------------------


def _verdicts(old: Report, new: Report) -> Iterator[Moved]:
    if old.verdict is not new.verdict:
        yield _verdict("the whole run", str(old.verdict), str(new.verdict))
    before, after = _by_name(old.gates), _by_name(new.gates)
    for name in _both(before, after):
        words = [shown(held[name]) if name in held else "not run" for held in (before, after)]
        if words[0] != words[1]:
            yield _verdict(name, words[0], words[1])


def _verdict(name: str, before: str, after: str) -> Moved:
    change = ""
    if "PASS" in (before, after):
        change = "better" if after == "PASS" else "worse"
    return Moved(part="verdicts", name=name, before=before, after=after, change=change)


def _measurements(old: Report, new: Report) -> Iterator[Moved]:
    before, after = _by_name(old.gates), _by_name(new.gates)
    for name in before:
        if name in after:
            words = [_measured(gate) for gate in (before[name], after[name])]
            if words[0] != words[1]:
                yield Moved(part="measurements", name=name, before=words[0], after=words[1])


def _measured(gate: GateReport) -> str:
    found = gate.measurement
    size = "" if found is None else f", n = {found.n} {found.n_of}"
    return f"{value_text(gate)}{size}"


# --- limits ---------------------------------------------------------------------------------


def _limits(old: Report, new: Report) -> Iterator[Moved]:
    first, second = old.suite, new.suite
    yield from _number("alpha", first.alpha, second.alpha, looser="")
    yield from _number("power", first.power, second.power, looser="below")
    for kind in sorted({*first.evidence} ^ {*second.evidence}):
        came = kind in second.evidence
        before, after = (NONE, kind) if came else (kind, NONE)
        change = "loosened" if came else "tightened"
        yield _limit("accepted evidence", before, after, change)
    for name in _both(old.limits, new.limits):
        one, two = old.limits.get(name), new.limits.get(name)
        if one is None or two is None:
            budget = name.startswith("deviation.")
            moved = ("loosened" if one is None else "tightened") if budget else ""
            yield _limit(name, _value(one), _value(two), moved)
            continue
        yield from _number(name, one.value, two.value, looser="above")
        if one.worst is not None and two.worst is not None:
            yield from _number(f"{name} worst", one.worst, two.worst, looser="above")
        for part in ("worst", "roundoff", "source", "basis"):
            was, now = getattr(one, part), getattr(two, part)
            if was != now and not (isinstance(was, float) and isinstance(now, float)):
                yield _limit(f"{name} {part}", str(was), str(now), "")
    yield from _judged_by(old, new)


def _judged_by(old: Report, new: Report) -> Iterator[Moved]:
    """Limits of gates that stand in the suite, not in the limits file; and kinds."""
    before, after = _by_name(old.gates), _by_name(new.gates)
    for name in before:
        if name not in after:
            continue
        one, two = before[name], after[name]
        if one.kind != two.kind:
            yield _limit(f"{name} kind", one.kind, two.kind, "")
        elif one.kind in ("exact", "lossless") and limit_text(one) != limit_text(two):
            yield _limit(name, limit_text(one), limit_text(two), "")
        if one.deviation != two.deviation:
            yield _limit(f"{name} budget of", one.deviation or NONE, two.deviation or NONE, "")


def _number(name: str, old: float, new: float, *, looser: str) -> Iterator[Moved]:
    if old != new:
        way = "above" if new > old else "below"
        change = "" if not looser else "loosened" if way == looser else "tightened"
        yield _limit(name, f"{old:.6g}", f"{new:.6g}", change)


def _limit(name: str, before: str, after: str, change: str) -> Moved:
    return Moved(part="limits", name=name, before=before, after=after, change=change)


def _value(limit: LimitReport | None) -> str:
    return NONE if limit is None else number(limit.value)


# --- provenance -----------------------------------------------------------------------------


def _provenance(old: Report, new: Report) -> Iterator[Moved]:
    pairs: dict[str, tuple[OtherSide | None, OtherSide | None]] = {
        "ref": (old.ref, new.ref),
        "cand": (old.cand, new.cand),
        "oracle": (old.oracle, new.oracle),
    }
    for at in range(max(len(old.repeats), len(new.repeats))):
        pairs[f"repeat {at + 1}"] = (_at(old.repeats, at), _at(new.repeats, at))
    for role, (one, two) in pairs.items():
        yield from _facts(role, _flat(one), _flat(two))
    heads = [
        {
            "tool": report.tool_version,
            "suite": report.suite.digest[:SHORT],
            "limits": report.suite.limits_digest[:SHORT],
            "deviations": ", ".join(one.id for one in report.deviations) or NONE,
        }
        for report in (old, new)
    ]
    yield from _facts("run", *heads)


def _at(held: tuple[OtherSide, ...], at: int) -> OtherSide | None:
    return held[at] if at < len(held) else None


def _flat(side: OtherSide | None) -> dict[str, str]:
    """Each fact of a capture by name; empty where there is no capture."""
    if side is None:
        return {}
    left_out = {"path", "reused", "timing"}
    return dict(_leaves("", side.model_dump(mode="json", exclude=left_out)))


def _leaves(place: str, held: Any) -> Iterator[tuple[str, str]]:
    if isinstance(held, Mapping):
        for key, inner in held.items():
            plain = key in ("provenance",)
            yield from _leaves(place if plain else f"{place} {key}".strip(), inner)
    elif held is not None:
        digest = place == "digest"
        yield place, str(held)[:SHORT] if digest else str(held)


def _facts(role: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Moved]:
    for name in _both(before, after):
        was, now = before.get(name, NONE), after.get(name, NONE)
        if was != now:
            yield Moved(part="provenance", name=f"{role} {name}", before=was, after=now)


def _both(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def _by_name(gates: Iterable[GateReport]) -> dict[str, GateReport]:
    return {gate.name: gate for gate in gates}
