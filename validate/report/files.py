"""``report.json`` as text, its JSON Schema, and reports on disk: whole or not at all."""

import json
import os
import tempfile
from pathlib import Path

from validate.errors import InputError
from validate.report.markdown import render_markdown
from validate.schema.report import Report

__all__ = ["render_json", "report_schema", "write_reports"]


def render_json(report: Report) -> str:
    """``report.json``: strict JSON, ASCII, no NaN.

    Args:
        report: What to write.

    Raises:
        ValueError: A number is not finite; ``Report`` itself refuses those.
    """
    return json.dumps(report.model_dump(mode="json"), indent=2, allow_nan=False) + "\n"


def report_schema() -> str:
    """The JSON Schema of ``report.json``, as published in ``docs/report.schema.json``."""
    schema = Report.model_json_schema(mode="serialization")
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def write_reports(report: Report, folder: Path) -> tuple[Path, ...]:
    """Write ``report.json`` and ``report.md``; each appears whole or not at all.

    Args:
        report: What to write.
        folder: Made when it does not exist.

    Returns:
        The files, in the order json, markdown.

    Raises:
        InputError: The folder cannot be made or written; nothing half-written stays.
    """
    texts = {"report.json": render_json(report), "report.md": render_markdown(report)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return tuple(_write(folder / name, text) for name, text in texts.items())
    except OSError as error:
        msg = (
            f"{folder}: the report cannot be written ({error.strerror})\n"
            "  do next: name another folder with --out, or free some space"
        )
        raise InputError(msg) from error


def _write(path: Path, text: str) -> Path:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    partial = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.chmod(0o644)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return path
