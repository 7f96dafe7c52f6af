"""``report.json`` as text, its JSON Schema, and reports on disk: whole or not at all."""

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import ValidationError

from validate.errors import InputError, SuiteError
from validate.report.html import render_html
from validate.report.junit import render_junit
from validate.report.markdown import render_markdown
from validate.schema.report import Report

__all__ = [
    "RENDERERS",
    "load_report",
    "read_report",
    "render_all",
    "render_json",
    "report_schema",
    "write_reports",
]


def load_report(path: Path) -> Report | None:
    """A stored ``report.json``; None where there is no such file.

    Args:
        path: The golden report of a suite.

    Raises:
        SuiteError: It cannot be read, or is no report of this version.
    """
    if not path.exists():
        return None
    try:
        return Report.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        msg = (
            f"{path}: the golden report cannot be read ({_why(error)})\n"
            "  do next: restore it, or make it anew as golden/reports/README.md says"
        )
        raise SuiteError(msg) from error


def read_report(path: Path) -> Report:
    """A saved ``report.json``.

    Args:
        path: The file.

    Raises:
        InputError: It cannot be read, or is no report of this version.
    """
    try:
        return Report.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        msg = (
            f"{path}: no report that can be read ({_why(error)})\n"
            "  do next: name the folder that validate compare wrote, or its report.json"
        )
        raise InputError(msg) from error


def _why(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return " ".join(str(error).splitlines()[:3])
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    said = first["msg"].removeprefix("Value error, ")
    return f"{place}: {said}" if place else said


def render_json(report: Report) -> str:
    """``report.json``: strict JSON, ASCII, no NaN.

    Args:
        report: What to write.

    Raises:
        ValueError: A number is not finite; ``Report`` itself refuses those.
    """
    held = report.model_dump(mode="json")
    for holder, key in (
        (held, "series"),
        (held, "worst_cases"),
        (held, "prompts"),
        (held, "blocked"),
        (held, "claims"),
        (held, "explained"),
        (held["ref"], "timing"),
        (held["cand"], "timing"),
    ):
        if not holder[key]:
            del holder[key]
    return json.dumps(held, indent=2, allow_nan=False) + "\n"


def report_schema() -> str:
    """The JSON Schema of ``report.json``, as published in ``docs/report.schema.json``."""
    schema = Report.model_json_schema(mode="serialization")
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


RENDERERS: Mapping[str, Callable[[Report], str]] = {
    "report.json": render_json,
    "report.md": render_markdown,
    "report.html": render_html,
    "report.xml": render_junit,
}
"""Every file of a report by name; each follows from the report alone."""


def _unwatched(_what: str) -> None:
    """Progress that nobody watches."""


def render_all(report: Report, *, progress: Callable[[str], None] = _unwatched) -> dict[str, bytes]:
    """Every file of a report, by name.

    Args:
        report: What to render.
        progress: Told of each file.
    """
    made = {}
    for name, render in RENDERERS.items():
        progress(f"rendering {name}")
        made[name] = render(report).encode("utf-8", errors="backslashreplace")
    return made


def write_reports(
    report: Report, folder: Path, *, progress: Callable[[str], None] = _unwatched
) -> tuple[Path, ...]:
    """Write ``report.html``, ``.md``, ``.json`` and ``.xml``; each appears whole or not at all.

    All are rendered before the first is written.

    Args:
        report: What to write.
        folder: Made when it does not exist.
        progress: Told of each file.

    Returns:
        The files, in the order json, markdown, html, xml.

    Raises:
        InputError: The folder cannot be made or written; nothing half-written stays.
    """
    texts = render_all(report, progress=progress)
    progress(f"writing {folder}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return tuple(_write(folder / name, text) for name, text in texts.items())
    except OSError as error:
        msg = (
            f"{folder}: the report cannot be written ({error.strerror})\n"
            "  do next: name another folder with --out, or free some space"
        )
        raise InputError(msg) from error


def _write(path: Path, text: bytes) -> Path:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.chmod(0o644)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return path
