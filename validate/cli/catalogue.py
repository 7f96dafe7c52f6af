"""The rows of ``validate list``, each kind from the room that owns it."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from validate.capture.importers import IMPORTERS
from validate.capture.project import KeyRule, Project
from validate.cli.formats import Things
from validate.cli.session import open_project
from validate.faults import FAULTS
from validate.metrics import METRICS
from validate.schema.verdict import Limit
from validate.suite import UNKEPT, alpha_shares, load_limits, load_suite

__all__ = ["keys_text", "rows_of", "table"]

Rows = list[dict[str, Any]]
WIDEST = 200
"""Columns with wider cells than this are left to JSON."""


def rows_of(things: Things, *, suite: Path | None) -> Rows:
    """What there is of one kind, ready for JSON."""
    project = open_project()
    return _LISTS[things](project, suite or project.suite)


def _targets(project: Project, _suite: Path) -> Rows:
    return [
        {
            "name": name,
            "kind": entry.kind,
            "keys": {key: _values(rule) for key, rule in entry.keys.items()},
            "path": entry.path,
            "repeat_of": entry.repeat_of,
            "title": entry.title,
        }
        for name, entry in project.targets.items()
    ]


def _values(rule: KeyRule) -> str:
    return f"<{rule}>" if isinstance(rule, str) else "|".join(rule)


def _metrics(_project: Project, _suite: Path) -> Rows:
    return [
        {"name": name, "title": (metric.__doc__ or "").strip().partition("\n")[0]}
        for name, metric in METRICS.items()
    ]


def _gates(_project: Project, suite: Path) -> Rows:
    read = load_suite(suite)
    shares = alpha_shares(read)
    return [
        {
            "name": gate.name,
            "kind": gate.kind,
            "metric": gate.measures,
            "limit": f"= {gate.equals:g}" if gate.kind == "exact" else gate.limit_key,
            "alpha_share": shares[gate.name],
        }
        for gate in read.gates
    ]


def _limits(project: Project, suite: Path) -> Rows:
    """Every number that a gate of the suite or a pair is held against, with its origin."""
    read = load_suite(suite)
    limits = load_limits(project.root / read.limits)
    demanded = {
        gate.name: Limit(
            value=gate.equals if gate.effect is None else gate.effect,
            source="derived",
            pointer=f"{read.path}#{gate.name}",
            basis="exact gate: the demanded value, by definition"
            if gate.effect is None
            else f"lossless gate: the effect that it must see, {gate.effect_of}",
        )
        for gate in read.gates
        if gate.kind in UNKEPT
    }
    every = {**limits.entries, **demanded}
    return [{"name": key} | dataclasses.asdict(limit) for key, limit in every.items()]


def _faults(_project: Project, _suite: Path) -> Rows:
    return [
        {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in dataclasses.asdict(fault).items()
        }
        for fault in FAULTS.values()
    ]


def _engines(_project: Project, _suite: Path) -> Rows:
    """Whole models, then what `conformance` can judge: ours, then foreign packages."""
    from validate.conformance.registry import FOREIGN, IMPLEMENTATIONS

    models = {
        "torch": (["reference", "rocm"], "the Kimi-K3-shaped PyTorch model of this package"),
        "oracle": (["oracle"], "the same model in float64, one operation at a time"),
    }
    rows: Rows = [
        {
            "name": name,
            "op": "whole model",
            "targets": targets,
            "title": title,
            **_NO_IMPLEMENTATION,
        }
        for name, (targets, title) in models.items()
    ]
    missing: Rows = []
    foreign: dict[tuple[str, str], str | None] = {}
    for package, (why, known) in FOREIGN.items():
        reason = why()
        foreign |= {(one.name, one.op): reason for one in known}
        if reason is not None and not known:
            missing.append(
                {"name": package, "op": "", "targets": [], "title": reason, **_NO_IMPLEMENTATION}
                | {"state": "not installed"}
            )
    rows += [
        {
            "name": one.name,
            "op": one.op,
            "targets": [],
            "title": one.title,
            "emulates": one.emulates,
            "contract": dict(one.settings),
            "devices": list(one.devices),
            "state": foreign.get((one.name, one.op)) or "unrun on ROCm",
        }
        for one in IMPLEMENTATIONS
    ]
    return rows + missing


_NO_IMPLEMENTATION: Mapping[str, Any] = {
    "emulates": None,
    "contract": {},
    "devices": [],
    "state": "",
}


def _importers(_project: Project, _suite: Path) -> Rows:
    return [{"name": name, "title": title} for name, title in IMPORTERS.items()]


_LISTS: Mapping[Things, Callable[[Project, Path], Rows]] = {
    Things.TARGETS: _targets,
    Things.METRICS: _metrics,
    Things.GATES: _gates,
    Things.LIMITS: _limits,
    Things.FAULTS: _faults,
    Things.ENGINES: _engines,
    Things.IMPORTERS: _importers,
}


def table(rows: Rows) -> str:
    """Aligned columns: a heading and one line a row, without columns that hold nothing or prose."""
    names = [name for name in rows[0] if 0 < max(len(_cell(row[name])) for row in rows) <= WIDEST]
    lines = [names, *([_cell(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(names))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def keys_text(rows: Rows) -> str:
    """The keys of each target that has some, one a line with its values."""
    return "\n".join(
        f"  {row['name']}\n" + "\n".join(f"    {key}={rule}" for key, rule in row["keys"].items())
        for row in rows
        if row["keys"]
    )


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return " ".join(f"{key}={text}" for key, text in value.items())
    if isinstance(value, list | tuple):
        return " ".join(str(item) for item in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
