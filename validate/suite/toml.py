"""TOML text in, plain values out, with the line of whatever is wrong."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from validate.errors import SuiteError
from validate.suite.wording import near, nearest

__all__ = ["TomlText", "content_of", "label_of", "problem_of", "read_toml"]


class TomlText(NamedTuple):
    """A TOML file as it was written, for line numbers."""

    label: str
    lines: list[str]

    def line(self, pattern: str, *, after: int = 0, nth: int = 0) -> int:
        """1-based line of the ``nth`` match below line ``after``; 1 where there is none."""
        found = [
            number
            for number, text in enumerate(self.lines, start=1)
            if number > after and not text.lstrip().startswith("#") and re.search(pattern, text)
        ]
        return found[nth] if nth < len(found) else 1

    def at(self, line: int, message: str) -> str:
        """``message`` with file and line before it."""
        return f"{self.label}:{line}: {message}"


def label_of(path: Path) -> str:
    """The file as reports and messages name it: below the working directory where it lies there."""
    here = Path.cwd()
    inside = path.is_absolute() and path.is_relative_to(here)
    return str(path.relative_to(here) if inside else path)


def content_of(path: Path) -> str:
    """Text of a file.

    Raises:
        SuiteError: It cannot be read; of a missing file the message has the nearest name
            beside it.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        others = {other.stem: str(other) for other in path.parent.glob(f"*{path.suffix}")}
        meant = nearest(path.stem, others)
        hint = "" if meant is None else f"; did you mean '{others[meant]}'?"
        msg = f"{path}: cannot be read ({error.strerror}){hint}"
        raise SuiteError(msg) from error
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else f"it is no UTF-8 text: {error}"
        msg = f"{path}: cannot be read ({why})"
        raise SuiteError(msg) from error


def read_toml(path: Path) -> tuple[TomlText, dict[str, Any]]:
    """A TOML file as it was written and as values.

    Raises:
        SuiteError: It cannot be read or is no TOML.
    """
    content = content_of(path)
    try:
        values = tomllib.loads(content)
    except (ValueError, RecursionError) as error:  # also of 5,000 digits, or nested too deep
        place = re.search(r"at line (\d+)", str(error))
        line = int(place.group(1)) if place else len(content.splitlines())
        msg = f"{label_of(path)}:{line}: not valid TOML: {error}"
        raise SuiteError(msg) from error
    text = TomlText(label_of(path), content.splitlines())
    for key, value in _integers("", values):
        if not -(2**63) <= value < 2**63:
            msg = text.at(
                text.line(rf"^\s*{re.escape(key)}\s*="),
                f"{key} is beyond the range of int64, -2^63 to 2^63 - 1",
            )
            raise SuiteError(msg)
    return text, values


def _integers(key: str, value: object) -> Iterator[tuple[str, int]]:
    """Every whole number of a file with the key that it stands under."""
    if isinstance(value, dict):
        for name, held in value.items():
            yield from _integers(name, held)
    elif isinstance(value, list):
        for held in value:
            yield from _integers(key, held)
    elif isinstance(value, int):
        yield key, value


def problem_of(item: ErrorDetails, record: type[BaseModel]) -> str:
    """One complaint of pydantic in our words, with the nearest match of a misspelt key."""
    key = str(item["loc"][-1]) if item["loc"] else ""
    if item["type"] == "extra_forbidden":
        return f"unknown key '{key}'{near(key, record.model_fields)}"
    if item["type"] == "missing":
        return f"the key '{key}' is missing"
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "value_error":
        return message
    hint = near(
        str(item["input"]), re.findall(r"'([^']+)'", str(item.get("ctx", {}).get("expected", "")))
    )
    return f"{key} = {item['input']!r}: {message}{hint}"
