"""TOML files in, checked records out, with the line of whatever is wrong."""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from validate.errors import SuiteError
from validate.metrics import METRICS
from validate.schema.prompts import Prompt
from validate.schema.suite import (
    DTYPES,
    EVALS_YARDSTICK,
    SETTINGS,
    YARDSTICK,
    CleanRule,
    GateSpec,
    LimitEntry,
    Limits,
    Suite,
    Waiver,
)
from validate.schema.verdict import Limit
from validate.suite.toml import TomlText, content_of, label_of, problem_of, read_toml
from validate.suite.wording import listed, near

__all__ = [
    "dump_limits",
    "limits_digest",
    "load_limits",
    "load_prompts",
    "load_rules",
    "load_suite",
]

Record = TypeVar("Record", bound=BaseModel)

SMALLEST_RISK = 1e-9
"""Least alpha and beta. 1 - 1e-9 is told from 1 by every method; from about 1e-16 on it is not,
and no number of prompts that anybody captures decides anything at such a risk."""


def load_suite(path: Path, *, known: Collection[str] | None = None) -> Suite:
    """Read and check a suite.

    Args:
        path: The TOML file.
        known: Names of all metrics; None: those of this package.

    Raises:
        SuiteError: The file is missing, no TOML, or says something unknown; the
            message has the line, the nearest match and all that is known.
    """
    names = (*METRICS, *YARDSTICK) if known is None else (*known, *YARDSTICK)
    text, raw = read_toml(path)
    if "path" in raw:
        raise SuiteError(text.at(text.line(r"^\s*path\b"), "unknown key 'path'"))
    gates = raw.get("gates")
    if not isinstance(gates, list) or not gates:
        problem = text.at(text.line(r"gates"), "the suite lists no gates, so it could only pass")
        raise SuiteError(problem)
    try:
        suite = Suite.model_validate({**raw, "path": text.label})
    except ValidationError as error:
        told = [_suite_problem(text, raw, item) for item in error.errors()]
        raise SuiteError(listed(told)) from error
    told = [
        text.at(_gate_line(text, place), f"gate '{gate.name}' names no metric{near(name, names)}")
        for place, gate in enumerate(suite.gates)
        if (name := gate.measures) not in names
    ]
    told += [text.at(1, problem) for problem in _yardstick_problems(suite)]
    told = [*_risk_problems(text, suite), *told]
    if told:
        here = ", ".join(sorted(names))
        msg = f"{listed(told)}\n  known here: {here}  (all: validate list metrics)"
        raise SuiteError(msg)
    return suite


def _risk_problems(text: TomlText, suite: Suite) -> list[str]:
    """Risks so small that their confidence level is no number below 1."""
    return [
        text.at(
            text.line(rf"^\s*{name}\b"),
            f"{name} = {value:g} is below {SMALLEST_RISK:g}: its confidence level could not be told "
            "from 1, so nothing would ever be decided",
        )
        for name, value in (("alpha", suite.alpha), ("beta", suite.beta))
        if not value >= SMALLEST_RISK
    ]


def _yardstick_problems(suite: Suite) -> list[str]:
    """Every yardstick gate must be there, in the form that ``run`` knows how to measure."""
    found = {gate.name: gate for gate in suite.gates if gate.area == "yardstick"}
    foreign = suite.evals_only and "unproven" in suite.evidence
    needed = EVALS_YARDSTICK if foreign else YARDSTICK
    told = [f"the suite lacks the gate '{name}'" for name in needed if name not in found]
    told += [
        f"gate '{name}' is no yardstick gate{near(name, YARDSTICK)}"
        for name in found
        if name not in YARDSTICK
    ]
    told += [
        f"gate '{name}' must be of kind 'exact' with equals = 0"
        for name in YARDSTICK[:3]
        if name in found and (found[name].kind != "exact" or found[name].equals != 0)
    ]
    error = found.get("yardstick.ref_error")
    if error is not None and error.metric is None:
        told.append("gate 'yardstick.ref_error' needs a metric, measured between oracle and ref")
    return told


