"""Waivers: read, refused when they are out of date or make no sense, and never more than a file says."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from validate.errors import SuiteError
from validate.schema.suite import Suite, Waiver
from validate.suite.toml import TomlText, problem_of, read_toml
from validate.suite.wording import listed, near

__all__ = ["check_waivers", "load_waivers"]


class _WaiverFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1]
    waivers: Annotated[tuple[Waiver, ...], Field(min_length=1)]


def load_waivers(path: Path) -> tuple[Waiver, ...]:
    """Read a file of ``[[waivers]]``.

    Args:
        path: The TOML file: ``schema_version = 1``, then one ``[[waivers]]`` table each.

    Raises:
        SuiteError: The file is missing, no TOML, lists no waiver, or says something
            unknown; the message has the line.
    """
    text, raw = read_toml(path)
    try:
        return _WaiverFile.model_validate(raw).waivers
    except ValidationError as error:
        told = [
            text.at(
                _line(text, item["loc"]),
                problem_of(item, Waiver if len(item["loc"]) > 1 else _WaiverFile),
            )
            for item in error.errors()
        ]
        raise SuiteError(listed(told)) from error


def check_waivers(waivers: Sequence[Waiver], *, suite: Suite, today: dt.date) -> None:
    """Refuse waivers that cannot hold, before any work starts.

    Args:
        waivers: All that were written for this suite.
        suite: Whose gates they name.
        today: The day of this run; a waiver holds through its last day.

    Raises:
        SuiteError: A waiver has expired, names no gate of the suite or one of the
            yardstick, or is written twice for the same gate and candidates; all are named.
    """
    told: list[str] = []
    seen: set[tuple[str, str]] = set()
    for waiver in waivers:
        told += _problems(waiver, suite=suite, today=today)
        if (waiver.gate, waiver.cand) in seen:
            told.append(
                f"{_name(waiver)} is written twice: contradictory or double; keep one of them"
            )
        seen.add((waiver.gate, waiver.cand))
    if told:
        raise SuiteError(listed([f"{suite.path}: {problem}" for problem in told]))


def _problems(waiver: Waiver, *, suite: Suite, today: dt.date) -> list[str]:
    told = []
    if waiver.expires < today:
        told.append(
            f"{_name(waiver)} expired on {waiver.expires} (today is {today}); "
            f"mend the cause ({waiver.issue}) or decide on it anew"
        )
    gate = suite.gate(waiver.gate)
    if gate is None:
        names = [gate.name for gate in suite.gates]
        told.append(f"{_name(waiver)} names no gate of the suite{near(waiver.gate, names)}")
    elif gate.area == "yardstick":
        told.append(
            f"{_name(waiver)}: a yardstick gate cannot be waived, for without it nothing is judged"
        )
    return told


def _name(waiver: Waiver) -> str:
    return f"the waiver of {waiver.gate} for cand '{waiver.cand}'"


def _line(text: TomlText, where: Sequence[int | str]) -> int:
    if len(where) > 1 and isinstance(where[1], int):
        return text.line(r"^\s*\[\[\s*waivers\s*\]\]", nth=where[1])
    return text.line(rf"^\s*\[*{where[0]}\b") if where else 1