def load_limits(path: Path, *, known: Collection[str] | None = None) -> Limits:
    """Read and check a limits file.

    Args:
        path: The TOML file, tables keyed ``[metric.dtype]``, ``[near_tie.dtype]``,
            ``[route_gap.dtype]`` and ``[deviation.ID.metric.dtype]``.
        known: Names of all metrics; None: those of this package.

    Raises:
        SuiteError: The file is missing or no TOML, a number is NaN, infinite or
            negative, a limit does not lie strictly between clean and fault, a
            measured one has no clean, a budget of a deviation is below the ordinary limit, or a metric or dtype is unknown.
    """
    names = _limit_names(known)
    found, lines = _load_tables(path, LimitEntry, lambda key: _check_limit_key(key, names))
    label = label_of(path)
    told = [
        f"{label}:{lines[key]}: {problem}"
        for key, entry in found.items()
        for problem in (_below_base(key, entry, found), _unfounded(key, entry))
        if problem is not None
    ]
    if told:
        raise SuiteError(listed(told))
    entries = {key: _limit(f"{label}#{key}", entry) for key, entry in found.items()}
    return Limits(path=label, entries=entries, lines=lines)


def _unfounded(key: str, entry: LimitEntry) -> str | None:
    """Why a measured limit rests on nothing; None when it does, or was not measured."""
    if entry.source != "measured" or entry.clean is not None:
        return None
    return (
        f"[{key}] is measured and has no 'clean': say what clean pairs measured, or give the "
        "source as derived or published"
    )


def _below_base(key: str, budget: LimitEntry, found: Mapping[str, LimitEntry]) -> str | None:
    """Why a deviation's budget makes no sense beside the ordinary limit; None when it does."""
    base_key = key.split(".", 2)[-1] if key.startswith("deviation.") else key
    base = found.get(base_key)
    if base is None or base is budget:
        return None
    for name, own, ordinary in (
        ("value", budget.value, base.value),
        ("worst", budget.worst, base.worst),
    ):
        if ordinary is not None and own is not None and own < ordinary:
            return (
                f"[{key}] {name} {own:g} is below the ordinary {ordinary:g} of [{base_key}]: a "
                "budget allows for a deviation; raise it, or remove the table so that the ordinary "
                "limit holds"
            )
    return None


def load_rules(path: Path, *, known: Collection[str] | None = None) -> dict[str, CleanRule]:
    """Read the rules by which limits follow from reference captures, by key without dtype.

    Raises:
        SuiteError: As for ``load_limits``.
    """
    names = _limit_names(known)
    found, _ = _load_tables(path, CleanRule, lambda key: _check_metric(key, key, names))
    return found


def _limit_names(known: Collection[str] | None) -> tuple[str, ...]:
    return (*(METRICS if known is None else known), *YARDSTICK, *SETTINGS)


def _load_tables(
    path: Path, record: type[Record], check: Callable[[str], None]
) -> tuple[dict[str, Record], dict[str, int]]:
    text, raw = read_toml(path)
    if raw.pop("schema_version", None) != 1:
        raise SuiteError(text.at(text.line(r"^\s*schema_version"), "schema_version must be 1"))
    found: dict[str, Record] = {}
    lines: dict[str, int] = {}
    told: list[str] = []
    for key, table in _tables(raw):
        lines[key] = text.line(rf"^\s*\[{re.escape(key)}\]")
        try:
            check(key)
            found[key] = record.model_validate(table)
        except ValidationError as error:
            problems = [f"[{key}] {problem_of(item, record)}" for item in error.errors()]
            told += [text.at(lines[key], problem) for problem in problems]
        except SuiteError as error:
            told.append(text.at(lines[key], str(error)))
    if told:
        raise SuiteError(listed(told))
    return found, lines


def load_prompts(path: Path) -> tuple[Prompt, ...]:
    """Read a prompt set: JSON lines, one prompt each.

    Raises:
        SuiteError: The file is missing or empty, a line is no prompt, or an id
            stands twice; the message has the line.
    """
    prompts: list[Prompt] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(content_of(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            prompt = Prompt.model_validate_json(line)
        except ValidationError as error:
            problem = problem_of(error.errors()[0], Prompt)
            msg = f"{path}:{number}: no prompt: {problem}"
            raise SuiteError(msg) from error
        if prompt.id in seen:
            msg = f"{path}:{number}: prompt '{prompt.id}' stands on line {seen[prompt.id]} already"
            raise SuiteError(msg)
        seen[prompt.id] = number
        prompts.append(prompt)
    if not prompts:
        msg = f"{path}: the prompt set is empty, so nothing could be compared"
        raise SuiteError(msg)
    return tuple(prompts)


def limits_digest(limits: Limits) -> str:
    """SHA-256 of every number and origin of a limits file."""
    told = {
        key: [limit.value, limit.worst, limit.source, limit.roundoff]
        for key, limit in limits.entries.items()
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True, allow_nan=False).encode()).hexdigest()


def dump_limits(limits: Limits, *, heading: str) -> str:
    """The limits as TOML text that ``load_limits`` reads back as equal.

    Args:
        limits: What to write, in this order.
        heading: Comment lines at the top, without the leading ``#``.
    """
    parts = ["".join(f"# {line}\n" for line in heading.splitlines()), "schema_version = 1\n"]
    for key, limit in limits.entries.items():
        fields = {
            "value": limit.value,
            "worst": limit.worst,
            "source": limit.source,
            "pointer": limit.basis,
            "clean": limit.clean,
            "fault": limit.fault,
            "fault_id": limit.fault_id,
            "roundoff": None if limit.roundoff is None else list(limit.roundoff),
        }
        told = (
            f"{name} = {json.dumps(value)}\n" for name, value in fields.items() if value is not None
        )
        parts.append(f"\n[{key}]\n{''.join(told)}")
    return "".join(parts)


def _limit(pointer: str, entry: LimitEntry) -> Limit:
    return Limit(
        value=entry.value,
        source=entry.source,
        pointer=pointer,
        worst=entry.worst,
        clean=entry.clean,
        fault=entry.fault,
        fault_id=entry.fault_id,
        basis=entry.pointer,
        roundoff=entry.roundoff,
    )


def _gate_line(text: TomlText, place: int) -> int:
    start = text.line(r"^\s*(\[\[\s*gates\s*\]\]|gates\s*=)")
    return text.line(r"(^|[{,\s])name\s*=", after=start - 1, nth=place)


def _suite_problem(text: TomlText, raw: Mapping[str, Any], item: ErrorDetails) -> str:
    where = item["loc"]
    if len(where) > 1 and where[0] == "gates" and isinstance(where[1], int):
        gate = raw["gates"][where[1]]
        name = gate.get("name", f"number {where[1] + 1}") if isinstance(gate, dict) else where[1]
        problem = problem_of(item, GateSpec)
        return text.at(_gate_line(text, where[1]), f"gate '{name}': {problem}")
    if len(where) > 1 and where[0] == "waivers" and isinstance(where[1], int):
        line = text.line(r"^\s*\[\[\s*waivers\s*\]\]", nth=where[1])
        return text.at(line, f"waiver: {problem_of(item, Waiver)}")
    line = text.line(rf"^\s*\[*{re.escape(str(where[0]))}\b") if where else 1
    return text.at(line, problem_of(item, Suite))


def _tables(raw: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in raw.items():
        name = f"{prefix}{key}"
        inner = (
            isinstance(value, dict) and value and all(isinstance(v, dict) for v in value.values())
        )
        if inner:
            yield from _tables(value, f"{name}.")
        else:
            yield name, value


def _check_limit_key(key: str, names: Collection[str]) -> None:
    metric, _, dtype = key.rpartition(".")
    if metric.startswith("deviation."):
        metric = metric.split(".", 2)[-1]
    if dtype not in DTYPES:
        msg = f"[{key}] dtype '{dtype}' is unknown{near(dtype, DTYPES)}"
        raise SuiteError(msg)
    _check_metric(key, metric, names)


def _check_metric(key: str, metric: str, names: Collection[str]) -> None:
    if metric not in names:
        msg = f"[{key}] names no metric{near(metric, names)}"
        raise SuiteError(msg)
